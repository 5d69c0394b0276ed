"""DSP: Demonstrate, Search, Predict (Khattab et al., arXiv 2212.14024).

Small functions over one record (`Example`) that programs are written with: `demonstrate` fills in
training examples by running the program on them, `search` fuses the rankings of many queries,
`predict` lets many completions vote. `DSP` runs a program as a strategy.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from multihop.lms.base import LanguageModel
from multihop.retrievers.base import Retriever
from multihop.strategies.budget import Budget
from multihop.strategies.dsp.bootstrapped import Bootstrapped
from multihop.strategies.dsp.example import Example
from multihop.strategies.dsp.programs import DEFAULTS, PROGRAMS, Prediction, Settings
from multihop.strategies.dsp.session import Session
from multihop.text import Json, Question
from multihop.trace import Answer, Step

__all__ = ["DEFAULTS", "DSP", "PROGRAMS", "Bootstrapped", "Example", "Session", "Settings"]


@dataclass(frozen=True)
class DSP:
    """A program of demonstrate, search and predict.

    Attributes:
        lm: Writes.
        retriever: Searches; "vanilla" never does.
        program: "multihop", "openqa", "convqa", "retrieve_then_read" or "vanilla".
        program_settings: What the paper sets.
        demonstrations: Made of training questions, loaded, or none.
        words: Words of a passage that prompts show (the paper's passages have about 100).
        seed: Of all samples.
        adapter: LoRA adapter of every call.
        budget: What the search for a question may cost.
    """

    lm: LanguageModel
    retriever: Retriever
    program: str = "multihop"
    program_settings: Settings = field(default_factory=Settings)
    demonstrations: Bootstrapped | None = None
    words: int | None = 100
    seed: int = 0
    adapter: str | None = None
    budget: Budget = field(default_factory=Budget)
    name: str = field(default="dsp", init=False)

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        own = self.demonstrations
        return {
            "program": self.program,
            **self.program_settings.to_dict(),
            "lm": self.lm.name,
            "adapter": self.adapter,
            "retriever": self.retriever.name,
            "words": self.words,
            "seed": self.seed,
            "demonstrations": None
            if own is None
            else {"of": own.digest, "draw": own.draw, "keep": own.keep},
            **self.budget.settings,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question: the program runs beside, its steps come as they happen."""
        stream: asyncio.Queue[Step | None] = asyncio.Queue()
        session = Session(
            self.lm,
            self.retriever,
            seed=self.seed,
            adapter=self.adapter,
            words=self.words,
            budget=self.budget,
            tell=stream.put_nowait,
        )
        running = asyncio.create_task(self._run(session, question))
        running.add_done_callback(lambda _: stream.put_nowait(None))
        try:
            while (step := await stream.get()) is not None:
                yield step
            done = await running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        counts = ", ".join(f"{n} {what}" for what, n in sorted(session.counts.items()))
        call = done.call
        if counts:
            call = replace(call, warnings=(*call.warnings, f"In this run: {counts}."))
        yield Answer(done.answer, done.stop, done.passages, call, reason=done.reason)

    async def _run(self, session: Session, question: Question) -> Prediction:
        x = Example.of(question)
        x = replace(x, fields={k: v for k, v in x.fields.items() if k != "answers"})
        if self.demonstrations is not None:
            x = replace(x, demos=await self.demonstrations.of(session, x))
        return await PROGRAMS[self.program](session, x, self.program_settings)
