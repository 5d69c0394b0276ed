"""What a metric is, and the four numbers most of them give."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from multihop.trace import Trace

Metric = Callable[[Trace], float | None]
"""Scores one trace, gold answers and passages taken from `trace.question`.

None means that the trace cannot be scored (no gold, the run failed, a count the backend does
not tell): it is left out of means and counted apart, never taken for 0. Evaluation and
training score the same object, so a reward is a metric.
"""


@dataclass(frozen=True, slots=True)
class Score:
    """How one prediction compares with the gold, each in [0, 1].

    Attributes:
        em: Exact match, 0 or 1.
        f1: Harmonic mean of precision and recall.
        precision: Share of the prediction that is gold.
        recall: Share of the gold that was predicted.
    """

    em: float
    f1: float
    precision: float
    recall: float


def best_of_each(scores: Iterable[Score]) -> Score:
    """The highest value of each number alone; they may come from different scores.

    Raises:
        ValueError: There is no score: a question without gold answers cannot be scored.
    """
    every = list(scores)
    if not every:
        raise ValueError("There is nothing to compare with: the list of gold answers is empty.")
    return Score(
        em=max(s.em for s in every),
        f1=max(s.f1 for s in every),
        precision=max(s.precision for s in every),
        recall=max(s.recall for s in every),
    )


def harmonic(precision: float, recall: float) -> float:
    """F1 of precision and recall; 0 when both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
