"""2WikiMultihopQA (Ho et al., COLING 2020): questions made of Wikidata's relations.

    file             questions
    train.json       167,454
    dev.json          12,576
    test.json         12,576   neither answers nor supporting facts nor evidences
    id_aliases.json            other names of answers, by Wikidata id; JSON lines

All four are in one archive, `data_ids.zip` of December 2020, which IRCoT used. The authors offer
two more: the first `data.zip` without `answer_id`, and `data_ids_april7.zip` of 2021 with other
sentence borders; both are read too. Page: https://github.com/Alab-NII/2wikimultihop. Licence:
Apache-2.0, that of the repository. Counts are those of the paper; the archive's hash is as a
project that downloaded it publishes it.

A question file is one JSON array in HotpotQA's format, with `type` (comparison, inference,
compositional, bridge_comparison), `entity_ids`, `evidences` (triples), and in later archives
`evidences_id` and `answer_id`.

Quirks:
- Sentences have no blank before them: a paragraph is its sentences joined by one.
- The official script also accepts the aliases and demonyms that id_aliases.json gives for a
  question's `answer_id`. They are accepted here where that file lies beside the question file.
- The corpus is all contexts of all three splits, each pair of title and text once. A passage is
  named by a hash of the two, so that a question's gold ids name passages of the corpus.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from multihop.datasets.arrays import array_records
from multihop.datasets.base import Corpus, Dataset, Published, Split
from multihop.datasets.fields import (
    any_list,
    facts_field,
    list_field,
    paragraphs_field,
    text_field,
)
from multihop.datasets.instances import Context, Instance
from multihop.datasets.lines import records
from multihop.datasets.union import named, union
from multihop.text import Json, Passage, Question

NAME = "2wikimultihopqa"
HINT = (
    "2WikiMultihopQA's own files are at https://github.com/Alab-NII/2wikimultihop; or run: "
    "multihop data get 2wikimultihopqa."
)
ALIASES = "id_aliases.json"


def instances(path: Path) -> Iterator[Instance]:
    """The questions of a file with their contexts; aliases of answers from the file beside it."""
    aliases = _aliases(path.parent / ALIASES)
    for where, record in array_records(path, HINT):
        yield _instance(record, where, aliases)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file."""
    return (instance.to_question() for instance in instances(path))


def _aliases(path: Path) -> dict[str, tuple[str, ...]]:
    if not path.is_file():
        return {}
    return {
        text_field(record, "Q_id", where, hint=HINT): tuple(
            dict.fromkeys(
                (
                    *list_field(record, "aliases", where, HINT),
                    *list_field(record, "demonyms", where, HINT),
                )
            )
        )
        for where, record in records(path, HINT)
    }


def _instance(
    record: dict[str, Json], where: str, aliases: Mapping[str, tuple[str, ...]]
) -> Instance:
    labelled = bool(record.get("answer") or record.get("supporting_facts"))
    facts = facts_field(record, "supporting_facts", where, HINT) if labelled else []
    gold = {title for title, _ in facts}
    contexts = tuple(
        Context(
            title.strip(),
            " ".join(sentences).strip(),
            title in gold,
            named(title, " ".join(sentences)),
        )
        for title, sentences in paragraphs_field(record, "context", where, HINT)
    )
    extra: dict[str, Json] = {}
    if labelled:
        extra["supporting_facts"] = [[title, sentence] for title, sentence in facts]
        extra["evidences"] = any_list(record, "evidences", where, HINT)
    more = ("evidences_id", "answer_id", "entity_ids")
    extra |= {name: record[name] for name in more if record.get(name)}
    there = {context.title for context in contexts}
    missing = any(title.strip() not in there for title in gold)
    return Instance(
        id=text_field(record, "_id", where, hint=HINT),
        question=text_field(record, "question", where, hint=HINT),
        answer=(text_field(record, "answer", where, hint=HINT),) if labelled else (),
        contexts=contexts,
        pinned=(),
        valid_titles=None,
        metadata={"type": text_field(record, "type", where, hint=HINT)},
        dataset=NAME,
        aliases=aliases.get(str(record.get("answer_id")), ()) if labelled else (),
        gold_titles=tuple(dict.fromkeys(title for title, _ in facts)) if missing else (),
        extra=extra,
    )


def corpus(paths: Sequence[Path]) -> Iterator[Passage]:
    """All contexts of the question files, each once."""
    return union(
        (title, " ".join(sentences))
        for path in paths
        for where, record in array_records(path, HINT)
        for title, sentences in paragraphs_field(record, "context", where, HINT)
    )


TWO_WIKI = Dataset(
    name=NAME,
    title="2WikiMultihopQA",
    home="https://github.com/Alab-NII/2wikimultihop",
    licence="Apache-2.0",
    citation="Ho et al., Constructing A Multi-hop QA Dataset for Comprehensive Evaluation of "
    "Reasoning Steps, COLING 2020",
    files=(
        Published(
            "data_ids.zip",
            "https://www.dropbox.com/s/7ep3h8unu2njfxv/data_ids.zip?dl=1",
            None,
            "664013d34f169ed5223aedde0c8f013ac6be9568426966319240f722867c5b2d",
            ("train.json", "dev.json", "test.json", ALIASES),
        ),
    ),
    splits=(
        Split("train", "train.json", 167_454),
        Split("dev", "dev.json", 12_576),
        Split("test", "test.json", 12_576, answers=False),
    ),
    read=questions,
    instances=instances,
    corpus=Corpus(
        ("train.json", "dev.json", "test.json"),
        corpus,
        430_225,
        "All contexts of train, dev and test, each once.",
    ),
)
