"""From scores of questions to figures of a table, and the choice of hyper-parameters.

Two kinds of spread, never to be mixed up: the standard error over a run's questions, and the
standard deviation over runs with different sets of demonstrations, which the paper reports.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from multihop.errors import BadInput

Rule = Literal["paper", "official"]
"""Whose rule: the paper's text, or its released code."""

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over questions.

    Attributes:
        value: The mean; None over nothing.
        error: Its standard error, from the sample's standard deviation (n - 1); None for
            fewer than two questions.
        n: How many questions were scored.
        unscored: How many were left out because they have no score.
    """

    value: float | None
    error: float | None
    n: int
    unscored: int = 0


def mean(scores: Iterable[float | None]) -> Mean:
    """Mean and standard error over questions; None means no score and is counted apart."""
    every = list(scores)
    known = [s for s in every if s is not None]
    n, unscored = len(known), len(every) - len(known)
    if not known:
        return Mean(None, None, 0, unscored)
    spread = _deviation(known)
    return Mean(
        math.fsum(known) / n, None if spread is None else spread / math.sqrt(n), n, unscored
    )


@dataclass(frozen=True, slots=True)
class OverSets:
    """Percent figures of the same setting with different sets of demonstrations.

    Attributes:
        values: One a set, rounded to 0.1; None where the run is missing.
        mean: Of the rounded values, rounded to 0.1; None when one is missing.
        std: Their sample standard deviation (n - 1), rounded to 0.1; None too for one set.
    """

    values: tuple[float | None, ...]
    mean: float | None
    std: float | None

    @property
    def line(self) -> str:
        """As the release prints it: "72.8 | 0.3", or "** n/a **"."""
        if self.mean is None or self.std is None:
            return "** n/a **"
        return f"{self.mean} | {self.std}"


def over_sets(shares: Sequence[float | None]) -> OverSets:
    """Mean and standard deviation over sets of demonstrations, as in the paper's tables.

    Args:
        shares: One value in [0, 1] a set; None where the run is missing.

    Source: the paper's mean and standard deviation (section 4); rounding before averaging as
    in its release.
    """
    values = tuple(None if s is None else round(100 * s, 1) for s in shares)
    known = [v for v in values if v is not None]
    if not known or len(known) < len(values):
        return OverSets(values, None, None)
    spread = _deviation(known)
    return OverSets(
        values,
        round(math.fsum(known) / len(known), 1),
        None if spread is None else round(spread, 1),
    )


def criterion(scored: Literal["passages", "answer"], rule: Rule) -> str:
    """The number by which the best setting is chosen on dev.

    Answers: the release's own (DROP) F1. Passages: the paper chooses and reports paragraph
    recall; the released code chooses by title recall, though it reports paragraph recall.
    Name the criterion wherever the result is shown.
    """
    if scored == "answer":
        return "f1"
    return "para_recall" if rule == "paper" else "title_recall"


def reported(scored: Literal["passages", "answer"]) -> str:
    """The number that the tables give: F1 of answers, paragraph recall of retrieval."""
    return "f1" if scored == "answer" else "para_recall"


def best(settings: Sequence[S], shares: Sequence[float | None], rule: Rule) -> tuple[S, float]:
    """The setting with the highest value on dev.

    Args:
        settings: In grid order: small K first, then small M. The first of equals wins.
        shares: Its value of the criterion in [0, 1], for each.
        rule: "official" compares percent rounded to 0.1, "paper" the values themselves.

    Returns:
        The setting and its value in percent (rounded to 0.1 for "official").

    Raises:
        BadInput: A setting has no value yet, or there are none.
    """
    values = []
    for setting, share in zip(settings, shares, strict=True):
        if share is None:
            raise BadInput(
                f"The best setting cannot be told: {setting} has no result yet. Run it first."
            )
        values.append(round(100 * share, 1) if rule == "official" else 100 * share)
    if not values:
        raise BadInput("The best setting cannot be told: the grid is empty.")
    top = max(values)
    return settings[values.index(top)], top


def _deviation(values: Sequence[float]) -> float | None:
    """The sample's standard deviation (n - 1); None for fewer than two values."""
    if len(values) < 2:
        return None
    middle = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1))
