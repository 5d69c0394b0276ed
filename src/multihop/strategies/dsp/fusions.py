"""How the rankings of several queries become one (section 2.3)."""

import math
from collections.abc import Callable, Mapping, Sequence

from multihop.text import Hit

Fuse = Callable[[Sequence[Sequence[Hit]]], list[Hit]]
"""From rankings to one, best first, with fused scores. A passage is known by its id; of equal
ones that with the best single rank comes first, then by id."""

TAU = 0.1
"""Temperature of the softmax over scores divided by the best of their list."""


def probabilities(ranking: Sequence[Hit]) -> list[float]:
    """Scores of one list as probabilities that add up to 1.

    The paper sums probabilities and does not say what they are for a retriever that gives
    scores: here the softmax of each score over the list's highest, with temperature 0.1.
    """
    if not ranking:
        return []
    top = max(abs(hit.score) for hit in ranking) or 1.0
    powers = [math.exp((hit.score / top - 1) / TAU) for hit in ranking]
    return [power / sum(powers) for power in powers]


def combsum_prob(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """CombSUM over probabilities, the paper's default."""
    return fused(rankings, [probabilities(ranking) for ranking in rankings])


def combsum_score(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """CombSUM over the scores as they are."""
    return fused(rankings, [[hit.score for hit in ranking] for ranking in rankings])


def combmnz(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """CombMNZ: the sum of probabilities times the number of lists that hold the passage."""
    holds: dict[str, int] = {}
    for ranking in rankings:
        for name in {hit.passage.id for hit in ranking}:
            holds[name] = holds.get(name, 0) + 1
    return fused(
        rankings,
        [
            [p * holds[hit.passage.id] for p, hit in zip(probabilities(r), r, strict=True)]
            for r in rankings
        ],
    )


def rrf(rankings: Sequence[Sequence[Hit]], c: int = 60) -> list[Hit]:
    """Reciprocal rank fusion: the sum of 1 / (c + rank), ranks from 1."""
    return fused(rankings, [[1 / (c + n) for n, _ in enumerate(r, 1)] for r in rankings])


def fused(rankings: Sequence[Sequence[Hit]], scores: Sequence[Sequence[float]]) -> list[Hit]:
    """One ranking by the sum of a passage's scores over the lists."""
    best: dict[str, tuple[float, int, Hit]] = {}
    for ranking, numbers in zip(rankings, scores, strict=True):
        for rank, (hit, score) in enumerate(zip(ranking, numbers, strict=True)):
            total, first, _ = best.get(hit.passage.id, (0.0, rank, hit))
            best[hit.passage.id] = total + score, min(first, rank), hit
    order = sorted(best.values(), key=lambda found: (-found[0], found[1], found[2].passage.id))
    return [Hit(hit.passage, total) for total, _, hit in order]


FUSIONS: Mapping[str, Fuse] = {
    "combsum_prob": combsum_prob,
    "combsum_score": combsum_score,
    "combmnz": combmnz,
    "rrf": rrf,
}
