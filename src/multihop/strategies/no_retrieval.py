"""NoR: the reader alone, from what the LM knows (Trivedi et al. 2023, section 4.3)."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from multihop.strategies.writing import Writer
from multihop.text import Json, Question
from multihop.trace import Step


@dataclass(frozen=True)
class NoR:
    """Answer without retrieval; IIRC's main passage is shown.

    Attributes:
        writer: Writes prompts by the preset and asks the LM; holds the reader.
    """

    writer: Writer
    name: str = "nor"

    @property
    def settings(self) -> dict[str, Json]:
        """Everything that decides the result."""
        return self.writer.settings

    async def steps(self, question: Question) -> AsyncGenerator[Step, None]:
        """Work on one question."""
        yield await self.writer.read(question, (), "answered", alone=True)
