"""MuSiQue (Trivedi et al., TACL 2022): questions composed of two to four single-hop ones.

    file                          questions
    musique_ans_v1.0_train.jsonl  19,938
    musique_ans_v1.0_dev.jsonl     2,417
    musique_ans_v1.0_test.jsonl    2,459   without labels
    musique_full_v1.0_train.jsonl 39,876   each question twice: answerable, and not
    musique_full_v1.0_dev.jsonl    4,834
    musique_full_v1.0_test.jsonl   4,918   without labels

All are in one archive on Google Drive, `musique_v1.0.zip`. Page:
https://github.com/StonyBrookNLP/musique. Licence: CC BY 4.0, says its README. Counts are those of
the paper; the archive's hash is as a project that downloaded it publishes it.

One question a line:

    id                      "3hop1__a_b_c": its shape, and the ids of its single-hop questions
    question, answer, answer_aliases, answerable
    paragraphs              [{"idx", "title", "paragraph_text", "is_supporting"}], 20 of them
    question_decomposition  [{"id", "question", "answer", "paragraph_support_idx"}], in hop order;
                            "#1" in a question is the answer of the first

Quirks:
- In the full files an unanswerable question lacks a supporting paragraph, has the id of its
  answerable twin and keeps the twin's answer. Here its id ends in "/unanswerable", it has no
  accepted answer and no gold, and that answer is its field `twin_answer`.
- `hop_ids` are the gold passages in hop order; `gold_ids` are in the order of the paragraphs.
- Several paragraphs bear one title: a title names no paragraph.
- The corpus is all paragraphs of all six files, each pair of title and text once; passages are
  named by a hash of the two, which a question's gold ids name.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from multihop.datasets.base import Corpus, Dataset, Published, Split
from multihop.datasets.fields import flag_field, list_field, objects_field, text_field
from multihop.datasets.instances import Context, Instance
from multihop.datasets.lines import records
from multihop.datasets.union import named, union
from multihop.text import Json, Passage, Question

NAME = "musique"
HINT = (
    "MuSiQue's own files are at https://github.com/StonyBrookNLP/musique; or run: multihop data "
    "get musique."
)

_FILES = tuple(
    f"musique_{form}_v1.0_{split}.jsonl"
    for form in ("ans", "full")
    for split in ("dev", "test", "train")
)
"""In the order in which IRCoT's release reads them for the corpus."""


def instances(path: Path) -> Iterator[Instance]:
    """The questions of a file with their contexts."""
    for where, record in records(path, HINT):
        yield _instance(record, where)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file."""
    return (instance.to_question() for instance in instances(path))


def _instance(record: dict[str, Json], where: str) -> Instance:
    name = text_field(record, "id", where, hint=HINT)
    paragraphs = objects_field(record, "paragraphs", where, HINT)
    labels = ("answer", "answerable", "question_decomposition")
    labelled = any(label in record for label in labels)
    answerable = labelled and flag_field(record, "answerable", where, HINT)
    extra: dict[str, Json] = {}
    if labelled:
        extra["answerable"] = answerable
        extra["decomposition"] = [
            *objects_field(record, "question_decomposition", where, HINT),
        ]
        answer = text_field(record, "answer", where, hint=HINT)
        if not answerable:
            extra["twin_answer"] = answer
    contexts = []
    for paragraph in paragraphs:
        inside = f"{where}: in 'paragraphs'"
        title, text = (
            text_field(paragraph, part, inside, hint=HINT) for part in ("title", "paragraph_text")
        )
        supporting = labelled and flag_field(paragraph, "is_supporting", inside, HINT)
        contexts.append(
            Context(title.strip(), text.strip(), supporting and answerable, named(title, text))
        )
    if answerable:
        extra["hop_ids"] = [*_hops(record, contexts)]
    return Instance(
        id=name if answerable or not labelled else f"{name}/unanswerable",
        question=text_field(record, "question", where, hint=HINT),
        answer=(answer,) if answerable else (),
        contexts=tuple(contexts),
        pinned=(),
        valid_titles=None,
        metadata={"type": name.partition("__")[0]},
        dataset=NAME,
        aliases=list_field(record, "answer_aliases", where, HINT) if answerable else (),
        extra=extra,
    )


def _hops(record: dict[str, Json], contexts: Sequence[Context]) -> Iterator[str | None]:
    """The id of each hop's paragraph, in hop order; None where the file does not say."""
    for step in objects_field(record, "question_decomposition", ""):
        at = step.get("paragraph_support_idx")
        yield contexts[at].id if isinstance(at, int) and 0 <= at < len(contexts) else None


def corpus(paths: Sequence[Path]) -> Iterator[Passage]:
    """All paragraphs of the question files, each once."""
    return union(
        (
            text_field(paragraph, "title", where, hint=HINT),
            text_field(paragraph, "paragraph_text", where, hint=HINT),
        )
        for path in paths
        for where, record in records(path, HINT)
        for paragraph in objects_field(record, "paragraphs", where, HINT)
    )


MUSIQUE = Dataset(
    name=NAME,
    title="MuSiQue",
    home="https://github.com/StonyBrookNLP/musique",
    licence="CC BY 4.0",
    citation="Trivedi et al., MuSiQue: Multihop Questions via Single-hop Question Composition, "
    "TACL 2022",
    files=(
        Published(
            "musique_v1.0.zip",
            "https://drive.usercontent.google.com/download"
            "?id=1tGdADlNjWFaHLeZZGShh2IRcpO6Lv24h&export=download&confirm=t",
            None,
            "98f839bf2fd5319f5c688aed77901a6d5c30b3b9f9f691ab9a8ecafb045ee0cd",
            _FILES,
        ),
    ),
    splits=(
        Split("train", "musique_ans_v1.0_train.jsonl", 19_938),
        Split("dev", "musique_ans_v1.0_dev.jsonl", 2_417),
        Split("test", "musique_ans_v1.0_test.jsonl", 2_459, answers=False),
        Split("full_train", "musique_full_v1.0_train.jsonl", 39_876),
        Split("full_dev", "musique_full_v1.0_dev.jsonl", 4_834),
        Split("full_test", "musique_full_v1.0_test.jsonl", 4_918, answers=False),
    ),
    read=questions,
    instances=instances,
    corpus=Corpus(
        _FILES, corpus, 139_416, "All paragraphs of the answerable and the full files, each once."
    ),
)
