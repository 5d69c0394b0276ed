"""multihop's own question files.

One JSON object a line. `question` is needed; the rest may be missing:

    id                  names it in the file; else the line's number
    answers             accepted answers
    gold_paragraph_ids  ids of the supporting passages in the corpus
    gold_titles         their titles
    type                the data set's own kind of question
    dataset             "hotpotqa", ...: chooses the answer metric
    answer_parts        the parts of the gold answer, when it is a list of several
    pinned              IIRC's main passage, {"id", "title", "text"}

Every other field is kept in `Question.extra` as it is, `dataset` and `answer_parts` too.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from multihop.datasets.fields import list_field, text_field
from multihop.datasets.lines import records
from multihop.errors import BadInput
from multihop.text import Json, Passage, Question

_READ = {"id", "question", "answers", "gold_paragraph_ids", "gold_titles", "type", "pinned"}


class QuestionFile:
    """The questions of a file, in order; read anew each time it is iterated over.

    Iterating raises `BadInput`, with file and line, for an empty question, a field of the
    wrong type, an id that came before, or a line that is no JSON object.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Question]:
        seen: dict[str, str] = {}
        for where, record in records(self.path):
            question = read_question(record, where)
            if question.id in seen:
                raise BadInput(
                    f"{where}: id {question.id!r} is also that of {seen[question.id]}. "
                    "Give each question an id of its own."
                )
            seen[question.id] = where
            yield question


def read_question(record: dict[str, Json], where: str) -> Question:
    """Read one record.

    Args:
        record: The JSON data.
        where: Its place as "name:line", for error messages; the line names a question
            without an id.

    Raises:
        BadInput: The question is missing or empty, or a field has the wrong type.
    """
    text = text_field(record, "question", where)
    if not text.strip():
        raise BadInput(f"{where}: 'question' is empty. Each line needs a question.")
    parts = record.get("answer_parts")
    if parts is not None and not list_field(record, "answer_parts", where):
        raise BadInput(f"{where}: 'answer_parts' is empty. Name the parts, or leave it out.")
    text_field(record, "dataset", where, "")
    return Question(
        text=text,
        id=text_field(record, "id", where, "") or where.rpartition(":")[2],
        answers=list_field(record, "answers", where),
        gold_ids=list_field(record, "gold_paragraph_ids", where),
        gold_titles=list_field(record, "gold_titles", where),
        kind=text_field(record, "type", where, ""),
        pinned=_pinned(record, where),
        extra={name: value for name, value in record.items() if name not in _READ},
    )


def _pinned(record: dict[str, Json], where: str) -> Passage | None:
    pinned = record.get("pinned")
    if pinned is None:
        return None
    if not isinstance(pinned, dict):
        raise BadInput(f"{where}: 'pinned' must be an object with id, title and text.")
    inside = f"{where}: in 'pinned'"
    id_, title, text = (text_field(pinned, name, inside) for name in ("id", "title", "text"))
    return Passage(id_, title, text)


def question_line(question: Question) -> str:
    """A question as a line of a file, without its end; `read_question` gives it back.

    Raises:
        BadInput: It could not be read back: it has no text.
    """
    if not question.text.strip():
        raise BadInput(f"Question {question.id!r} is empty. Leave it out.")
    record: dict[str, Json] = {"id": question.id, "question": question.text}
    record["answers"] = list(question.answers)
    if question.gold_ids:
        record["gold_paragraph_ids"] = list(question.gold_ids)
    if question.gold_titles:
        record["gold_titles"] = list(question.gold_titles)
    if question.kind:
        record["type"] = question.kind
    if main := question.pinned:
        record["pinned"] = {"id": main.id, "title": main.title, "text": main.text}
    rest = {name: value for name, value in question.extra.items() if name not in _READ}
    return json.dumps(record | rest)
