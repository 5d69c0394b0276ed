"""Run folders: traces on disk, one JSON line each, written so that a kill loses nothing.

    run.json         what was run: strategy, resolved settings, version, hash of the questions
    traces.jsonl     a finished question a line, in order of finishing
    traces-1.jsonl   the same of a second worker, where several worked at once; and so on

Lines are appended under a lock, in one write, and synced; several processes of one host may
append to one file. A line that a kill tore is ignored by readers and cut off by the next writer.
Who works on which question is in `multihop.claims`.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from multihop.errors import BadInput
from multihop.files import write
from multihop.text import Json, json_object
from multihop.trace import Trace

FORMAT = 1
"""Version of the folder's layout. Readers refuse others."""

RUN, TRACES = "run.json", "traces.jsonl"

_TRACE_FILE = re.compile(r"traces(?:-(\d+))?\.jsonl")


def home() -> Path:
    """Where runs are kept: MULTIHOP_RUNS, else multihop/runs in the user's data folder."""
    if given := os.environ.get("MULTIHOP_RUNS"):
        return Path(given).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "multihop" / "runs"


def asks(when: datetime | None = None) -> Path:
    """The trace file that the questions asked on one day go to; the day is the user's own."""
    day = (when or datetime.now(UTC)).astimezone().date()
    return home() / f"asks-{day.isoformat()}" / TRACES


def append(path: Path, *traces: Trace) -> int:
    """Add traces to a file and make sure that they are on disk.

    Args:
        path: The trace file; it and its folder are made when missing.
        traces: What to add. Several at once are synced once.

    Returns:
        The byte at which the first new line begins.

    Raises:
        OSError: They could not be written, as on a full disk; it names the file. Readers pass
            over what was, and the next writer cuts it off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(trace.to_json().encode() + b"\n" for trace in traces)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file lets go
        end = _repair(file)
        written = 0
        while written < len(lines):  # a full disk, or a signal, may split the write
            written += os.write(file, lines[written:])
        os.fsync(file)
    except OSError as failure:  # those of an open file do not name it
        raise OSError(failure.errno, failure.strerror, str(path)) from None
    finally:
        os.close(file)
    return end


def _repair(file: int) -> int:
    """Cut off a torn last line; give a whole one its missing end. Returns the file's size."""
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b"\n":
        return size
    begin, block = size, 1 << 16
    while begin > 0:
        start = max(0, begin - block)
        found = os.pread(file, begin - start, start).rfind(b"\n")
        if found >= 0:
            begin = start + found + 1
            break
        begin = start
    if _is_json(os.pread(file, size - begin, begin)):
        os.write(file, b"\n")
        return size + 1
    os.ftruncate(file, begin)
    return begin


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def line_at(path: Path, offset: int) -> int:
    """The number, from 1, of the line that begins at a byte."""
    number = 1
    with path.open("rb") as file:
        while offset > 0 and (block := file.read(min(offset, 1 << 20))):
            number += block.count(b"\n")
            offset -= len(block)
    return number


def read(path: Path) -> Iterator[tuple[int, Trace]]:
    """The traces of a file with their line numbers, from 1.

    A last line that was torn by a kill is passed over; it was never reported as written.

    Raises:
        BadInput: The file is missing, or any other line is not a trace.
    """
    for number, line in _lines(path):
        yield number, Trace.from_json(line, f"{path}:{number}")


