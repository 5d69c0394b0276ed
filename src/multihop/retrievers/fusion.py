"""Several rankings of one need made into one.

All functions take rankings, best hit first, and give one. A passage is known by its id; its
first place in a ranking counts; a ranking of weight 0 is as if it were not there. Equal fused
scores stand by the best place in any ranking, then by id, so that the order of the rankings
never matters.

Scores of different retrievers are not on one scale. `rrf` looks at places alone; the others add
scores that a `Normalise` function has brought onto one, and take a missing hit for 0.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from multihop.errors import BadInput
from multihop.text import Hit

Normalise = Callable[[Sequence[float]], list[float]]
"""One ranking's scores on a scale that others share; same length, same order."""


class Fuse(Protocol):
    """A way of fusing whose settings are made; what `Hybrid` and DSP take."""

    def __call__(
        self, rankings: Sequence[Sequence[Hit]], *, weights: Sequence[float] | None = None
    ) -> list[Hit]:
        """Fuse.

        Args:
            rankings: Best first.
            weights: One a ranking, finite and not below 0; None is 1 each.
        """
        ...


# --- One ranking's scores -------------------------------------------------------------------


def as_given(scores: Sequence[float]) -> list[float]:
    """The scores themselves: for rankings of one retriever."""
    return list(scores)


def minmax(scores: Sequence[float]) -> list[float]:
    """The best score becomes 1, the worst 0 (Lee, SIGIR 1997); 1 each where all are equal."""
    return least(min(scores, default=0.0))(scores)


def least(minimum: float) -> Normalise:
    """The best score becomes 1 and `minimum` 0; 1 each where none is above the minimum.

    The "theoretical minimum" of Bruch et al. (TOIS 2023): 0 for BM25, -1 for a cosine. Unlike
    `minmax` it does not depend on how deep the ranking goes.
    """

    def normalise(scores: Sequence[float]) -> list[float]:
        # Halves, so that the range of any two numbers is a number.
        width = max(scores, default=0.0) / 2 - minimum / 2
        return [(s / 2 - minimum / 2) / width if width > 0 else 1.0 for s in scores]

    return normalise


def probabilities(temperature: float = 0.1, *, by_best: bool = True) -> Normalise:
    """Softmax over one ranking: what DSP (Khattab et al. 2022) sums.

    Args:
        temperature: Above 0; the lower, the more the first places count.
        by_best: Divide scores by the best one before, so that one temperature serves queries of
            any length: for BM25. Without, for scores that are log-odds. Where the best is not
            above 0 nothing is divided.

    Raises:
        BadInput: The temperature is not above 0.
    """
    if not 0 < temperature < math.inf:
        raise BadInput(f"temperature is {temperature}; it must be above 0.")

    def normalise(scores: Sequence[float]) -> list[float]:
        best = max(scores, default=0.0)
        unit = best if by_best and best > 0 else 1.0
        grown = [math.exp((s / unit - best / unit) / temperature) for s in scores]
        total = math.fsum(grown)
        return [g / total for g in grown]

    return normalise


NORMALISATIONS: dict[str, Normalise] = {
    "none": as_given,
    "minmax": minmax,
    "zero": least(0.0),
    "cosine": least(-1.0),
    "probabilities": probabilities(),
}
"""By the names that a user writes."""


# --- Many rankings --------------------------------------------------------------------------


def rrf(
    rankings: Sequence[Sequence[Hit]],
    *,
    weights: Sequence[float] | None = None,
    k: float = 60.0,
) -> list[Hit]:
    """Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009): sum of w / (k + place).

    Args:
        rankings: Best first; scores are not looked at.
        weights: One a ranking; None is 1 each, as in the paper.
        k: How little the first places differ; 0 or more (60 in the paper).

    Raises:
        BadInput: `k` is negative; weights are not as many as rankings, or no weights.
    """
    if not 0 <= k < math.inf:
        raise BadInput(f"rrf's k is {k}; it must be 0 or more.")
    return _fused(rankings, weights, lambda hits: [1 / (k + n) for n in range(1, len(hits) + 1)])


