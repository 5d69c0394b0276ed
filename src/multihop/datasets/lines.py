"""JSON Lines as user files are: read one by one, refused with file and line."""

from collections.abc import Iterator
from pathlib import Path

from multihop.errors import BadInput
from multihop.text import Json, json_object


def records(
    path: Path, hint: str = "Each line is one JSON object."
) -> Iterator[tuple[str, dict[str, Json]]]:
    """The JSON objects of a file, each with its place as "path:line" (lines count from 1).

    Blank lines are skipped, a byte order mark too. Memory does not grow with the file.

    Args:
        path: The file.
        hint: What to do about a line that is no object, for the end of the message.

    Raises:
        BadInput: No such file, not UTF-8, or a line that is no JSON object.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                where = f"{path}:{number}"
                record = _parse(line, where, hint)
                if record is not None:
                    yield where, record
    except OSError as broken:
        raise BadInput(f"{path}: cannot be read ({broken.strerror}).") from None


def _parse(line: bytes, where: str, hint: str) -> dict[str, Json] | None:
    cut = f"{where}: neither whole nor ended: the file is cut short here. {hint}".rstrip()
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as broken:
        if broken.end == len(line):
            raise BadInput(cut) from None
        raise BadInput(f"{where}: not UTF-8 at byte {broken.start} of the line.") from None
    if not text:
        return None
    if not line.endswith(b"\n") and not text.endswith(("}", "]")):
        raise BadInput(cut)
    return json_object(text, where, hint)
