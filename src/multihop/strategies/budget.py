"""What one question may cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from multihop.text import Json
from multihop.trace import Search, Step, StopReason, Titles


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on the search for evidence; None is no limit.

    Looked at after each sentence. The reader still answers when one is reached, so a question
    may cost a call more, or two where its answer has to be asked for.

    Attributes:
        calls: LM calls.
        tokens: Prompt and generated tokens together, as the backend tells them.
        seconds: Time spent in LM calls and searches.
    """

    calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    @property
    def settings(self) -> dict[str, Json]:
        """The limits, as recorded in traces."""
        return {
            "budget_calls": self.calls,
            "budget_tokens": self.tokens,
            "budget_seconds": self.seconds,
        }

    def ended(self, steps: Sequence[Step]) -> StopReason | None:
        """Whether the steps taken have used it up."""
        calls, tokens, seconds = 0, 0, 0.0
        for step in steps:
            if isinstance(step, Search):
                seconds += step.seconds
                continue
            if isinstance(step, Titles):
                seconds += sum(search.seconds for search in step.searches)
            if step.call is not None:
                calls += 1
                tokens += (step.call.tokens.prompt or 0) + (step.call.tokens.generated or 0)
                seconds += step.call.seconds
        over = (
            (self.calls is not None and calls >= self.calls)
            or (self.tokens is not None and tokens >= self.tokens)
            or (self.seconds is not None and seconds >= self.seconds)
        )
        return "budget" if over else None
