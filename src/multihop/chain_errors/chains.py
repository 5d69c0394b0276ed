"""Which chains are checked, sentence by sentence, and against which passages.

Strategies are compared on the same questions and against the same passages: those that any of
the runs collected for the question (`pooled`). Else a strategy that never searches would be
wrong in every sentence, and one that searches little more often wrong than it is.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from multihop import evaluation, runs
from multihop.errors import BadInput
from multihop.metrics.support import collected_passages
from multihop.prompts.answers import stated
from multihop.prompts.sentences import light
from multihop.text import Passage
from multihop.trace import Trace

Source = Literal["auto", "loop", "reader"]
"""Which chain of a run: the loop's sentences, what the reader wrote, or (`auto`) the loop's
where the run has one and else the reader's. The paper marked what the readers wrote."""

Evidence = Literal["pooled", "own"]
"""Whose passages a sentence is checked against: of all runs compared, or of its own run."""

_NEED = re.compile(r"(?:^It is needed to know\b|\bis needed\.$)")
"""How the loops that we train name what is to be found next."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a chain.

    Attributes:
        number: Its place in the chain, from 1.
        text: As it was written, stripped.
        claims: Whether it states a fact: it has a letter or digit and does not merely name what
            is needed next.
    """

    number: int
    text: str
    claims: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain and what it is checked against.

    Attributes:
        run: The run folder's name, or its path where two folders share one name.
        strategy: Who wrote it.
        question_id: The question's id.
        question: Its text.
        sentences: In order, up to the one that states the answer, which is left out: the paper
            counts the sentences before it.
        passages: The evidence, each passage once.
    """

    run: str
    strategy: str
    question_id: str
    question: str
    sentences: tuple[Sentence, ...]
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chains to check.

    Attributes:
        chains: Question by question, within one in the order of the runs.
        questions: How many questions they are of.
        left_out: Questions that not every run has finished, and are therefore not compared.
    """

    chains: tuple[Chain, ...]
    questions: int
    left_out: int


def choose(
    folders: Sequence[Path],
    *,
    source: Source = "auto",
    evidence: Evidence = "pooled",
    sample: int | None = None,
    seed: int = 0,
    only: Iterable[str] | None = None,
) -> Chosen:
    """Take the chains out of run folders, for the questions that all of them finished.

    Args:
        folders: Runs over the same questions.
        source: Which chain of a run.
        evidence: Which passages. Gold passages that a question brings with their text (its
            field `gold_paragraphs`) and its pinned passage are always among them.
        sample: How many questions, drawn at random; None for all.
        seed: Of the draw; the same questions for the same runs.
        only: Ids of the questions to take instead of a draw.

    Raises:
        BadInput: Not a run folder, one has no chain of this source, or no question is
            finished in all of them.
    """
    names = _names(folders)
    finished = [
        {t.question.id: t for t in evaluation.finished(folder) if not t.error and t.answer}
        for folder in folders
    ]
    every = dict.fromkeys(name for found in finished for name in found)
    shared = [name for name in every if all(name in found for found in finished)]
    if not shared:
        raise BadInput(
            f"No question is finished in all of {', '.join(names)}. Compare runs over the same "
            "questions."
        )
    left_out = len(every) - len(shared)
    if only is not None:
        wanted = set(only)
        if missing := sorted(wanted - set(shared)):
            raise BadInput(
                f"Question {missing[0]!r} is not finished in all of {', '.join(names)} "
                f"({len(missing)} such). Name the runs that the file was made of."
            )
        shared = [name for name in shared if name in wanted]
    elif sample is not None and sample < len(shared):
        drawn = set(random.Random(seed).sample(sorted(shared), sample))  # noqa: S311 - statistics
        shared = [name for name in shared if name in drawn]
    chains = []
    for name in shared:
        traces = [found[name] for found in finished]
        own = [_passages(trace) for trace in traces]
        pool = _unique(passage for passages in own for passage in passages)
        for run, trace, passages in zip(names, traces, own, strict=True):
            chains.append(
                Chain(
                    run,
                    trace.strategy,
                    name,
                    trace.question.text,
                    sentences_of(trace, source),
                    pool if evidence == "pooled" else _unique(passages),
                )
            )
    for run in names:
        if not any(chain.sentences for chain in chains if chain.run == run):
            raise BadInput(
                f"{run}: no chain has a sentence to check ({_WHERE[source]}). Run the strategy "
                "with --reader cot, or choose another chain with --chain."
            )
    return Chosen(tuple(chains), len(shared), left_out)


_WHERE: Mapping[Source, str] = {
    "auto": "it has no loop, and its reader writes bare answers",
    "loop": "it has no loop",
    "reader": "its reader writes bare answers, or it has none",
}


def sentences_of(trace: Trace, source: Source = "auto") -> tuple[Sentence, ...]:
    """The sentences of a trace's chain before the one that states the answer."""
    written = [] if source == "reader" else [thought.text for thought in trace.thoughts]
    call = trace.answer.call if trace.answer else None
    if not written and source != "loop" and call and trace.settings.get("reader") == "cot":
        written = light(call.outputs[0])
    found: list[Sentence] = []
    for text in (text.strip() for text in written):
        if stated(text) is not None:
            break
        if text:
            claims = any(c.isalnum() for c in text) and not _NEED.search(text)
            found.append(Sentence(len(found) + 1, text, claims))
    return tuple(found)


def _passages(trace: Trace) -> list[Passage]:
    found = list(collected_passages(trace))
    if trace.question.pinned:
        found.append(trace.question.pinned)
    gold = trace.question.extra.get("gold_paragraphs")
    for number, item in enumerate(gold if isinstance(gold, list) else (), 1):
        if isinstance(item, dict):
            title, text = str(item.get("title", "")), str(item.get("text", ""))
            found.append(Passage(f"{trace.question.id}/gold-{number}", title, text))
    return found


def _unique(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    return tuple({(p.title, p.text): p for p in passages}.values())


def _names(folders: Sequence[Path]) -> list[str]:
    for folder in folders:
        runs.manifest(folder)
    short = [folder.resolve().name for folder in folders]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise BadInput("A run is named twice. Name each once.")
    return [
        name if short.count(name) == 1 else str(folder)
        for name, folder in zip(short, folders, strict=True)
    ]