def combsum(
    rankings: Sequence[Sequence[Hit]],
    *,
    weights: Sequence[float] | None = None,
    normalise: Normalise | Sequence[Normalise] = minmax,
) -> list[Hit]:
    """CombSUM (Fox and Shaw, TREC-2 1994): the sum of scores; scaled as Lee (1997) does.

    Args:
        rankings: Best first.
        weights: One a ranking; None is 1 each.
        normalise: For all rankings, or one for each.

    Raises:
        BadInput: Weights or functions are not as many as rankings, or a weight is none.
    """
    return _fused(rankings, weights, normalise)


def combmnz(
    rankings: Sequence[Sequence[Hit]],
    *,
    weights: Sequence[float] | None = None,
    normalise: Normalise | Sequence[Normalise] = minmax,
) -> list[Hit]:
    """CombMNZ (Fox and Shaw, TREC-2 1994): the sum of scores, times the rankings that have the hit.

    See `combsum`.
    """
    return _fused(rankings, weights, normalise, times_found=True)


def convex(
    rankings: Sequence[Sequence[Hit]],
    *,
    weights: Sequence[float] | None = None,
    normalise: Normalise | Sequence[Normalise] = minmax,
) -> list[Hit]:
    """A convex combination of scores (Bruch, Gai and Ingber, TOIS 2023).

    `combsum` with weights that sum to 1: two rankings with weights 3 and 1 are taken 0.75 to
    0.25. Fused scores stay between 0 and 1 where the normalised ones do.

    Raises:
        BadInput: As `combsum`, or all weights are 0.
    """
    given = _checked(rankings, weights)
    total = math.fsum(given)
    if rankings and not 0 < total < math.inf:
        raise BadInput(f"The weights {_listed(given)} have no share: their sum is {total:g}.")
    return _fused(rankings, [weight / total for weight in given], normalise)


FUSIONS: dict[str, Fuse] = {
    "rrf": rrf,
    "combsum": combsum,
    "combmnz": combmnz,
    "convex": convex,
    "combsum_prob": partial(combsum, normalise=probabilities()),
    "combsum_score": partial(combsum, normalise=as_given),
}
"""By the names that a user writes. The last two are DSP's."""


def _fused(
    rankings: Sequence[Sequence[Hit]],
    weights: Sequence[float] | None,
    normalise: Normalise | Sequence[Normalise] | Callable[[Sequence[float]], list[float]],
    *,
    times_found: bool = False,
) -> list[Hit]:
    given = _checked(rankings, weights)
    functions = [normalise] * len(rankings) if callable(normalise) else list(normalise)
    if len(functions) != len(rankings):
        raise BadInput(f"{len(functions)} normalisations for {len(rankings)} rankings.")
    hits: dict[str, Hit] = {}
    parts: dict[str, list[float]] = {}
    places: dict[str, int] = {}
    for ranking, weight, function in zip(rankings, given, functions, strict=True):
        if not weight:
            continue
        own = list(_each_once(ranking))
        scores = function([hit.score for hit in own])
        for place, (hit, score) in enumerate(zip(own, scores, strict=True)):
            name = hit.passage.id
            hits.setdefault(name, hit)
            parts.setdefault(name, []).append(weight * score)
            places[name] = min(place, places.get(name, place))
    # fsum rounds once: the same sum in whatever order the rankings came.
    fused = {
        name: math.fsum(found) * (len(found) if times_found else 1) for name, found in parts.items()
    }
    order = sorted(fused, key=lambda name: (-fused[name], places[name], name))
    return [Hit(hits[name].passage, fused[name]) for name in order]


def _each_once(ranking: Sequence[Hit]) -> Iterator[Hit]:
    seen = set()
    for hit in ranking:
        if hit.passage.id not in seen:
            seen.add(hit.passage.id)
            yield hit


def _checked(rankings: Sequence[Sequence[Hit]], weights: Sequence[float] | None) -> list[float]:
    given = [1.0] * len(rankings) if weights is None else list(weights)
    if len(given) != len(rankings):
        raise BadInput(f"{len(given)} weights for {len(rankings)} rankings: give one for each.")
    if not all(0 <= weight < math.inf for weight in given):
        raise BadInput(f"The weights are {_listed(given)}; each must be 0 or more.")
    return given


def _listed(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)
