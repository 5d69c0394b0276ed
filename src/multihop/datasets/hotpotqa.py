"""HotpotQA (Yang et al., EMNLP 2018): questions that two Wikipedia introductions answer.

    file                            bytes            questions
    hotpot_train_v1.1.json            566,426,227    90,447
    hotpot_dev_distractor_v1.json      46,320,117     7,405   8 distractors beside the 2 gold ones
    hotpot_dev_fullwiki_v1.json        47,454,698     7,405   the same; contexts are 10 found ones
    hotpot_test_fullwiki_v1.json       46,213,747     7,405   neither answers nor supporting facts
    enwiki-20171001-pages-meta-current-withlinks-abstracts.tar.bz2
                                    1,553,565,403             the corpus: 5,233,329 introductions

Page: https://hotpotqa.github.io. Licence: CC BY-SA 4.0, says the authors' README. Sizes, hashes
and counts of the question files are those that huggingface/datasets pinned for `hotpot_qa`, the
corpus's count is of the README of IRCoT's release, its size and hash are as two projects that
downloaded it publish them. The two servers are slow and at times away.

A question file is one JSON array:

    _id, question, answer, type (bridge, comparison), level (easy, medium, hard)
    context            [[title, [sentence, ...]], ...]
    supporting_facts   [[title, sentence number from 0], ...]

Quirks:
- Sentences after the first begin with their blank: a paragraph is its sentences joined by
  nothing. In the dump's files they are stripped and joined by a blank, as IRCoT's release does;
  `metrics.pid` does not see the difference.
- A paragraph text that stands under two titles of one question counts once, under the last one,
  and a title that stands twice means its last paragraph, as in IRCoT's processing.
- Some titles hold HTML entities, as `&quot;`; they are left as published.
- In the fullwiki setting gold paragraphs may be missing among the contexts; then the question
  has gold titles only.
- The dump is a tar of 15,517 bz2 files of JSON lines. Some of its titles name several pages, so
  that a passage is named by its page id.
"""

import bz2
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from multihop.datasets.arrays import array_records
from multihop.datasets.base import Corpus, Dataset, Published, Split
from multihop.datasets.fields import (
    facts_field,
    list_field,
    needed,
    paragraphs_field,
    text_field,
)
from multihop.datasets.instances import Context, Instance
from multihop.errors import BadInput
from multihop.text import Json, Passage, Question, json_object

NAME = "hotpotqa"
HINT = "HotpotQA's own files are at https://hotpotqa.github.io; or run: multihop data get hotpotqa."
ABSTRACTS = "enwiki-20171001-pages-meta-current-withlinks-abstracts.tar.bz2"
MAX_WORDS = 1000
"""Pieces between single blanks that a paragraph is cut to, as in IRCoT's processing."""

_SERVER = "http://curtis.ml.cmu.edu/datasets/hotpot/"


