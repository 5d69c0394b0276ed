"""Large JSON files, read record by record: data sets publish whole splits as one array.

A split has up to 700 MB and a table of articles more; they are parsed as a stream (ijson), so
that memory is that of one record.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, cast

from multihop.errors import BadInput, MissingExtra
from multihop.text import Json

BUFFER = 1 << 18
"""Bytes that are parsed at once."""

_BOM = b"\xef\xbb\xbf"


def array_records(path: Path, hint: str) -> Iterator[tuple[str, dict[str, Json]]]:
    """The objects of a file that holds one JSON array, each with its place.

    Args:
        path: The file.
        hint: What the file should be and where to have it from, for the end of messages.

    Returns:
        Pairs of "path: record N", counted from 1, and the object.

    Raises:
        BadInput: No such file, not an array of objects, not JSON, or cut short.
        MissingExtra: ijson is not installed.
    """
    ijson = _ijson()
    number = 0
    with _opened(path) as file:
        _begins(file, b"[", path, hint)
        try:
            for record in ijson.items(file, "item", use_float=True, buf_size=BUFFER):
                number += 1
                where = f"{path}: record {number}"
                if not isinstance(record, dict):
                    found = type(record).__name__
                    raise BadInput(f"{where}: expected a JSON object, found {found}. {hint}")
                yield where, cast(dict[str, Json], record)
        except (ijson.JSONError, UnicodeDecodeError) as broken:
            raise BadInput(_broken(f"{path}: record {number + 1}", broken, hint)) from None


def object_entries(path: Path, hint: str) -> Iterator[tuple[str, str, Json]]:
    """The entries of a file that holds one JSON object, in order, each with its place.

    Args:
        path: The file.
        hint: As for `array_records`.

    Returns:
        Triples of "path: entry N", counted from 1, the key and the value. A key may come twice.

    Raises:
        BadInput: No such file, not an object, not JSON, or cut short.
        MissingExtra: ijson is not installed.
    """
    ijson = _ijson()
    number = 0
    with _opened(path) as file:
        _begins(file, b"{", path, hint)
        try:
            for key, value in ijson.kvitems(file, "", use_float=True, buf_size=BUFFER):
                number += 1
                yield f"{path}: entry {number}", key, cast(Json, value)
        except (ijson.JSONError, UnicodeDecodeError) as broken:
            raise BadInput(_broken(f"{path}: entry {number + 1}", broken, hint)) from None


@contextmanager
def _opened(path: Path) -> Generator[BinaryIO, None, None]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as broken:
        raise BadInput(f"{path}: cannot be read ({broken.strerror}).") from None


def _begins(file: BinaryIO, bracket: bytes, path: Path, hint: str) -> None:
    """Refuse a file that is something else, and leave it at its first bracket."""
    head = file.read(1 << 12)
    start = len(_BOM) if head.startswith(_BOM) else 0
    found = head[start:].lstrip()
    if not found.startswith(bracket):
        kinds = {b"[": "a JSON array", b"{": "a JSON object"}
        is_ = kinds.get(found[:1], "no JSON" if found else "an empty file")
        raise BadInput(f"{path}: expected {kinds[bracket]}, found {is_}. {hint}")
    file.seek(start)


def _broken(where: str, broken: Exception, hint: str) -> str:
    # The parser draws a picture of several lines; its first line says what is wrong.
    said = str(broken).removeprefix("b'").replace("\\n", "\n").partition("\n")[0]
    if "premature EOF" in said or "Incomplete JSON" in said:
        return f"{where}: the file is cut short here. {hint}"
    reason = re.sub("^(parse|lexical) error: ", "", said).rstrip(".")
    return f"{where}: not JSON ({reason}). {hint}"


def _ijson() -> ModuleType:
    try:
        return import_module("ijson")
    except ImportError:
        raise MissingExtra("ijson", "data") from None
