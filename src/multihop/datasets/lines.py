"""JSON Lines as user files are: read one by one, refused with file and line."""

import json
from collections.abc import Iterator
from pathlib import Path

from multihop.errors import BadInput
from multihop.text import Json, json_object


def records(path: Path) -> Iterator[tuple[str, dict[str, Json]]]:
    """The JSON objects of a file, each with its place as "path:line" (lines count from 1).

    Blank lines are skipped, a byte order mark too. Memory does not grow with the file.

    Raises:
        BadInput: No such file, not UTF-8, or a line that is no JSON object.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                where = f"{path}:{number}"
                record = _parse(line, where)
                if record is not None:
                    yield where, record
    except OSError as broken:
        raise BadInput(f"{path}: cannot be read ({broken.strerror}).") from None


def _parse(line: bytes, where: str) -> dict[str, Json] | None:
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as broken:
        raise BadInput(f"{where}: not UTF-8 at byte {broken.start} of the line.") from None
    if not text:
        return None
    return json_object(text, where, "Each line is one JSON object.")


def text_field(record: dict[str, Json], name: str, where: str, default: str | None = None) -> str:
    """A string field; null counts as missing where there is a default.

    Raises:
        BadInput: It is missing and has no default, or is something else.
    """
    value = record.get(name)
    if value is None and default is not None:
        return default
    if name not in record:
        raise BadInput(f"{where}: no {name!r} (its fields: {', '.join(record) or 'none'}).")
    if not isinstance(value, str):
        raise BadInput(f"{where}: {name!r} must be a string, found {_kind(value)}.")
    return value


def list_field(record: dict[str, Json], name: str, where: str) -> tuple[str, ...]:
    """A list of strings; empty when missing or null.

    Raises:
        BadInput: It is something else.
    """
    value = record.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadInput(f"{where}: {name!r} must be a list of strings, found {_kind(value)}.")
    for item in value:
        if not isinstance(item, str):
            raise BadInput(f"{where}: {name!r} must hold strings, found {_kind(item)}.")
    return tuple(str(item) for item in value)


def _kind(value: Json) -> str:
    return f"{type(value).__name__} ({json.dumps(value)[:40]})"
