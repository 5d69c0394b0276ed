"""Iter-RetGen: whole generations as queries, for a fixed number of rounds (Shao et al., 2023)."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from multihop.retrievers.base import Retriever
from multihop.strategies.budget import Budget
from multihop.strategies.collect import Collected, look_up
from multihop.strategies.writing import Writer
from multihop.text import Json, Question
from multihop.trace import Answer, Step, Thought


@dataclass(frozen=True)
class IterRetGen:
    """Search with the question and everything that was last generated, and generate again.

    Paper, section 3: in each of a fixed number of rounds the question and the last generation,
    one after the other, are the query; the next generation sees what this query found and nothing
    of earlier rounds. The last round's answer counts.

    Attributes:
        retriever: Finds passages.
        writer: Holds the reader, which writes every generation.
        k: Passages fetched per round, and shown (paper 5).
        rounds: How many (paper: up to 7, mostly 2).
        budget: What a question may cost; at its end the round's answer counts.
    """

    retriever: Retriever
    writer: Writer
    k: int = 5
    rounds: int = 2
    budget: Budget = field(default_factory=Budget)
    name: str = "iter-retgen"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        return {
            **self.writer.settings,
            "retriever": self.retriever.name,
            "k": self.k,
            "rounds": self.rounds,
            **self.budget.settings,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        rules = self.writer.preset
        taken: list[Step] = []
        answer: Answer | None = None
        generation = ""
        for number in range(1, self.rounds + 1):
            # Retrieve: with the last generation and the question.
            query = f"{generation} {question.text}".strip()
            collected = Collected(self.k, rules.duplicate, rules.longest)
            search = await look_up(self.retriever, query, self.k, collected)
            yield search
            taken.append(search)
            shown = self.writer.in_order(collected.passages, question)
            if answer and shown == answer.passages:
                # The same prompt would be written once more, and the same said to it.
                yield Answer(answer.text, "no_gain", shown, reason=answer.reason)
                return

            # Generate: over what this query found. The last round's answer counts.
            answer = await self.writer.read(question, collected.passages, "answered")
            drafts = _drafts(answer)
            over = self.budget.ended([*taken, *drafts]) if number < self.rounds else None
            if number == self.rounds or over:
                yield replace(answer, stop=over or answer.stop)
                return
            for draft in drafts:
                yield draft
            taken += drafts
            generation = " ".join(draft.text for draft in drafts if draft.text)


def _drafts(answer: Answer) -> list[Thought]:
    """A generation as thoughts: what the reader wrote, and the answer where it was asked for."""
    written = answer.call.outputs[0].strip() if answer.call else ""
    drafts = [Thought(" ".join(written.split()), answer.call, kind="draft")]
    if answer.forced:
        drafts.append(Thought(answer.text, answer.forced, kind="draft"))
    return drafts
