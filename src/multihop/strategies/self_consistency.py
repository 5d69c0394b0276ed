"""Self-consistency: several chains, and the answer that most of them give (Wang et al., 2022)."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from multihop.cost import Cost
from multihop.errors import BadInput
from multihop.lms.base import LanguageModel, Piece, Request
from multihop.lms.wrapper import LMWrapper
from multihop.metrics.answer import normalize
from multihop.strategies.budget import Budget
from multihop.text import Json, Question
from multihop.trace import Answer, Search, Step, StopReason, Strategy, Thought

SAMPLING = 0.7
"""Temperature of the chains (paper: 0.7 for GPT-3, 0.5 for others)."""


class SampledLM(LMWrapper):
    """Asks for samples instead of the likeliest text.

    Args:
        lm: Who answers.
        temperature: Of every call.
        seed: Of every call.
    """

    def __init__(self, lm: LanguageModel, temperature: float, seed: int) -> None:
        super().__init__(lm)
        self.temperature = temperature
        self.seed = seed

    def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Ask with temperature and seed."""
        return self.lm.stream(replace(request, temperature=self.temperature, seed=self.seed))


@dataclass(frozen=True)
class SelfConsistency:
    """Run a strategy several times at a temperature; the majority of the answers counts.

    Paper, section 2: chains are sampled, and their answers vote, each chain with one voice.
    Answers are one when they are the same but for case, marks and articles; of the forms in which
    the winner was given, and of answers with equally many votes, the first counts. A chain without
    an answer votes for nobody and lowers the agreement.

    Attributes:
        chain: Makes the strategy for one chain from its number, 0 and up, and from what it may
            cost. Its LM samples with a seed of its own.
        chains: How many (paper 40).
        temperature: As recorded.
        seed: Of the first chain, as recorded; the next have the next ones.
        least_agreement: Below this share of chains no answer is given; 0 gives one always.
        budget: What a question may cost, all chains together; no chain begins after its end.
    """

    chain: Callable[[int, Budget], Strategy]
    chains: int = 5
    temperature: float = SAMPLING
    seed: int = 0
    least_agreement: float = 0.0
    budget: Budget = field(default_factory=Budget)
    name: str = "self-consistency"

    def __post_init__(self) -> None:
        if self.chains < 1:
            raise BadInput(f"Self-consistency of {self.chains} chains; there must be at least 1.")
        if not 0 < self.temperature <= 2:
            raise BadInput(
                f"The temperature is {self.temperature}; chains differ only above 0, up to 2."
            )
        if not 0 <= self.least_agreement <= 1:
            raise BadInput(f"least_agreement is {self.least_agreement}; it is a share, 0 to 1.")

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        inner = self.chain(0, self.budget)
        return {
            **inner.settings,
            "of": inner.name,
            "chains": self.chains,
            "temperature": self.temperature,
            "seed": self.seed,
            "least_agreement": self.least_agreement,
            **self.budget.settings,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        ballots: list[Answer] = []
        taken: list[Step] = []
        collected: tuple[str, ...] = ()
        over: StopReason | None = None
        while len(ballots) < self.chains and over is None:
            # Sample a chain; what it finds joins what the others found.
            number = len(ballots) + 1
            yield Thought(f"{number} of {self.chains}", kind="chain")
            before = collected
            chain = self.chain(number - 1, _less(self.budget, taken))
            async with aclosing(chain.steps(question)) as steps:
                async for step in steps:
                    if isinstance(step, Answer):
                        ballots.append(step)
                        break
                    shown = step
                    if isinstance(step, Search):
                        shown = _joined(step, before, collected)
                        collected = shown.collected
                    yield shown
                    taken.append(shown)
            if len(ballots) < number:
                raise BadInput(f"Strategy {chain.name!r} ended without an answer.")
            for vote in _votes(ballots[-1]):
                yield vote
                taken.append(vote)
            over = self.budget.ended(taken)

        # Count: the answer of most chains, and how many they are.
        winner, votes = majority(ballots)
        agreement = votes / len(ballots)
        told = f"{votes} of {len(ballots)} chains"
        stop: StopReason = over if over and len(ballots) < self.chains else "answered"
        text, reason = winner.text, winner.reason and f"No chain came to an answer: {winner.reason}"
        if winner.text and agreement < self.least_agreement:
            stop, text = "abstained", ""
            reason = (
                f"Only {told} answered {winner.text!r}: {agreement:.2f}, and "
                f"{self.least_agreement:g} was asked for."
            )
        elif not winner.text:
            stop = over or winner.stop
        yield Answer(
            text,
            stop,
            winner.passages,
            answers=winner.answers if text else (),
            reason=reason,
            confidence=agreement,
        )


def majority(ballots: Sequence[Answer]) -> tuple[Answer, int]:
    """The first answer of the kind that most chains gave, and how many gave it.

    Where no chain has an answer it is the first one, with no vote.
    """
    votes = Counter(key for ballot in ballots if (key := _key(ballot)))
    if not votes:
        return ballots[0], 0
    most, count = votes.most_common(1)[0]  # of equals, the first that was counted
    return next(ballot for ballot in ballots if _key(ballot) == most), count


def _key(ballot: Answer) -> str:
    """What makes answers one; a text of marks and articles alone is taken as it is."""
    return normalize(ballot.text) or ballot.text.strip().lower()


def _votes(ballot: Answer) -> list[Thought]:
    """A chain's answer as thoughts, with the calls that wrote it."""
    text = ballot.text or f"no answer: {ballot.reason}"
    calls = [call for call in (ballot.call, ballot.forced) if call]
    return [
        Thought(text if number == len(calls) - 1 or not calls else "", call, kind="vote")
        for number, call in enumerate(calls or [None])
    ]


def _joined(search: Search, before: Sequence[str], collected: Sequence[str]) -> Search:
    """A chain's search as one of all chains: passages of earlier chains are no news."""
    known = set(before)
    together = dict.fromkeys([*collected, *search.collected])
    return replace(
        search,
        kept=tuple(name for name in search.kept if name not in known),
        collected=tuple(together),
    )


def _less(budget: Budget, taken: Sequence[Step]) -> Budget:
    """What is left of a budget."""
    if not budget.limited:
        return budget
    spent = Cost.of(taken, budget.counted)

    def left(limit: float | None, used: float) -> float | None:
        return None if limit is None else max(limit - used, 0)

    calls, tokens = left(budget.calls, spent.calls), left(budget.tokens, spent.tokens)
    return replace(
        budget,
        calls=None if calls is None else int(calls),
        tokens=None if tokens is None else int(tokens),
        seconds=left(budget.seconds, spent.seconds),
        money=left(budget.money, spent.money),
    )
