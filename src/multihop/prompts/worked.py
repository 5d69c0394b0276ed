"""Worked questions: our demonstrations as data, of which each strategy writes its own format."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from multihop.prompts.demonstrations import Demonstration
from multihop.prompts.layout import paragraph, unfinished
from multihop.text import Passage


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop.

    Attributes:
        question: What it asks, named in full.
        answer: What is read for it.
        sentence: The same as a sentence of a chain.
        passage: Where it stands.
    """

    question: str
    answer: str
    sentence: str
    passage: Passage


@dataclass(frozen=True, slots=True)
class Worked:
    """A question with all its hops.

    Attributes:
        qid: Names it.
        question: What is asked.
        answer: The answer.
        hops: In order.
        passages: Those of the hops and some without use, as they are shown.
    """

    qid: str
    question: str
    answer: str
    hops: tuple[Hop, ...]
    passages: tuple[Passage, ...]

    @property
    def distractors(self) -> tuple[Passage, ...]:
        """The passages without use, as they are shown."""
        used = {hop.passage.id for hop in self.hops}
        return tuple(passage for passage in self.passages if passage.id not in used)

    def shown(self, hop: Hop) -> tuple[Passage, ...]:
        """The passages that a search for one hop may bring: its own and those without use."""
        ids = {hop.passage.id, *(passage.id for passage in self.distractors)}
        return tuple(passage for passage in self.passages if passage.id in ids)


@cache
def own_worked() -> tuple[Worked, ...]:
    """Our worked questions, over our own passages."""
    corpus = {
        row["id"]: Passage(row["id"], row["title"], row["text"]) for row in _rows("corpus.jsonl")
    }
    return tuple(
        Worked(
            row["qid"],
            row["question"],
            row["answer"],
            tuple(
                Hop(hop["question"], hop["answer"], sentence, corpus[name])
                for hop, sentence, name in zip(
                    row["hops"], row["chain"], row["gold_ids"], strict=True
                )
            ),
            tuple(corpus[name] for name in row["order"]),
        )
        for row in _rows("demonstrations.jsonl")
    )


def single_hops(
    worked: Sequence[Worked], words: int, *, listed: bool = False
) -> tuple[Demonstration, ...]:
    """A demonstration of a smaller question from each: hops of all places come up in turn.

    Args:
        worked: Whole questions.
        words: Words of a passage that are shown.
        listed: The answer is a JSON list, as DecomP's readers write it.
    """
    found = []
    for number, example in enumerate(worked):
        hop = example.hops[number % len(example.hops)]
        shown = [paragraph(p.title, p.text, words) for p in example.shown(hop)]
        asked = unfinished(hop.question, shown)
        answer = json.dumps([hop.answer], ensure_ascii=False) if listed else hop.answer
        found.append(Demonstration(asked + answer, {"qid": example.qid}))
    return tuple(found)


def _rows(name: str) -> list[dict[str, Any]]:
    text = files("multihop.data").joinpath(name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
