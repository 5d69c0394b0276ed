"""How far each search of a trace came: IM-RAG's progress tracker as a measure over a trace.

The paper (Yang et al., SIGIR 2024, equations 1 to 6) compares each turn's best passage with the
gold passages not yet taken. What it calls accumulated distance is a sum of similarities; here it
is `progress`, and a distance is 1 minus the progress of one turn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from multihop.errors import BadInput
from multihop.text import Passage, Question
from multihop.trace import Search, Thought, Trace

Scorer = Literal["cosine", "id", "recall"]
"""How a turn is measured: similarity to the nearest gold passage (paper); whether a gold passage
came; the share of all gold passages that came, less the share of passages seen before."""

Removal = Literal["always", "threshold"]
"""Which gold passage a turn takes away: the nearest, however far (paper); or what was found."""

Encode = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Vectors of texts, all of one length."""

_EXACT = 1e-12


@dataclass(frozen=True, slots=True)
class Turn:
    """One query of a trace and what was shown of it.

    Attributes:
        query: As written; invalid ones too.
        valid: Whether it went out.
        passages: What joined the monologue, best first.
    """

    query: str
    valid: bool
    passages: tuple[Passage, ...] = ()


def turns(trace: Trace) -> tuple[Turn, ...]:
    """The turns of a trace: each search, with the query before it.

    A search whose query is empty was an invalid turn.
    """
    found = []
    written = ""
    for step in trace.steps:
        if isinstance(step, Thought) and step.kind == "query":
            written = step.text
        elif isinstance(step, Search):
            there = {hit.passage.id: hit.passage for hit in step.hits}
            shown = tuple(there[name] for name in step.kept if name in there)
            found.append(Turn(written or step.query, bool(step.query), shown))
            written = ""
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Step:
    """What the tracker says of one turn.

    Attributes:
        gain: 1 - d, the turn's progress; 0 of an invalid turn. "cosine": -1 to 1; "id": 0 or 1;
            "recall": -1 to 1.
        taken: Ids of the gold passages that it took away.
        left: Gold passages left after it.
    """

    gain: float
    taken: tuple[str, ...]
    left: int

    @property
    def distance(self) -> float:
        """Equation 2; 1 for a turn without progress."""
        return 1 - self.gain


@dataclass(frozen=True)
class Tracker:
    """Measures the turns of a trace against the question's gold passages.

    Attributes:
        scorer: See `Scorer`.
        removal: See `Removal`.
        threshold: From this cosine on a passage counts as found, where removal is by threshold.
        best_of_k: Compare the nearest of a turn's passages, not the first (paper: the first).
        encode: Texts to vectors; needed by "cosine".
        passage: A gold passage by its id; needed by "cosine" for those that no turn showed.

    Raises:
        BadInput: "cosine" without an encoder, or a threshold out of range.
    """

    scorer: Scorer = "id"
    removal: Removal = "threshold"
    threshold: float = 0.8
    best_of_k: bool = False
    encode: Encode | None = field(default=None, repr=False)
    passage: Callable[[str], Passage | None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.scorer == "cosine" and self.encode is None:
            raise BadInput("The progress scorer cosine needs an encoder of texts.")
        if not -1 <= self.threshold <= 1:
            raise BadInput(f"threshold is {self.threshold}; a cosine is from -1 to 1.")

    def track(self, trace: Trace) -> tuple[Step, ...]:
        """Every turn of a trace; see `follow`."""
        return self.follow(trace.question, turns(trace))

    def follow(self, question: Question, made: Sequence[Turn]) -> tuple[Step, ...]:
        """What the tracker says of each turn.

        Turns after the last gold passage was taken have gain 0.

        Raises:
            BadInput: "cosine" has no text of a gold passage.
        """
        left = list(dict.fromkeys(question.gold_ids))
        total = len(left)
        seen: set[str] = set()
        found = []
        for turn in made:
            gain = 0.0
            taken: tuple[str, ...] = ()
            if turn.valid and left:
                gain, taken = self._turn(turn, left, total, seen)
            elif not turn.valid and left and self.removal == "always":
                taken = (left[0],)  # attempted, as in the paper
            seen.update(p.id for p in turn.passages)
            left = [name for name in left if name not in taken]
            found.append(Step(gain, taken, len(left)))
        return tuple(found)

    def _turn(
        self, turn: Turn, left: Sequence[str], total: int, seen: set[str]
    ) -> tuple[float, tuple[str, ...]]:
        came = tuple(dict.fromkeys(p.id for p in turn.passages if p.id in left))
        if self.scorer == "cosine":
            return self._nearest(turn, left)
        if self.scorer == "id":
            gain = float(bool(came))
        else:
            again = sum(p.id in seen for p in turn.passages)
            gain = len(came) / total - again / max(len(turn.passages), 1)
        if not came and self.removal == "always":
            came = (left[0],)
        return gain, came

    def _nearest(self, turn: Turn, left: Sequence[str]) -> tuple[float, tuple[str, ...]]:
        """Equations 1 and 2: the nearest gold passage that is left."""
        compared = turn.passages if self.best_of_k else turn.passages[:1]
        if not compared:
            return 0.0, (left[0],) if self.removal == "always" else ()
        assert self.encode is not None
        gold = [self._gold(name, turn) for name in left]
        vectors = self.encode([_text(p) for p in (*compared, *gold)])
        ours, theirs = vectors[: len(compared)], vectors[len(compared) :]
        best, name, same = -2.0, left[0], False
        for passage, vector in zip(compared, ours, strict=True):
            for other, its in zip(left, theirs, strict=True):
                near = cosine(vector, its)
                if near > best:
                    best, name, same = near, other, passage.id == other
        if self.removal == "always" or same or best >= self.threshold:
            return best, (name,)
        return best, ()

    def _gold(self, name: str, turn: Turn) -> Passage:
        for passage in turn.passages:
            if passage.id == name:
                return passage
        found = self.passage(name) if self.passage else None
        if found is None:
            raise BadInput(
                f"The gold passage {name!r} has no text here: cosine progress needs the corpus "
                "that the question is about."
            )
        return found


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of two vectors, in [-1, 1]; 0 where one has no length."""
    product = sum(a * b for a, b in zip(one, other, strict=True))
    length = math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in other))
    return 0.0 if length == 0 else max(-1.0, min(1.0, product / length))


def _text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def progress(gains: Sequence[float], gamma: float) -> float:
    """Equation 5: the sum of gamma^i (1 - d_i), i from 1."""
    return math.fsum(gamma**i * gain for i, gain in enumerate(gains, 1))


def stops(gains: Sequence[float], gamma: float, phi: float, most: int) -> bool:
    """Equation 6: whether the Answerer's turn has come after these turns.

    Args:
        gains: Of the turns so far.
        gamma: Discount.
        phi: Progress above which enough was found.
        most: N_max.
    """
    return len(gains) >= most or progress(gains, gamma) > phi + _EXACT


def stop_turn(gains: Sequence[float], gamma: float, phi: float, most: int) -> int:
    """The turn after which equation 6 stops, for the gains that turns would have."""
    many = min(most, len(gains))
    return next((i for i in range(1, many) if stops(gains[:i], gamma, phi, most)), many)