def read_raw(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """Like `read`, as plain JSON data: several times faster where a field or two is wanted."""
    for number, line in _lines(path):
        yield number, json_object(line, f"{path}:{number}")


def trace_file(folder: Path, number: int) -> Path:
    """The trace file of a folder's worker number 0, 1, ..."""
    return folder / (f"traces-{number}.jsonl" if number else TRACES)


def trace_files(folder: Path) -> list[Path]:
    """All trace files of a run folder, that of worker 0 first; none where nothing is finished."""
    if not folder.is_dir():
        return []
    names = os.listdir(folder)  # noqa: PTH208 - a tenth of the time of Path.iterdir
    found = [match for name in names if (match := _TRACE_FILE.fullmatch(name))]
    return [folder / match[0] for match in sorted(found, key=lambda match: int(match[1] or 0))]


def read_folder(folder: Path) -> Iterator[tuple[int, Trace]]:
    """All traces of a run folder, whoever wrote them, numbered from 1 over its files."""
    number = 0
    for path in trace_files(folder):
        for _, run in read(path):
            number += 1
            yield number, run


class Reader:
    """Reads a run folder's trace files again and again, each line once.

    Args:
        folder: The run folder; it need not exist yet.

    Attributes:
        skip: A trace file that is read no more.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines
        self.skip: Path | None = None

    def new(self) -> Iterator[tuple[str, str]]:
        """What was written since the last time: each line, after its place for messages.

        Raises:
            BadInput: A line is no UTF-8.
        """
        for path in trace_files(self._folder):
            if path == self.skip:
                continue
            begin, number = self._read.get(path, (0, 0))
            with path.open("rb") as lines:
                if os.fstat(lines.fileno()).st_size <= begin:
                    continue
                lines.seek(begin)
                for line in lines:
                    if not line.endswith(b"\n") and not _is_json(line):
                        break  # torn, or still being written
                    begin += len(line)
                    if line != b"\n":  # else the late end of a line read before
                        number += 1
                        self._read[path] = begin, number
                        yield f"{path}:{number}", _decode(line, f"{path}:{number}")
            self._read[path] = begin, number


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n") and not _is_json(line):
                    return  # torn
                if line.strip():
                    yield number, _decode(line, f"{path}:{number}")
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file.") from None


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as broken:
        raise BadInput(f"{where}: not UTF-8 ({broken}).") from None


def start(folder: Path, identity: Mapping[str, Json]) -> None:
    """Make a run folder, or make sure that one is this very run and may be resumed.

    Args:
        folder: The run folder.
        identity: Everything that must be equal for traces to belong together.

    Raises:
        BadInput: The folder holds something else, or a run of another identity.
    """
    check(folder, identity)
    if not (folder / RUN).exists():
        folder.mkdir(parents=True, exist_ok=True)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"format": FORMAT, "started": started, **identity}
        if not write(folder / RUN, json.dumps(record, indent=1) + "\n", replace=False):
            check(folder, identity)  # another process was first


def check(folder: Path, identity: Mapping[str, Json]) -> None:
    """Make sure that `start` would do, and change nothing.

    Raises:
        BadInput: As `start`.
    """
    if not (folder / RUN).exists():
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder}: is a file. Choose a folder with --into.")
        if not folder.exists() or all(p.name.startswith(f".{RUN}") for p in folder.iterdir()):
            return
        if not (folder / RUN).exists():  # else another process has just begun the run
            raise BadInput(
                f"{folder}: is not a run folder and not empty. Choose another with --into."
            )
    # Through JSON and back, so that tuples and lists compare equal.
    wanted: dict[str, Json] = json.loads(json.dumps(dict(identity)))
    found = manifest(folder)
    differing = _difference(
        {k: v for k, v in found.items() if k not in ("format", "started")}, wanted
    )
    if differing:
        raise BadInput(
            f"{folder}: holds a run with {differing}. "
            "Choose another folder with --into, or repeat the run with its own settings."
        )


def _difference(found: Json, wanted: Json, name: str = "") -> str:
    """The first value that differs, in words; empty when none does."""
    if found == wanted:
        return ""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in [*wanted, *found]:
            inner = f"{name}.{key}" if name else key
            if key not in found:
                return f"no {inner} (now: {json.dumps(wanted[key])[:80]})"
            if key not in wanted:
                return f"{inner} {json.dumps(found[key])[:80]} (now: none)"
            if words := _difference(found[key], wanted[key], inner):
                return words
    return f"{name} {json.dumps(found)[:80]} (now: {json.dumps(wanted)[:80]})"


def manifest(folder: Path) -> dict[str, Json]:
    """What a run folder says of itself.

    Raises:
        BadInput: It has no readable run.json of this format.
    """
    path = folder / RUN
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{folder}: is not a run folder (it has no {RUN}).") from None
    except ValueError as broken:
        raise BadInput(f"{path}: not JSON ({broken}).") from None
    version = record.get("format") if isinstance(record, dict) else None
    if version != FORMAT:
        raise BadInput(
            f"{path}: run format {version!r}, this program reads {FORMAT}. "
            "Read it with the release that wrote it."
        )
    return dict(record)


def folders(folder: Path) -> list[Path]:
    """The run folder itself, or those right under it when it holds several strategies.

    Raises:
        BadInput: There is none.
    """
    if (folder / RUN).exists():
        return [folder]
    inner = sorted(path.parent for path in folder.glob(f"*/{RUN}"))
    if not inner:
        raise BadInput(f"{folder}: holds no run (no {RUN} in it or right under it).")
    return inner
