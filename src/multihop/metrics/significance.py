"""Is A better than B? Paired tests on the scores of the same questions."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter


@dataclass(frozen=True, slots=True)
class Difference:
    """How far A is above B on the same questions.

    Attributes:
        mean: Mean of A's score less B's.
        low: Lower end of the confidence interval.
        high: Its upper end.
        p: Two-sided p-value of "no difference", in (0, 1].
        n: How many questions.
    """

    mean: float
    low: float
    high: float
    p: float
    n: int


def paired_bootstrap(
    a: Sequence[float],
    b: Sequence[float],
    *,
    samples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Bootstrap the mean difference over questions.

    The interval is the percentile interval. The p-value is the share of resampled means,
    moved to mean 0, at least as far from 0 as the one observed; one is added to both counts,
    so that it is never 0.

    Args:
        a: A's score for each question.
        b: B's score for the same questions, in the same order.
        samples: How many resamples; 10,000 take about a second for 500 questions.
        level: Of the confidence interval, in (0, 1).
        seed: The same seed gives the same figures.

    Raises:
        ValueError: Not as many scores on both sides, or none.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 13 and
    16; in NLP: Berg-Kirkpatrick et al., EMNLP 2012.
    """
    differences = [x - y for x, y in zip(a, b, strict=True)]
    return bootstrap([differences], samples=samples, level=level, seed=seed)[0]


def bootstrap(
    differences: Sequence[Sequence[float]],
    *,
    samples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Difference]:
    """`paired_bootstrap` of several comparisons, to the digit, for little more than one's time.

    What takes the time is drawing; comparisons of as many questions share their draws.

    Args:
        differences: For each comparison, A's score less B's, a number a question.
        samples: How many resamples.
        level: Of the confidence intervals.
        seed: The same seed gives the same figures.

    Raises:
        ValueError: A comparison has no question.
    """
    together: dict[int, list[int]] = {}
    for index, each in enumerate(differences):
        together.setdefault(len(each), []).append(index)
    if 0 in together:
        raise ValueError("There is no question to compare on.")
    means: list[list[float]] = [[] for _ in differences]
    for n, comparisons in together.items():
        draw = random.Random(seed).choices  # noqa: S311 - statistics, not secrets
        places = list(range(n))
        columns = [(differences[index], means[index]) for index in comparisons]
        for _ in range(samples):
            drawn = draw(places, k=n)
            take = itemgetter(*drawn) if n > 1 else _first
            for each, found in columns:
                found.append(sum(take(each)) / n)
    return [
        _difference(each, sorted(found), level)
        for each, found in zip(differences, means, strict=True)
    ]


def _first(each: Sequence[float]) -> Sequence[float]:
    return each[:1]


def _difference(differences: Sequence[float], means: Sequence[float], level: float) -> Difference:
    n, samples = len(differences), len(means)
    observed = math.fsum(differences) / n

    # A hair of slack: sums in another order differ in the last digits.
    far = abs(observed) - 1e-12
    extreme = sum(abs(m - observed) >= far for m in means)
    tail = (1 - level) / 2
    return Difference(
        mean=observed,
        low=means[min(int(tail * samples), samples - 1)],
        high=means[max(math.ceil((1 - tail) * samples) - 1, 0)],
        p=(extreme + 1) / (samples + 1),
        n=n,
    )


def mcnemar(a: Sequence[float], b: Sequence[float]) -> float:
    """Exact two-sided McNemar test of two yes-or-no scores (EM) on the same questions.

    Only the questions count where one is right and the other wrong; under "no difference"
    each of these is a coin toss.

    Args:
        a: A's score for each question, 0 or 1.
        b: B's, in the same order.

    Returns:
        The p-value, in (0, 1]; 1 when A and B never differ.

    Raises:
        ValueError: Not as many scores on both sides, or a score that is not 0 or 1.

    Source: McNemar, Psychometrika 12 (1947), with the binomial distribution in place of the
    chi-square.
    """
    pairs = list(zip(a, b, strict=True))
    odd = next((score for pair in pairs for score in pair if score not in (0, 1)), None)
    if odd is not None:
        raise ValueError(f"McNemar's test needs scores of 0 and 1, found {odd}.")
    only_a, only_b = pairs.count((1, 0)), pairs.count((0, 1))
    n, fewer = only_a + only_b, min(only_a, only_b)
    tail = term = 1  # of Pascal's row n; integers to the end, 2^n has no float for long
    for i in range(fewer):
        term = term * (n - i) // (i + 1)
        tail += term
    return min(1.0, 2 * tail / (1 << n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several comparisons, in the order given.

    Reject those at or below the level; the chance of any false rejection is then at most the
    level.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
