"""Adaptive-RAG: no, one or many retrievals, as the question needs (Jeong et al., NAACL 2024)."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from multihop.errors import BadInput
from multihop.lms.adapters import Adapter
from multihop.lms.base import LanguageModel
from multihop.retrievers.base import Retriever
from multihop.strategies import make as make_strategy
from multihop.strategies.budget import Budget
from multihop.strategies.router import ROUTES, LinearRouter, PromptedRouter, Router
from multihop.strategies.writing import Demonstrations
from multihop.text import Json, Question
from multihop.trace import Step, Strategy, Thought


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
        yield Thought(f"{route.name} ({why})" if why else route.name, route.call, kind="route")
        async with aclosing(self.strategies[route.name].steps(question)) as steps:
            async for step in steps:
                yield step


PROMPTED = "prompted"
"""Instead of a router's file: the LM chooses."""


def make(
    retriever: Retriever | None,
    lm: LanguageModel,
    *,
    router: str = PROMPTED,
    preset: str | None = None,
    reader: str | None = None,
    k: int | None = None,
    max_steps: int | None = None,
    max_passages: int | None = None,
    words: int | None = None,
    shots: int | None = None,
    max_tokens: int | None = None,
    demonstrations: Demonstrations | None = None,
    budget: Budget | None = None,
    adapter: str | Adapter | None = None,
) -> AdaptiveRAG:
    """Adaptive-RAG by name, over NoR, OneR and IRCoT with the same settings.

    Args:
        retriever: Where the two latter search.
        lm: Who writes, and chooses where no router's file is given.
        router: "prompted", or a file that `multihop train router` wrote.
        preset: Of all three, as `strategies.make` explains it.
        reader: Of all three.
        k: Passages per query of the loop; OneR keeps its own.
        max_steps: Of the loop.
        max_passages: Of the two that search.
        words: Of all three.
        shots: Of all three.
        max_tokens: Of all three.
        demonstrations: Of all three.
        budget: Of the loop.
        adapter: Of all three.

    Raises:
        BadInput: No such router, or what `strategies.make` raises.
    """
    chooses: Router = PromptedRouter(lm) if router == PROMPTED else LinearRouter.load(Path(router))
    made = {
        name: make_strategy(
            name,
            lm=lm,
            retriever=retriever,
            preset=preset,
            reader=reader,
            k=k if name == "ircot" else None,
            max_steps=max_steps,
            max_passages=max_passages,
            words=words,
            shots=shots,
            max_tokens=max_tokens,
            demonstrations=demonstrations,
            budget=budget,
            adapter=adapter,
        )
        for name in ROUTES
    }
    return AdaptiveRAG(chooses, made)
