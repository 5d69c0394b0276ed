"""Bamboogle (Press et al., Findings of EMNLP 2023): 125 two-hop questions for a search engine.

Published as a Google sheet, here as its CSV export: columns `Question` and `Answer`. Page:
https://github.com/ofirpress/self-ask. Licence: MIT, as a catalogue of data sets cites the
repository; none stands with the sheet. The count is the paper's.

Quirks:
- No ids: a question is named "bamboogle_N" by its row, the first is 0.
- One answer each, no evidence, no corpus: the authors ask Google. Some answers have changed since
  2022.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from multihop.datasets.base import Dataset, Published, Split
from multihop.datasets.fields import text_field
from multihop.errors import BadInput
from multihop.text import Json, Question

NAME = "bamboogle"
HINT = (
    "Bamboogle's sheet is linked from https://github.com/ofirpress/self-ask; export it as CSV, "
    "or run: multihop data get bamboogle."
)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a CSV export."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            for number, row in enumerate(rows):
                yield _question(row, number, f"{path}:{rows.line_num}")
    except OSError as broken:
        raise BadInput(f"{path}: cannot be read ({broken.strerror}).") from None
    except UnicodeDecodeError as broken:
        raise BadInput(f"{path}: not UTF-8 at byte {broken.start}. {HINT}") from None
    except csv.Error as broken:
        raise BadInput(
            f"{path}:{rows.line_num}: not CSV, or cut short ({broken}). {HINT}"
        ) from None


def _question(row: dict[str, str], number: int, where: str) -> Question:
    record: dict[str, Json] = {name: value for name, value in row.items() if name is not None}
    text = text_field(record, "Question", where, hint=HINT).strip()
    answer = text_field(record, "Answer", where, hint=HINT).strip()
    if not text or not answer:
        raise BadInput(f"{where}: a row without {'answer' if text else 'question'}. {HINT}")
    return Question(
        text=text,
        id=f"{NAME}_{number}",
        answers=(answer,),
        extra={"dataset": NAME},
    )


BAMBOOGLE = Dataset(
    name=NAME,
    title="Bamboogle",
    home="https://github.com/ofirpress/self-ask",
    licence="MIT",
    citation="Press et al., Measuring and Narrowing the Compositionality Gap in Language Models, "
    "Findings of EMNLP 2023",
    files=(
        Published(
            "bamboogle.csv",
            "https://docs.google.com/spreadsheets/d/"
            "1jwcsA5kE4TObr9YHn9Gc-wQHYjTbLhDGx6tmIzMhl_U/export?format=csv",
        ),
    ),
    splits=(Split("test", "bamboogle.csv", 125),),
    read=questions,
)
