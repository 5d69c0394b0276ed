"""OneR: one retrieval with the question, then the reader (Trivedi et al. 2023, section 4.2)."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from multihop.retrievers.base import Retriever
from multihop.strategies.collect import Collected, look_up
from multihop.strategies.titles import propose_titles
from multihop.strategies.writing import Writer
from multihop.text import Json, Question
from multihop.trace import Answer, Step


@dataclass(frozen=True)
class OneR:
    """Retrieve once, read.

    Attributes:
        retriever: Finds passages.
        writer: Writes prompts by the preset and asks the LM; holds the reader. With the
            reader "none" only passages are found; the LM is asked for IIRC's titles alone.
        k: Passages fetched (paper: tuned over 5, 7, 9, 11, 13, 15; 15 for recall).
        max_passages: Most passages kept (15).
    """

    retriever: Retriever
    writer: Writer
    k: int = 5
    max_passages: int = 15
    name: str = "oner"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        return {
            **self.writer.settings,
            "retriever": self.retriever.name,
            "k": self.k,
            "max_passages": self.max_passages,
        }

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        preset = self.writer.preset
        titles = None
        if question.pinned is not None:
            proposed = await propose_titles(self.writer, self.retriever, question)
            titles = proposed.mapped
            yield proposed

        # The main passage of IIRC is not among what one retrieval found (release).
        collected = Collected(self.max_passages, preset.duplicate, preset.longest)
        query = preset.question_query(question.text)
        yield await look_up(self.retriever, query, self.k, collected, titles)

        if self.writer.reader == "none":
            passages = tuple(collected.passages)
            yield Answer("", "answered", passages, reason="No reader was asked for an answer.")
            return
        yield await self.writer.read(question, collected.passages, "answered")
