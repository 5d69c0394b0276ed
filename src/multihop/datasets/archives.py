"""Files out of zip and tar archives that nobody vouches for.

Only files asked for by name are written, under names of ours, so no path in an archive leads
anywhere. Links and devices are refused, and so is an archive with more in it than its size allows.
"""

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from multihop.datasets.download import CHUNK, Progress, check_room, claimed, finish, write
from multihop.errors import DownloadError

RATIO = 100
"""How much larger than the archive what is unpacked may be; text is 3 to 20 times as large."""

ALLOWANCE = 64 << 20
"""Bytes allowed on top, so that tiny archives may hold long runs of the same."""


def unpack(
    archive: Path,
    members: Sequence[str],
    into: Path,
    progress: Progress | None = None,
) -> list[Path]:
    """Take files out of an archive; those that are there already are left as they are.

    Args:
        archive: A zip or tar archive; the tar may be compressed. It is read as a stream.
        members: The files, each named by the end of its path in the archive.
        into: Their folder; a file's place there is its name in `members`.
        progress: Told, for each file, the bytes that are written and its size.

    Returns:
        The files, in the order of `members`.

    Raises:
        DownloadError: It is no archive, or damaged; a file is not in it, or twice, or is a link;
            or it holds too much, for a sound archive or for the disk.
    """
    paths = {name: into / PurePosixPath(name) for name in members}
    for name in members:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name}: not a name of a file below a folder")
    wanted = [name for name, path in paths.items() if not path.exists()]
    if wanted:
        room = RATIO * archive.stat().st_size + ALLOWANCE
        try:
            take = _from_zip if _is_zip(archive) else _from_tar
            take(archive, wanted, paths, _Room(archive, room), progress)
        except (
            *(zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError),
            NotImplementedError,  # a kind of compression that zipfile does not know
        ) as broken:
            raise DownloadError(
                f"{archive}: not a sound archive ({broken}). Delete it and fetch it again."
            ) from None
    return list(paths.values())


def _is_zip(archive: Path) -> bool:
    """By its first bytes: a tar may end in a zip, and `is_zipfile` looks at the end."""
    with archive.open("rb") as file:
        return file.read(2) == b"PK"


class _Room:
    """How much more may be unpacked."""

    def __init__(self, archive: Path, left: int) -> None:
        self.archive, self.left = archive, left

    def take(self, number: int) -> None:
        self.left -= number
        if self.left < 0:
            raise DownloadError(
                f"{self.archive}: holds more than {RATIO} times its own size: not the published "
                "archive. Delete it."
            )


def _from_zip(
    archive: Path,
    wanted: Sequence[str],
    paths: dict[str, Path],
    room: _Room,
    progress: Progress | None,
) -> None:
    with zipfile.ZipFile(archive) as opened:
        entries = [entry for entry in opened.infolist() if not entry.is_dir()]
        found = _match(archive, wanted, [entry.filename for entry in entries])
        for name, number in found.items():
            entry = entries[number]
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise DownloadError(f"{archive}: {entry.filename} is no plain file. Delete it.")
            if entry.flag_bits & 1:
                raise DownloadError(
                    f"{archive}: {entry.filename} is encrypted. Unpack it by hand to {paths[name]}."
                )
            with opened.open(entry) as content:
                _write(content, paths[name], entry.file_size, room, progress)


def _from_tar(
    archive: Path,
    wanted: Sequence[str],
    paths: dict[str, Path],
    room: _Room,
    progress: Progress | None,
) -> None:
    # A stream: what is taken is written as it passes, so that the archive is read once.
    seen: list[str] = []
    with tarfile.open(archive, "r|*") as opened:
        for entry in opened:
            if entry.isdir():
                continue
            name = next((name for name in wanted if _ends(entry.name, name)), None)
            room.take(0 if name else entry.size)
            if name is None:
                continue
            if not entry.isreg():
                raise DownloadError(f"{archive}: {entry.name} is no plain file. Delete it.")
            seen.append(entry.name)
            if sum(_ends(other, name) for other in seen) > 1:
                break  # refused below
            content = opened.extractfile(entry)
            assert content is not None  # it is a plain file
            with content:
                _write(content, paths[name], entry.size, room, progress)
    _match(archive, wanted, seen)


def _match(archive: Path, wanted: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """For each file its place among the names."""
    found = {}
    for name in wanted:
        places = [number for number, there in enumerate(names) if _ends(there, name)]
        if len(places) != 1:
            listed = ", ".join(names[:5]) or "nothing"
            how = "twice" if places else "not at all"
            raise DownloadError(
                f"{archive}: {name} is in it {how} (it holds {listed}"
                f"{', ...' if len(names) > 5 else ''}). It is another archive: delete it."
            )
        found[name] = places[0]
    return found


def _ends(path: str, name: str) -> bool:
    parts = PurePosixPath(name).parts
    there = PurePosixPath(path).parts
    return there[-len(parts) :] == parts and "__MACOSX" not in there


def _write(
    content: IO[bytes], path: Path, size: int, room: _Room, progress: Progress | None
) -> None:
    room.take(size)
    path.parent.mkdir(parents=True, exist_ok=True)
    check_room(path, size)
    with claimed(path) as part:
        if part is None:
            return  # another process was faster
        part.truncate(0)
        done, complete = 0, False
        try:
            while chunk := content.read(CHUNK):
                done += len(chunk)
                if done > size:  # its head lied
                    room.take(done - size)
                    size = done
                write(part, chunk, path)
                if progress:
                    progress(done, size)
            complete = True
        finally:
            if not complete:
                part.truncate(0)  # of a file out of an archive nothing can be gone on with
        finish(part, path)
