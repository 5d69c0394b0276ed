"""Hashes of model files, for what identifies a model."""

import hashlib
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from multihop import places

_known: dict[str, str] = {}
_hashing = threading.Lock()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's content, in hex.

    A model takes seconds to read, so digests are kept, in this process and in the cache folder,
    for as long as the file's path, size and times of change are what they were.

    Raises:
        OSError: The file cannot be read.
    """
    path = path.resolve()
    now = path.stat()
    state = f"{path}\0{now.st_size}\0{now.st_mtime_ns}\0{now.st_ctime_ns}"
    name = hashlib.sha256(os.fsencode(state)).hexdigest()
    with _hashing:  # one thread reads the file, the others wait for what it finds
        if name not in _known:
            kept = places.cache() / "digests" / name
            digest = _read(kept)
            if not digest:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                _keep(kept, digest)
            _known[name] = digest
        return _known[name]


def folder_digests(path: Path, suffixes: tuple[str, ...]) -> dict[str, str]:
    """The digests of a folder's files that end in one of the suffixes, by file name."""
    return {
        file.name: file_digest(file)
        for file in sorted(path.iterdir())
        if file.is_file() and file.name.endswith(suffixes)
    }


def _read(kept: Path) -> str:
    try:
        digest = kept.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
    return digest if len(digest) == 64 else ""


def _keep(kept: Path, digest: str) -> None:
    # Where nothing can be written, the next process reads the model again.
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file, name = tempfile.mkstemp(dir=kept.parent)
        with os.fdopen(file, "w") as writing:
            writing.write(digest)
        Path(name).replace(kept)