def instances(path: Path) -> Iterator[Instance]:
    """The questions of a file with their contexts."""
    for where, record in array_records(path, HINT):
        yield _instance(record, where)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file."""
    return (instance.to_question() for instance in instances(path))


def _instance(record: dict[str, Json], where: str) -> Instance:
    if "evidences" in record:
        raise BadInput(
            f"{where}: 'evidences' is a field of 2WikiMultihopQA. If that is what the file holds, "
            "write 2wikimultihopqa:PATH."
        )
    paragraphs = paragraphs_field(record, "context", where, HINT)
    texts = {title: "".join(sentences) for title, sentences in paragraphs}
    titles = {"".join(sentences): title for title, sentences in paragraphs}
    labelled = bool(record.get("answer") or record.get("supporting_facts"))
    facts = facts_field(record, "supporting_facts", where, HINT) if labelled else []
    gold = {texts[title] for title, _ in facts if title in texts}
    wanted = dict.fromkeys(title for title, _ in facts)
    extra: dict[str, Json] = {}
    if labelled:
        extra["supporting_facts"] = [[title, sentence] for title, sentence in facts]
    return Instance(
        id=text_field(record, "_id", where, hint=HINT),
        question=text_field(record, "question", where, hint=HINT),
        answer=(text_field(record, "answer", where, hint=HINT),) if labelled else (),
        contexts=tuple(
            Context(title.strip(), _cut(text.strip()), text in gold)
            for text, title in titles.items()
        ),
        pinned=(),
        valid_titles=None,
        metadata={
            name: text_field(record, name, where, None if labelled else "", HINT) or None
            for name in ("level", "type")
        },
        dataset=NAME,
        gold_titles=() if wanted.keys() <= texts.keys() else tuple(wanted),
        extra=extra,
    )


def _cut(text: str) -> str:
    return " ".join(text.split(" ")[:MAX_WORDS])


def abstracts(paths: Sequence[Path]) -> Iterator[Passage]:
    """The introductions of the dump, in its order; read without unpacking it.

    Args:
        paths: The .tar.bz2 file, alone.

    Raises:
        BadInput: It is damaged or cut short, or holds something else.
    """
    [path] = paths
    found = 0
    try:
        with tarfile.open(path, "r|bz2") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith(".bz2") else None
                if file is None:
                    continue
                with bz2.open(file) as lines:
                    for number, line in enumerate(lines, 1):
                        found += 1
                        yield _abstract(line, f"{path}: {member.name}:{number}")
    except OSError as broken:
        raise BadInput(f"{path}: cannot be read ({broken.strerror or broken}). {HINT}") from None
    except (EOFError, tarfile.TarError) as broken:
        raise BadInput(
            f"{path}: cut short or damaged after {found} pages ({broken}). {HINT}"
        ) from None
    if not found:
        raise BadInput(f"{path}: no .bz2 files of pages in it. {HINT}")


def _abstract(line: bytes, where: str) -> Passage:
    try:
        text = line.decode()
    except UnicodeDecodeError as broken:
        raise BadInput(f"{where}: not UTF-8 at byte {broken.start} of the line. {HINT}") from None
    record = json_object(text, where, HINT)
    name = needed(record, "id", where, HINT)
    needed(record, "text", where, HINT)
    return Passage(
        str(name) if isinstance(name, int) else text_field(record, "id", where, hint=HINT),
        text_field(record, "title", where, hint=HINT),
        " ".join(sentence.strip() for sentence in list_field(record, "text", where, HINT)),
    )


HOTPOTQA = Dataset(
    name=NAME,
    title="HotpotQA",
    home="https://hotpotqa.github.io",
    licence="CC BY-SA 4.0",
    citation="Yang et al., HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question "
    "Answering, EMNLP 2018",
    files=(
        Published(
            "hotpot_train_v1.1.json",
            f"{_SERVER}hotpot_train_v1.1.json",
            566_426_227,
            "26650cf50234ef5fb2e664ed70bbecdfd87815e6bffc257e068efea5cf7cd316",
        ),
        Published(
            "hotpot_dev_distractor_v1.json",
            f"{_SERVER}hotpot_dev_distractor_v1.json",
            46_320_117,
            "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
        ),
        Published(
            "hotpot_dev_fullwiki_v1.json",
            f"{_SERVER}hotpot_dev_fullwiki_v1.json",
            47_454_698,
            "2f1f3e594a3066a3084cc57950ca2713c24712adaad03af6ccce18d1846d5618",
        ),
        Published(
            "hotpot_test_fullwiki_v1.json",
            f"{_SERVER}hotpot_test_fullwiki_v1.json",
            46_213_747,
            "c61a5274b9aa6deca3f7d2dc4d7757684c158fbd2264f759307699fb53801c2b",
        ),
        Published(
            ABSTRACTS,
            f"https://nlp.stanford.edu/projects/hotpotqa/{ABSTRACTS}",
            1_553_565_403,
            "1acca1c5cc93c4890ea51091d2bad7c3ef6987aead127ab88728dc9e26555729",
        ),
    ),
    splits=(
        Split("train", "hotpot_train_v1.1.json", 90_447),
        Split("dev", "hotpot_dev_distractor_v1.json", 7_405),
        Split("dev_fullwiki", "hotpot_dev_fullwiki_v1.json", 7_405),
        Split("test_fullwiki", "hotpot_test_fullwiki_v1.json", 7_405, answers=False),
    ),
    read=questions,
    instances=instances,
    corpus=Corpus(
        (ABSTRACTS,),
        abstracts,
        5_233_329,
        "The introductions of all Wikipedia pages of 1 October 2017.",
    ),
)
