"""TOML files read into dataclasses, strictly.

Every key is a field; an unknown key, a wrong type or a value out of range is refused with one
line that names it. A field without a default is needed in a list of tables and nowhere else.
"""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from multihop.errors import BadInput

T = TypeVar("T")


def number(default: float, low: float, high: float = float("inf"), *, above: bool = False) -> Any:
    """A field of a number with bounds; `above`: the lower one itself is too low."""
    return field(default=default, metadata={"low": low, "high": high, "above": above})


def read(path: Path) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        BadInput: The file cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise BadInput(f"{path}: not TOML ({failure}).") from None
    except OSError as failure:
        raise BadInput(f"{path}: {failure.strerror}.") from failure


def located(name: str, folder: Path) -> str:
    """A path as a file of this folder means it: $NAME and ~ expanded, else relative to it."""
    return str(folder / Path(os.path.expandvars(name)).expanduser()) if name else ""


def record(kind: type[T], given: object, where: str, table: str = "", *, needed: bool = False) -> T:
    """A dataclass of a table.

    Fields may be texts, numbers, truth values, `Literal`s, other dataclasses, mappings from
    names to texts (numbers and truth values are written out), and tuples of all but mappings.

    Args:
        kind: The dataclass.
        given: The table.
        where: The file, for messages.
        table: The table's name; empty for the file itself.
        needed: Fields without a default must be there.

    Raises:
        BadInput: A key or value is not as the dataclass says.
    """
    if not isinstance(given, Mapping):
        raise BadInput(f"{where}: {table or 'the file'} must be a table.")
    hints = get_type_hints(kind)
    fields = {each.name: each for each in dataclasses.fields(cast(Any, kind))}
    values = {}
    for key, value in given.items():
        name = f"{table}.{key}" if table else key
        if key not in fields:
            inner = f"table [{key}]" if isinstance(value, Mapping) else f"key {name}"
            close = difflib.get_close_matches(key, fields, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise BadInput(f"{where}: unknown {inner}.{guess} Known: {', '.join(fields)}.")
        if dataclasses.is_dataclass(hints[key]):
            values[key] = record(cast(type[Any], hints[key]), value, where, name)
        else:
            values[key] = _value(hints[key], fields[key].metadata, value, f"{where}: {name}")
    if needed and (missing := [n for n, each in fields.items() if n not in values and _bare(each)]):
        raise BadInput(f"{where}: {', '.join(missing)} missing.")
    return kind(**values)


def _bare(each: "dataclasses.Field[Any]") -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def _value(kind: Any, bounds: Mapping[str, Any], given: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin is Literal:
        if given not in get_args(kind) or isinstance(given, bool):
            raise BadInput(f"{where} is {given!r}; known: {', '.join(get_args(kind))}.")
        return given
    if origin is Mapping:
        if not isinstance(given, Mapping):
            raise BadInput(f"{where} is {given!r}; it must be a table.")
        return {key: _option(value, f"{where}.{key}") for key, value in given.items()}
    if origin is tuple:
        inner: Any = get_args(kind)[0]
        if not isinstance(given, list):
            raise BadInput(f"{where} is {given!r}; it must be a list.")
        if dataclasses.is_dataclass(inner):
            tables = enumerate(given, 1)
            return tuple(
                record(cast(type[Any], inner), each, f"{where}, table {n}", needed=True)
                for n, each in tables
            )
        return tuple(_value(inner, bounds, each, where) for each in given)
    wanted = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}[kind]
    fitting = (int, float) if kind is float else kind
    if not isinstance(given, fitting) or isinstance(given, bool) is not (kind is bool):
        raise BadInput(f"{where} is {given!r}; it must be {wanted}.")
    if bounds:
        low, high = bounds["low"], bounds["high"]
        too_low = given <= low if bounds["above"] else given < low
        if not given < float("inf") or too_low or given > high:
            limits = f"{'above' if bounds['above'] else 'at least'} {low:g}"
            limits += "" if high == float("inf") else f" and at most {high:g}"
            raise BadInput(f"{where} is {given!r}; it must be {limits}.")
    return kind(given)


def _option(given: Any, where: str) -> str:
    """A part's option as the command line would give it."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, str | int | float):
        return str(given)
    raise BadInput(f"{where} is {given!r}; it must be text, a number, true or false.")
