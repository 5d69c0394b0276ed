"""Lessons as a file: JSON lines, a lesson a line."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from multihop import files
from multihop.errors import BadInput
from multihop.text import json_object
from multihop.training.examples import Example, Lesson, Skill

_EXAMPLE = {"prompt": str, "completion": str, "skill": str, "question": str}


def write(path: Path, lessons: Iterable[Lesson]) -> None:
    """Write lessons; the file is there whole or not at all."""
    lines = (json.dumps(asdict(lesson), ensure_ascii=False) for lesson in lessons)
    files.write(path, "".join(f"{line}\n" for line in lines))


def read(path: Path) -> list[Lesson]:
    """Read lessons.

    Raises:
        BadInput: The file cannot be read, or a line of it is no lesson.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as failure:
        raise BadInput(f"{path} is not UTF-8: {failure.reason} at byte {failure.start}.") from None
    except OSError as failure:
        raise BadInput(f"{path}: {failure.strerror}.") from failure
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            found.append(_lesson(json_object(line, where), where))
    if not found:
        raise BadInput(f"{path} holds no lessons.")
    return found


def _lesson(record: dict[str, Any], where: str) -> Lesson:
    question, examples = record.get("question"), record.get("examples")
    if not isinstance(question, str) or not isinstance(examples, list) or not examples:
        raise BadInput(f"{where}: a lesson has a `question` (its id) and a list of `examples`.")
    return Lesson(
        question, tuple(_example(e, f"{where}, example {n}") for n, e in enumerate(examples, 1))
    )


def _example(record: Any, where: str) -> Example:
    if not isinstance(record, dict):
        raise BadInput(f"{where}: not an object.")
    for name, kind in _EXAMPLE.items():
        if not isinstance(record.get(name), kind) or (name != "question" and not record[name]):
            raise BadInput(f"{where}: `{name}` must be text.")
    weight = record.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise BadInput(f"{where}: `weight` is {weight!r}; it must be a number above 0.")
    if record["skill"] not in get_args(Skill):
        known = ", ".join(get_args(Skill))
        raise BadInput(f"{where}: `skill` is {record['skill']!r}; known: {known}.")
    return Example(
        record["prompt"], record["completion"], record["skill"], record["question"], float(weight)
    )
