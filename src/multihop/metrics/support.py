"""Retrieval scored against the annotated supporting passages."""

import hashlib
import re
from collections.abc import Collection, Sequence

from multihop.errors import BadInput
from multihop.metrics.answer import normalize, repair_unicode
from multihop.metrics.base import Score, harmonic
from multihop.text import Passage
from multihop.trace import Titles, Trace


def support(found: Collection[str], gold: Collection[str]) -> Score:
    """Set EM, F1, precision and recall of what was found, compared as they are.

    Nothing found where nothing is gold: EM and F1 are 1, precision and recall 0.

    Source: HotpotQA's supporting-fact metric (Yang et al., EMNLP 2018) with IRCoT's rule for
    two empty sets.
    """
    ours, theirs = set(found), set(gold)
    shared = len(ours & theirs)
    precision = shared / len(ours) if ours else 0.0
    recall = shared / len(theirs) if theirs else 0.0
    if not ours and not theirs:
        return Score(1.0, 1.0, precision, recall)
    return Score(float(ours == theirs), harmonic(precision, recall), precision, recall)


def recall_at(found: Sequence[str], gold: Collection[str], budget: int | None = None) -> float:
    """Share of the gold among the first `budget` found, in [0, 1].

    Args:
        found: What was found, in the order in which it was collected.
        gold: What should be found, at least one.
        budget: How many of `found` count; None for all. IRCoT's figure 3 has 15.

    Raises:
        ValueError: There is no gold.
    """
    theirs = set(gold)
    if not theirs:
        raise ValueError("There is nothing to recall: the list of gold passages is empty.")
    return len(theirs & set(found[:budget])) / len(theirs)


def answer_support_recall(passages: Sequence[str], answers: Sequence[str]) -> float:
    """Share of the gold answers that stand in a passage, in [0, 1].

    An answer stands in a text when it is a substring of it, both in lower case with single
    blanks, or both in SQuAD's normal form. Words are not looked at: "ace" stands in "place",
    and an answer of articles alone stands in every text.

    Args:
        passages: Titles and texts, each as one string.
        answers: At least one.

    Raises:
        ValueError: There is no answer.

    Source: the release of IRCoT, which has the metric but reports nothing with it.
    """
    if not answers:
        raise ValueError("There is nothing to look for: the list of gold answers is empty.")
    plain, normal = [_plain(p) for p in passages], [normalize(p) for p in passages]
    held = sum(
        any(_plain(answer) in text for text in plain)
        or any(normalize(answer) in text for text in normal)
        for answer in answers
    )
    return held / len(answers)


def pid(title: str, text: str) -> str:
    """The name under which IRCoT's release compares a paragraph: hashes of title and text.

    Case, blanks and everything outside ASCII do not count, nor does a first line that repeats
    the title. New lines and tabs within do.
    """
    title, text = repair_unicode(title.strip()), repair_unicode(text.strip())
    for label in ("Wikipedia Title: ", "Title: "):
        for end in ("\n", " \n"):
            heading = label + title + end
            if text.startswith(heading):
                # Later repeats of the heading go as well, as in the release.
                text = text.replace(heading, "").strip()
    return f"pid___{_hash(title)}___{_hash(text)}"


def collected_passages(trace: Trace) -> tuple[Passage, ...]:
    """The passages behind `trace.collected`, in order.

    Raises:
        BadInput: The trace collects a passage that no search of it brought.
    """
    known: dict[str, Passage] = {}
    if trace.question.pinned:
        known[trace.question.pinned.id] = trace.question.pinned
    for step in trace.steps:
        if isinstance(step, Titles):
            known |= {h.passage.id: h.passage for search in step.searches for h in search.hits}
    for search in trace.searches:
        known |= {hit.passage.id: hit.passage for hit in search.hits}
    for name in trace.collected:
        if name not in known:
            raise BadInput(
                f"Trace of question {trace.question.id!r}: passage {name!r} was collected but "
                "is in no search's hits. The strategy that wrote the trace is at fault."
            )
    return tuple(known[name] for name in trace.collected)


def _plain(text: str) -> str:
    return re.sub(" +", " ", text.lower().strip())


def _hash(text: str) -> str:
    kept = "".join(c for c in text if c.isascii() and c != " ").lower()
    return hashlib.md5(kept.encode(), usedforsecurity=False).hexdigest()
