"""Fields of records: taken with their type, refused with their place."""

import json
from collections.abc import Mapping

from multihop.errors import BadInput
from multihop.text import Json


def needed(record: Mapping[str, Json], name: str, where: str, hint: str = "") -> Json:
    """A field, whatever it holds.

    Raises:
        BadInput: It is missing.
    """
    if name not in record:
        fields = ", ".join(record) or "none"
        raise BadInput(f"{where}: no {name!r} (its fields: {fields}).{hint and ' ' + hint}")
    return record[name]


def text_field(
    record: Mapping[str, Json], name: str, where: str, default: str | None = None, hint: str = ""
) -> str:
    """A string field; null counts as missing where there is a default.

    Args:
        record: The record.
        name: The field's.
        where: The record's place, for the message.
        default: What a missing one is; None: it must not be missing.
        hint: A sentence on what to do, for the end of the message.

    Raises:
        BadInput: It is missing and has no default, or is something else.
    """
    value = record.get(name)
    if value is None and default is not None:
        return default
    value = needed(record, name, where, hint)
    if not isinstance(value, str):
        raise BadInput(_wrong(name, "must be a string", value, where, hint))
    return value


def list_field(
    record: Mapping[str, Json], name: str, where: str, hint: str = ""
) -> tuple[str, ...]:
    """A list of strings; empty when missing or null.

    Raises:
        BadInput: It is something else.
    """
    value = record.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadInput(_wrong(name, "must be a list of strings", value, where, hint))
    for item in value:
        if not isinstance(item, str):
            raise BadInput(_wrong(name, "must hold strings", item, where, hint))
    return tuple(str(item) for item in value)


def objects_field(
    record: Mapping[str, Json], name: str, where: str, hint: str = ""
) -> list[dict[str, Json]]:
    """A list of objects.

    Raises:
        BadInput: It is missing or something else.
    """
    found = []
    for item in any_list(record, name, where, hint):
        if not isinstance(item, dict):
            raise BadInput(_wrong(name, "must hold objects", item, where, hint))
        found.append(item)
    return found


def flag_field(record: Mapping[str, Json], name: str, where: str, hint: str = "") -> bool:
    """A field that is true or false.

    Raises:
        BadInput: It is missing or something else.
    """
    value = needed(record, name, where, hint)
    if not isinstance(value, bool):
        raise BadInput(_wrong(name, "must be true or false", value, where, hint))
    return value


def paragraphs_field(
    record: Mapping[str, Json], name: str, where: str, hint: str = ""
) -> list[tuple[str, list[str]]]:
    """A list of [title, [sentence, ...]].

    Raises:
        BadInput: It is missing or something else.
    """
    found = []
    for item in any_list(record, name, where, hint):
        match item:
            case [str(title), [*sentences]] if all(isinstance(s, str) for s in sentences):
                found.append((title, [str(sentence) for sentence in sentences]))
            case _:
                raise BadInput(
                    _wrong(name, "must hold [title, [sentence, ...]]", item, where, hint)
                )
    return found


def facts_field(
    record: Mapping[str, Json], name: str, where: str, hint: str = ""
) -> list[tuple[str, int]]:
    """A list of [title, sentence], sentences counted from 0.

    Raises:
        BadInput: It is missing or something else.
    """
    found = []
    for item in any_list(record, name, where, hint):
        match item:
            case [str(title), int(sentence)]:
                found.append((title, sentence))
            case _:
                raise BadInput(_wrong(name, "must hold [title, number]", item, where, hint))
    return found


def any_list(record: Mapping[str, Json], name: str, where: str, hint: str = "") -> list[Json]:
    """A list of anything.

    Raises:
        BadInput: It is missing or something else.
    """
    value = needed(record, name, where, hint)
    if not isinstance(value, list):
        raise BadInput(_wrong(name, "must be a list", value, where, hint))
    return value


def _wrong(name: str, wanted: str, value: Json, where: str, hint: str) -> str:
    found = f"{type(value).__name__} ({json.dumps(value)[:40]})"
    return f"{where}: {name!r} {wanted}, found {found}.{hint and ' ' + hint}"
