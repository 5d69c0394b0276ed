"""The processed data files of IRCoT's release (StonyBrookNLP/ircot, Apache-2.0).

`processed_data/<dataset>/NAME.jsonl`, one question a line, the same fields for HotpotQA,
2WikiMultihopQA, MuSiQue and IIRC; the release's scripts make them or fetch them, as
`processed_data.zip` from Google Drive. The data keep their own licences.

    dev_subsampled         100 questions that hyper-parameters were chosen on
    test_subsampled        500 questions of the paper's tables
    annotated_only_train   the annotated demonstrations
    train, dev             all questions of the splits

The archive's hash is as a project that downloaded it publishes it.

    question_id, question_text
    answers_objects   [{"spans": [...], "number": "", "date": {"day", "month", "year"}}]
    contexts          [{"title", "paragraph_text", "is_supporting", ...}]
    pinned_contexts   IIRC: the main passage, same fields; valid_titles: the pages it links to
    level, type, answer_type, simplified_answer_type   where the data set has them

Several answer objects are annotators' answers: the most common one counts, the first of equals.
A number or a date is one span here; the release's reader would take it apart into characters.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from multihop.datasets.base import Dataset, Published, Split
from multihop.datasets.fields import list_field, objects_field, text_field
from multihop.datasets.instances import Context, Instance
from multihop.datasets.lines import records
from multihop.errors import BadInput
from multihop.text import Json, Question


class InstanceFile:
    """The questions of a processed file, in order; read anew each time it is iterated over.

    Iterating raises `BadInput`, with file and line, for a record that is not in the format.

    Args:
        path: The file.
        dataset: Its data set, for records that do not name theirs.
    """

    def __init__(self, path: Path, dataset: str = "") -> None:
        self.path = path
        self.dataset = dataset

    def __iter__(self) -> Iterator[Question]:
        for instance in self.instances():
            yield instance.to_question()

    def instances(self) -> Iterator[Instance]:
        """The records as they are."""
        for where, record in records(self.path):
            yield read_instance(record, where, self.dataset)


def read_instance(record: dict[str, Json], where: str, dataset: str = "") -> Instance:
    """Read one record.

    Args:
        record: The JSON data.
        where: File and line, for the error message.
        dataset: Its data set, when it does not name it.

    Raises:
        BadInput: Not in the format, or a paragraph begins with a title line of a prompt.
    """
    names = ("level", "type", "answer_type", "simplified_answer_type")
    return Instance(
        id=text_field(record, "question_id", where),
        question=text_field(record, "question_text", where),
        answer=_answer(record, where),
        contexts=_contexts(record, "contexts", where),
        pinned=_contexts(record, "pinned_contexts", where) if "pinned_contexts" in record else (),
        valid_titles=list_field(record, "valid_titles", where)
        if "valid_titles" in record
        else None,
        metadata={name: text_field(record, name, where, "") or None for name in names},
        dataset=text_field(record, "dataset", where, dataset),
    )


def _answer(record: dict[str, Json], where: str) -> tuple[str, ...]:
    spans = [
        _spans(o, f"{where}: in 'answers_objects'")
        for o in objects_field(record, "answers_objects", where)
    ]
    if not spans:
        raise BadInput(f"{where}: 'answers_objects' is empty. Each question needs an answer.")
    return Counter(spans).most_common(1)[0][0]


def _spans(answer: dict[str, Json], where: str) -> tuple[str, ...]:
    number = answer.get("number")
    if isinstance(number, (int, float)):
        number = str(number)
    if number:
        return (text_field({"number": number}, "number", where),)
    if spans := list_field(answer, "spans", where):
        return spans
    date = answer.get("date")
    if isinstance(date, dict):
        parts = [text_field(date, name, where, "") for name in ("day", "month", "year")]
        if any(parts):
            return (" ".join(part for part in parts if part),)
    raise BadInput(f"{where}: an answer has neither number nor spans nor date.")


def _contexts(record: dict[str, Json], name: str, where: str) -> tuple[Context, ...]:
    inside = f"{where}: in {name!r}"
    found = []
    for item in objects_field(record, name, where):
        title, text = text_field(item, "title", inside), text_field(item, "paragraph_text", inside)
        if text.strip().startswith(("Title: ", "Wikipedia Title: ")):
            raise BadInput(
                f"{inside}: the paragraph of {title!r} begins with a title line. "
                "Processed files hold bare paragraphs; take the line off."
            )
        supporting = item.get("is_supporting")
        if not isinstance(supporting, bool):
            raise BadInput(f"{inside}: 'is_supporting' of {title!r} must be true or false.")
        name_ = item.get("id")  # a string or a number, by data set
        found.append(Context(title, text, supporting, None if name_ is None else str(name_)))
    return tuple(found)


DATASETS = ("hotpotqa", "2wikimultihopqa", "musique", "iirc")

_FILES = {
    "dev": "dev_subsampled",
    "test": "test_subsampled",
    "demonstrations": "annotated_only_train",
}
_COUNTS = {"dev": 100, "test": 500}


def _read(path: Path) -> Iterator[Question]:
    return iter(_file(path))


def _instances(path: Path) -> Iterator[Instance]:
    return _file(path).instances()


def _file(path: Path) -> InstanceFile:
    """A file whose folder bears its data set's name, as in the release."""
    folder = path.resolve().parent.name
    return InstanceFile(path, folder if folder in DATASETS else "")


IRCOT = Dataset(
    name="ircot",
    title="IRCoT's processed data",
    home="https://github.com/StonyBrookNLP/ircot",
    licence="that of each data set",
    citation="Trivedi et al., Interleaving Retrieval with Chain-of-Thought Reasoning for "
    "Knowledge-Intensive Multi-Step Questions, ACL 2023",
    files=(
        Published(
            "processed_data.zip",
            "https://drive.usercontent.google.com/download"
            "?id=1t2BjJtsejSIUZI54PKObMFG6_wMMG3bC&export=download&confirm=t",
            None,
            "271fff07efb120a71739c89ab69ab10f4c00059e74b2f7b451a607158c364906",
            tuple(f"{name}/{file}.jsonl" for name in DATASETS for file in _FILES.values()),
        ),
    ),
    splits=tuple(
        Split(f"{name}/{split}", f"{name}/{file}.jsonl", _COUNTS.get(split))
        for name in DATASETS
        for split, file in _FILES.items()
    ),
    read=_read,
    instances=_instances,
)
