"""Adaptive-RAG: no, one or many retrievals, as the question needs (Jeong et al., NAACL 2024)."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from multihop.errors import BadInput
from multihop.strategies.router import Router
from multihop.text import Json, Question
from multihop.trace import Step, Strategy, Thought

ROUTED = "Route:"
"""Begins the step that tells the route; it is what `Thought.forced` says."""


@dataclass(frozen=True)
class AdaptiveRAG:
    """Ask a router what a question needs, then answer it so.

    Paper, section 3: a classifier reads the question and chooses among no retrieval, a single one
    and the interleaved loop; the chosen strategy answers. The choice is the trace's first step.

    Attributes:
        router: Chooses.
        strategies: By name, those that it may choose.
    """

    router: Router
    strategies: Mapping[str, Strategy] = field(hash=False)
    name: str = "adaptive-rag"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        own: dict[str, Json] = {name: dict(s.settings) for name, s in self.strategies.items()}
        return {**self.router.settings, "strategies": own}

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        route = await self.router.route(question.text)
        if route.name not in self.strategies:
            raise BadInput(
                f"The router chose {route.name!r}; it may choose {', '.join(self.strategies)}."
            )
        shares = ", ".join(f"{name} {share:.2f}" for name, share in route.shares.items())
        why = route.reason or shares
        yield Thought(f"{route.name} ({why})" if why else route.name, route.call, ROUTED)
        async with aclosing(self.strategies[route.name].steps(question)) as steps:
            async for step in steps:
                yield step


def route_of(step: Step) -> str:
    """The strategy that a step tells was chosen; empty for every other step."""
    if isinstance(step, Thought) and step.forced == ROUTED:
        return step.text.partition(" ")[0]
    return ""
