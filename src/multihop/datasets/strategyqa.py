"""StrategyQA (Geva et al., TACL 2021): yes/no questions whose steps are not in their words.

    file                            questions
    strategyqa_train.json           2,290
    strategyqa_train_filtered.json  2,821   left out of train by the authors; fewer annotations
    strategyqa_test.json              490   without answers
    strategyqa_train_paragraphs.json        9,251 paragraphs, the annotated evidence of train
    train.json, dev.json            2,290   an unofficial split of train, in the authors'
                                            repository eladsegal/strategyqa (data/strategyqa)

The first four are in `strategyqa_dataset.zip`. Page: https://allenai.org/data/strategyqa. Licence:
MIT, that of the repository. Counts and the archive's hash are as projects that downloaded it
publish them.

A question file is one JSON array: qid, term, description, question, answer (true or false), facts,
decomposition ("#1" is the answer of the first step), and evidence: for each of three annotators,
for each step, a list of lists of paragraph ids, "operation" or "no_evidence".

Quirks:
- An answer is "yes" or "no" here.
- Annotators chose different paragraphs: `gold_ids` is the union, in the order of annotators and
  steps; the field `evidence` has each one's.
- The paragraphs file has the evidence only, no distractors: searching it is easier than it should
  be. The authors' whole corpus, 36 million paragraphs, is not read here.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from multihop.datasets.arrays import array_records, object_entries
from multihop.datasets.base import Corpus, Dataset, Published, Split
from multihop.datasets.fields import flag_field, list_field, text_field
from multihop.errors import BadInput
from multihop.text import Json, Passage, Question

NAME = "strategyqa"
HINT = (
    "StrategyQA's own files are at https://allenai.org/data/strategyqa; or run: multihop data "
    "get strategyqa."
)
PARAGRAPHS = "strategyqa_train_paragraphs.json"


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file."""
    for where, record in array_records(path, HINT):
        yield _question(record, where)


def _question(record: dict[str, Json], where: str) -> Question:
    labelled = any(name in record for name in ("answer", "facts", "decomposition", "evidence"))
    extra: dict[str, Json] = {"dataset": NAME}
    extra |= {
        name: list(found)
        for name in ("facts", "decomposition")
        if (found := list_field(record, name, where, HINT))
    }
    extra |= {name: record[name] for name in ("term", "description") if record.get(name)}
    gold = _evidence(record, where)
    if record.get("evidence"):
        extra["evidence"] = record["evidence"]
    answers: tuple[str, ...] = ()
    if labelled:
        answers = ("yes" if flag_field(record, "answer", where, HINT) else "no",)
    return Question(
        text=text_field(record, "question", where, hint=HINT),
        id=text_field(record, "qid", where, hint=HINT),
        answers=answers,
        gold_ids=gold,
        gold_titles=tuple(dict.fromkeys(name.rpartition("-")[0] for name in gold)),
        extra=extra,
    )


def _evidence(record: dict[str, Json], where: str) -> tuple[str, ...]:
    """Ids of all paragraphs that an annotator named, each once."""
    annotators = record.get("evidence")
    if annotators is None:
        return ()
    found: list[str] = []
    match annotators:
        case [*steps] if all(isinstance(each, list) for each in steps):
            chosen = [item for each in steps if isinstance(each, list) for item in each]
        case _:
            chosen = [None]
    for step in chosen:
        if not isinstance(step, list):
            raise BadInput(
                f"{where}: 'evidence' must hold a list per annotator, of a list per step. {HINT}"
            )
        for item in step:
            if isinstance(item, list):  # else "operation" or "no_evidence"
                found += [str(name) for name in item]
    return tuple(dict.fromkeys(found))


def paragraphs(paths: Sequence[Path]) -> Iterator[Passage]:
    """The annotated paragraphs.

    Args:
        paths: strategyqa_train_paragraphs.json, alone.
    """
    [path] = paths
    for where, name, record in object_entries(path, HINT):
        if not isinstance(record, dict):
            raise BadInput(f"{where}: {name!r} must be an object. {HINT}")
        yield Passage(
            name,
            text_field(record, "title", where, hint=HINT),
            text_field(record, "content", where, hint=HINT),
        )


STRATEGYQA = Dataset(
    name=NAME,
    title="StrategyQA",
    home="https://allenai.org/data/strategyqa",
    licence="MIT",
    citation="Geva et al., Did Aristotle Use a Laptop? A Question Answering Benchmark with "
    "Implicit Reasoning Strategies, TACL 2021",
    files=(
        Published(
            "strategyqa_dataset.zip",
            "https://storage.googleapis.com/ai2i/strategyqa/data/strategyqa_dataset.zip",
            None,
            "4911d85eb6721a93bed7645419df77e721808b32b9785dee14ad80e6249e0a90",
            (
                "strategyqa_train.json",
                "strategyqa_train_filtered.json",
                "strategyqa_test.json",
                PARAGRAPHS,
            ),
        ),
    ),
    splits=(
        Split("train", "strategyqa_train.json", 2_290),
        Split("train_filtered", "strategyqa_train_filtered.json", 2_821),
        Split("test", "strategyqa_test.json", 490, answers=False),
    ),
    read=questions,
    corpus=Corpus((PARAGRAPHS,), paragraphs, 9_251, "The annotated evidence of train, no more."),
)
