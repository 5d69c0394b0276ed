"""When IM-RAG's Questioner has searched enough.

The paper stops by progress towards the gold passages, which nobody knows of a new question. What
can be known instead is a policy of its own; the paper's rule is here too, under the name that
says what it is: oracle.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from multihop import files
from multihop.errors import BadInput
from multihop.metrics.progress import Tracker, Turn, progress, stops
from multihop.strategies.im_rag.features import features
from multihop.text import Json, Question

FORMAT = 1
"""Version of a linear model's file. Readers refuse others."""

Target = Literal["enough", "gain"]
"""What a linear model tells: how likely the passages are enough; the newest turn's progress."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to answer now.

    Attributes:
        answer: Else one more search is made.
        sure: How likely the passages are enough, in [0, 1], where the policy tells it.
    """

    answer: bool
    sure: float | None = None


class StopPolicy(Protocol):
    """Decides after each turn; never asked before the first nor after the last.

    Attributes:
        settings: What decides, as recorded in traces.
    """

    @property
    def settings(self) -> dict[str, Json]: ...  # noqa: D102

    def decide(self, question: Question, turns: Sequence[Turn]) -> Decision:
        """Search on, or answer.

        Args:
            question: Its gold passages are there for the oracle alone.
            turns: Of the monologue, at least one.
        """
        ...


@dataclass(frozen=True)
class Fixed:
    """Always so many turns.

    Attributes:
        turns: At least 1.
    """

    turns: int = 2

    @property
    def settings(self) -> dict[str, Json]:
        """The number."""
        return {"stop": "fixed", "stop_turns": self.turns}

    def decide(self, question: Question, turns: Sequence[Turn]) -> Decision:  # noqa: ARG002
        """Count."""
        return Decision(len(turns) >= self.turns)


@dataclass(frozen=True)
class Action:
    """The Questioner says so itself: it writes a mark where a query would stand."""

    @property
    def settings(self) -> dict[str, Json]:
        """The name."""
        return {"stop": "action"}

    def decide(self, question: Question, turns: Sequence[Turn]) -> Decision:  # noqa: ARG002
        """Search on; the engine sees the mark."""
        return Decision(answer=False)


@dataclass(frozen=True)
class Linear:
    """A linear model over `features`.

    Attributes:
        target: What it tells.
        bias: The number for a monologue without any feature.
        weights: By feature; those that it does not know count for nothing.
        made: What it was trained on, and how well it does.
    """

    target: Target
    bias: float
    weights: Mapping[str, float] = field(hash=False)
    made: Mapping[str, Json] = field(default_factory=dict, hash=False)

    def of(self, question: str, turns: Sequence[Turn]) -> float:
        """Of "enough" a chance in [0, 1], of "gain" a number in [-1, 1]."""
        return self.value(features(question, turns))

    def value(self, seen: Mapping[str, float]) -> float:
        """The same for features."""
        raw = self.bias + math.fsum(self.weights.get(k, 0.0) * v for k, v in seen.items())
        if self.target == "gain":
            return max(-1.0, min(1.0, raw))
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, raw))))

    def save(self, path: Path) -> None:
        """Write it as JSON, at once or not at all."""
        record = {
            "format": FORMAT,
            "target": self.target,
            "bias": self.bias,
            "weights": dict(sorted(self.weights.items())),
            "made": dict(self.made),
        }
        files.write_record(path, record)

    @classmethod
    def load(cls, path: Path, target: Target) -> "Linear":
        """Read it back.

        Raises:
            BadInput: No such file, another format or target, or what is there is no number.
        """
        record = files.read_record(
            path,
            FORMAT,
            "stop model",
            again="Train it anew.",
            missing="`multihop train critic` makes one.",
        )
        if record.get("target") != target:
            raise BadInput(
                f"{path}: tells {record.get('target')!r}; {target!r} is needed here. The critic "
                "takes the one, predicted progress the other file of `multihop train critic`."
            )
        try:
            bias = float(record["bias"])
            weights = {str(name): float(value) for name, value in record["weights"].items()}
            made = dict(record["made"])
        except (KeyError, TypeError, ValueError, AttributeError) as broken:
            raise BadInput(f"{path}: no stop model ({type(broken).__name__}: {broken}).") from None
        if not all(math.isfinite(value) for value in (bias, *weights.values())):
            raise BadInput(f"{path}: a weight is no finite number.")
        return cls(target, bias, weights, made)


@dataclass(frozen=True)
class Critic:
    """Answers once a small model finds the passages enough (as SIM-RAG's critic, 2505.02811).

    Attributes:
        model: Tells "enough".
        threshold: Answer from this chance on.
    """

    model: Linear
    threshold: float = 0.5

    @property
    def settings(self) -> dict[str, Json]:
        """Which model and threshold."""
        return {
            "stop": "critic",
            "stop_threshold": self.threshold,
            "stop_model": self.model.made.get("digest"),
        }

    def decide(self, question: Question, turns: Sequence[Turn]) -> Decision:
        """Ask the model."""
        sure = self.model.of(question.text, turns)
        return Decision(sure >= self.threshold, sure)


@dataclass(frozen=True)
class PredictedProgress:
    """Equation 6 over what a small model takes each turn's progress for.

    Attributes:
        model: Tells "gain".
        gamma, phi: Of equations 5 and 6.
    """

    model: Linear
    gamma: float = 0.9
    phi: float = 1.2

    @property
    def settings(self) -> dict[str, Json]:
        """Which model and numbers."""
        return {
            "stop": "predicted_progress",
            "stop_gamma": self.gamma,
            "stop_phi": self.phi,
            "stop_model": self.model.made.get("digest"),
        }

    def decide(self, question: Question, turns: Sequence[Turn]) -> Decision:
        """Sum up what every turn so far has brought."""
        gains = [self.model.of(question.text, turns[: n + 1]) for n in range(len(turns))]
        return Decision(progress(gains, self.gamma) > self.phi)


@dataclass(frozen=True)
class Oracle:
    """Stops by the gold passages: what it reaches no system can, and so its name is everywhere.

    Attributes:
        tracker: Measures the turns.
        gamma, phi: Of equations 5 and 6 (literal mode: 0.3 and 0.3). phi None leaves equation 6
            out, as training does: it stops when no gold passage is left.
    """

    tracker: Tracker = field(default_factory=Tracker)
    gamma: float = 0.3
    phi: float | None = None

    @property
    def settings(self) -> dict[str, Json]:
        """That gold passages decide."""
        return {
            "stop": "oracle",
            "stop_scorer": self.tracker.scorer,
            "stop_removal": self.tracker.removal,
            "stop_gamma": self.gamma,
            "stop_phi": self.phi,
        }

    def decide(self, question: Question, turns: Sequence[Turn]) -> Decision:
        """Look at the gold passages; without any the first turn is the last."""
        steps = self.tracker.follow(question, turns)
        if not question.gold_ids or steps[-1].left == 0:
            return Decision(answer=True)
        if self.phi is None:
            return Decision(answer=False)
        gains = [step.gain for step in steps]
        return Decision(stops(gains, self.gamma, self.phi, len(gains) + 1))
