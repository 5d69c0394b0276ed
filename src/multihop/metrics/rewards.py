"""Rewards of a trace: what IM-RAG's training maximises and its evaluation can report.

Equation 4 of the paper is the sum of the turns' discounted progress and the answer's F1; its KL
term belongs to the optimiser. The defaults weigh the parts and add a share for turns that can be
used at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from multihop.errors import BadInput
from multihop.metrics.progress import Tracker, progress, turns
from multihop.metrics.traces import f1
from multihop.trace import Trace


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much; all at least 0.

    Attributes:
        gamma: Discount of a turn's progress, above 0 and at most 1.
        progress: Of the turns' progress together.
        answer: Of the answer's F1.
        format: Of the share of turns, the answer among them, that can be used.

    Raises:
        BadInput: A number is out of its range.
    """

    gamma: float = 0.9
    progress: float = 0.5
    answer: float = 1.0
    format: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise BadInput(f"gamma is {self.gamma}; it must be above 0 and at most 1.")
        for name in ("progress", "answer", "format"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise BadInput(f"The reward's weight of {name} is {value}; it must be 0 or more.")


PAPER = Weights(gamma=0.3, progress=1.0, answer=1.0, format=0.0)
"""Equation 4, with the only gamma for which equation 6 and phi = 0.3 make two hops."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A trace's reward and its parts.

    Attributes:
        gains: 1 - d of each turn.
        answer: F1 of the answer.
        usable: Share of the turns and the answer that can be used.
        total: The episode's reward.
        from_turn: For each turn what follows from it: the discounted gains from there on, and the
            answer. One number more, the last, for the answer itself.
    """

    gains: tuple[float, ...]
    answer: float
    usable: float
    total: float
    from_turn: tuple[float, ...]


def reward(trace: Trace, tracker: Tracker, weights: Weights | None = None) -> Reward:
    """The reward of a trace.

    A run that failed, and a question without gold answers, have an answer worth 0; without gold
    passages no turn makes progress.

    Args:
        trace: Of IM-RAG, or of any strategy with searches.
        tracker: Measures the turns.
        weights: None is the default.
    """
    weights = weights or Weights()
    gains = tuple(step.gain for step in tracker.track(trace))
    made = turns(trace)
    answer = f1(trace) or 0.0
    stated = bool(trace.answer and trace.answer.text)
    usable = (sum(turn.valid for turn in made) + stated) / (len(made) + 1)
    end = weights.answer * answer + weights.format * stated
    follows = []
    for place in range(len(gains)):
        rest = math.fsum(weights.gamma ** (i - place) * gains[i] for i in range(place, len(gains)))
        own = weights.format * made[place].valid
        follows.append(weights.progress * rest + weights.answer * answer + own)
    total = (
        weights.progress * progress(gains, weights.gamma)
        + weights.answer * answer
        + weights.format * usable
    )
    return Reward(gains, answer, usable, total, (*follows, end))


def centred(values: Sequence[float], *, scaled: bool = False) -> list[float]:
    """What each value is above the mean; with `scaled` in standard deviations.

    All equal values give exactly 0.
    """
    if len(values) == 0 or max(values) == min(values):
        return [0.0] * len(values)
    middle = math.fsum(values) / len(values)
    if not scaled:
        return [value - middle for value in values]
    spread = math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1))
    return [(value - middle) / (spread + 1e-6) for value in values]


def advantages(
    rewards: Sequence[Reward], *, by_turn: bool = False, scaled: bool = False
) -> list[tuple[float, ...]]:
    """Advantages within a group of rollouts of one question.

    Args:
        rewards: Of the group.
        by_turn: Each turn is compared with the same turn of the others by what follows from it;
            else the whole rollout has the advantage of its total.
        scaled: Divide by the group's standard deviation.

    Returns:
        For each rollout a number for each turn, and one more for the answer.
    """
    if not by_turn:
        alike = centred([reward.total for reward in rewards], scaled=scaled)
        return [
            (value,) * len(reward.from_turn) for value, reward in zip(alike, rewards, strict=True)
        ]
    found = [[0.0] * len(reward.from_turn) for reward in rewards]
    longest = max((len(reward.gains) for reward in rewards), default=0)
    for turn in range(longest):
        there = [n for n, reward in enumerate(rewards) if turn < len(reward.gains)]
        values = centred([rewards[n].from_turn[turn] for n in there], scaled=scaled)
        for n, value in zip(there, values, strict=True):
            found[n][turn] = value
    for n, value in enumerate(centred([r.from_turn[-1] for r in rewards], scaled=scaled)):
        found[n][-1] = value
    return [tuple(values) for values in found]
