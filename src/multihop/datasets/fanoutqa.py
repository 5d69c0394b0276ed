"""FanOutQA (Zhu et al., ACL 2024): questions that fan out over many Wikipedia pages.

    file                   bytes       questions
    fanout-final-dev.json  1,177,174   310
    fanout-final-test.json             724         without answers and decompositions

Page: https://fanoutqa.com. Licence: CC BY-SA 4.0, the data's own file in the repository
(zhudotexe/fanoutqa, fanoutqa/data). The revision, its size and the counts are as projects that pin
the files publish them.

A question file is one JSON array: id, question, answer (a value, a list of values, or an object
from names to values), categories, and decomposition: steps of the same shape with `depends_on`
and `evidence` ({"pageid", "revid", "title", "url"}) or a decomposition of their own. The test file
has `necessary_evidence`, a list of pages.

Quirks:
- Gold is pages, not paragraphs: `gold_titles` in the order of steps. The corpus is Wikipedia of
  20 November 2023 (23 GB from the authors), which is not read here.
- An answer is written as one text, "name: value; name: value" or "value; value", true and false
  as yes and no, and its items are `answer_parts`; the field `answer` keeps it as published. The
  authors score the share of names and values that stand in the text, and ask a judge.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from multihop.datasets.arrays import array_records
from multihop.datasets.base import Dataset, Published, Split
from multihop.datasets.fields import list_field, needed, objects_field, text_field
from multihop.errors import BadInput
from multihop.text import Json, Question

NAME = "fanoutqa"
HINT = "FanOutQA's own files are at https://fanoutqa.com; or run: multihop data get fanoutqa."

_DATA = (
    "https://raw.githubusercontent.com/zhudotexe/fanoutqa/"
    "4e254877c0d28378e800171ab92781dbba893718/fanoutqa/data/"
)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file."""
    for where, record in array_records(path, HINT):
        yield _question(record, where)


def _question(record: dict[str, Json], where: str) -> Question:
    extra: dict[str, Json] = {"dataset": NAME}
    parts: list[str] = []
    if "answer" in record or "decomposition" in record:
        parts = _parts(record, where)
        extra["answer"] = record["answer"]
        extra["decomposition"] = [*objects_field(record, "decomposition", where, HINT)]
        titles = list(_titles(record, where))
    else:
        inside = f"{where}: in 'necessary_evidence'"
        pages = objects_field(record, "necessary_evidence", where, HINT)
        titles = [text_field(page, "title", inside, hint=HINT) for page in pages]
    if len(parts) > 1:
        extra["answer_parts"] = [*parts]
    categories = list_field(record, "categories", where, HINT)
    extra["categories"] = [*categories]
    return Question(
        text=text_field(record, "question", where, hint=HINT),
        id=text_field(record, "id", where, hint=HINT),
        answers=("; ".join(parts),) if parts else (),
        gold_titles=tuple(dict.fromkeys(titles)),
        kind=", ".join(categories),
        extra=extra,
    )


def _parts(record: dict[str, Json], where: str) -> list[str]:
    """An answer's items as texts."""
    match needed(record, "answer", where, HINT):
        case dict(named) if named:
            return [f"{name}: {_text(value)}" for name, value in named.items()]
        case [*values] if values:
            return [_text(value) for value in values]
        case str() | int() | float() as value:
            return [_text(value)]
    raise BadInput(f"{where}: 'answer' is empty. {HINT}")


def _text(value: Json) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case [*values]:
            return ", ".join(_text(each) for each in values)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _titles(record: dict[str, Json], where: str) -> Iterator[str]:
    """Titles of the pages of all steps, those of steps of steps in their place."""
    for step in objects_field(record, "decomposition", where, HINT):
        inside = f"{where}: in 'decomposition'"
        evidence = step.get("evidence")
        if isinstance(evidence, dict):
            yield text_field(evidence, "title", inside, hint=HINT)
        if step.get("decomposition"):
            yield from _titles(step, inside)


FANOUTQA = Dataset(
    name=NAME,
    title="FanOutQA",
    home="https://fanoutqa.com",
    licence="CC BY-SA 4.0",
    citation="Zhu et al., FanOutQA: A Multi-Hop, Multi-Document Question Answering Benchmark for "
    "Large Language Models, ACL 2024",
    files=(
        Published("fanout-final-dev.json", f"{_DATA}fanout-final-dev.json", 1_177_174),
        Published("fanout-final-test.json", f"{_DATA}fanout-final-test.json"),
    ),
    splits=(
        Split("dev", "fanout-final-dev.json", 310),
        Split("test", "fanout-final-test.json", 724, answers=False),
    ),
    read=questions,
)
