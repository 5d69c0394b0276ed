"""What a question may cost, and what a whole run may."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from multihop.cost import Cost, Prices
from multihop.errors import BadInput
from multihop.text import Json
from multihop.trace import Step, StopReason

_ROUNDING = 1 - 1e-9
"""Sums of prices miss a limit that they reach by less than this."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Most that may be spent, counted as `multihop.cost` does; None is no limit.

    A limit is reached by what is equal to it.

    Attributes:
        calls: LM calls.
        tokens: Prompt and generated tokens together.
        seconds: What they measure is said by `Budget` and `RunBudget`.
        money: In the currency of `prices`.
        prices: What each model costs; needed for `money`.

    Raises:
        BadInput: A limit is negative or no number, or there is one of money without prices.
    """

    calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    money: float | None = None
    prices: Prices | None = None

    def __post_init__(self) -> None:
        for unit in ("calls", "tokens", "seconds", "money"):
            limit: float | None = getattr(self, unit)
            if limit is not None and not 0 <= limit < math.inf:
                raise BadInput(f"A budget of {limit} {unit}: it must be finite, 0 or more.")
        if self.money is not None and self.prices is None:
            raise BadInput("A budget of money needs a price table: --prices FILE.")

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return any(x is not None for x in (self.calls, self.tokens, self.seconds, self.money))

    @property
    def counted(self) -> Prices | None:
        """The prices, where they are needed."""
        return None if self.money is None else self.prices

    def check(self, model: str) -> None:
        """Make sure that what a model costs can be counted.

        Raises:
            BadInput: Money is limited and the model has no price.
        """
        if self.counted:
            self.counted.of(model)

    def reached(self, cost: Cost) -> str:
        """The limit that is used up, as "203 of 200 calls"; empty while none is."""
        if self.calls is not None and cost.calls >= self.calls:
            return f"{cost.calls} of {self.calls} calls"
        if self.tokens is not None and cost.tokens >= self.tokens:
            return f"{cost.tokens} of {self.tokens} tokens"
        if self.seconds is not None and cost.seconds >= self.seconds:
            return f"{cost.seconds:.1f} of {self.seconds:g} seconds"
        if self.money is not None and cost.money >= self.money * _ROUNDING:
            return f"{cost.money:.6g} of {self.money:g} in money"
        return ""


class RunBudget:
    """Limits of a whole run, shared by its questions; an evaluation feeds it.

    It may go through several sittings and evaluations: what it has counted it does not count
    again.

    Once one is reached no question is begun, and the questions at work end their search with
    stop reason `budget`; their readers still answer. So a run may cost more than its budget:
    for each question at work the sentence being written and its reader.

    Args:
        calls: LM calls, those of earlier sittings included.
        tokens: Prompt and generated tokens together, those of earlier sittings included.
        seconds: On the clock, from `begin` on: of this sitting alone.
        money: In the currency of `prices`, earlier sittings included.
        prices: What each model costs; needed for `money`.

    Attributes:
        limits: All these.
        spent: What the steps added so far have cost. Its seconds are those of calls and
            searches, not of the clock.
    """

    def __init__(
        self,
        calls: int | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        money: float | None = None,
        prices: Prices | None = None,
    ) -> None:
        self.limits = Limits(calls, tokens, seconds, money, prices)
        self.spent = Cost()
        self._began: float | None = None
        self._counted: set[object] = set()

    def count_once(self, key: object, steps: Iterable[Step]) -> None:
        """Count what was spent elsewhere, if it was not counted yet.

        Args:
            key: Names what was spent, as the folder of a run that is fed to `add` from now on.
            steps: Those taken there so far; not read when they are counted already.

        Raises:
            BadInput: As `add`.
        """
        if key not in self._counted:
            spent = Cost.of(steps, self.limits.counted)
            self._counted.add(key)
            self.spent += spent

    def begin(self) -> None:
        """Start the clock, if it does not run yet."""
        self._began = monotonic() if self._began is None else self._began

    def add(self, *steps: Step) -> None:
        """Count steps; `add` of an object is made for `trace(..., on_step=)`.

        Raises:
            BadInput: Money is limited and a call's model has no price.
        """
        self.spent += Cost.of(steps, self.limits.counted)

    @property
    def reached(self) -> str:
        """The limit that is used up, in words; empty while none is."""
        clock = 0.0 if self._began is None else monotonic() - self._began
        return self.limits.reached(replace(self.spent, seconds=clock))


@dataclass(frozen=True, slots=True)
class Budget(Limits):
    """Limits on the search for evidence.

    Looked at after each sentence: at least one is written, and none is broken off. The reader
    still answers when a limit is reached, so a question may cost a call more, or two where its
    answer has to be asked for. Only a strategy with a loop has something to cut.

    Attributes:
        calls: LM calls.
        tokens: Prompt and generated tokens together.
        seconds: Time in LM calls and searches.
        money: In the currency of `prices`.
        prices: What each model costs; needed for `money`.
        run: What the whole run may cost; at its end the search ends too. It is no setting: the
            same run may go on with a larger one.
    """

    run: RunBudget | None = None

    @property
    def settings(self) -> dict[str, Json]:
        """The limits, as recorded in traces; with prices where they decide."""
        prices = {"prices": self.counted.to_dict()} if self.counted else {}
        return {
            "budget_calls": self.calls,
            "budget_tokens": self.tokens,
            "budget_seconds": self.seconds,
            "budget_money": self.money,
            **prices,
        }

    def check(self, model: str) -> None:
        """Make sure that what a model costs can be counted, for the whole run too."""
        Limits.check(self, model)
        if self.run:
            self.run.limits.check(model)

    def of(self, model: str) -> "Budget":
        """The same for one model; of the prices only the model's own are kept.

        Raises:
            BadInput: Money is limited and the model has no price.
        """
        self.check(model)
        return replace(self, prices=self.counted.only(model)) if self.counted else self

    def ended(self, steps: Sequence[Step]) -> StopReason | None:
        """Whether the steps taken have used it up, or the run has its own."""
        over = self.limited and self.reached(Cost.of(steps, self.counted))
        return "budget" if over or (self.run and self.run.reached) else None
