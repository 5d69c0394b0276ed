"""Prompts whose answer is a transcript: self-ask, ReAct and DecomP."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from multihop.lms.base import Prompt, Turn

BETWEEN = "\n\n"
"""Parts one example from the next."""


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example.

    Attributes:
        asked: What is given.
        written: The whole transcript.
    """

    asked: str
    written: str


@dataclass(frozen=True, slots=True)
class TranscriptForm:
    """What all prompts of a strategy have in common.

    Attributes:
        system: How to write, for chat models.
        examples: In prompt order.
        head: Stands before the examples where there is no system message.
    """

    system: str
    examples: Sequence[Example]
    head: str = ""

    @property
    def text(self) -> str:
        """Everything that stands before what is asked."""
        parts = [self.head, *(f"{e.asked}\n{e.written}" for e in self.examples)]
        return "".join(part + BETWEEN for part in parts if part)

    def digest(self) -> str:
        """A hash of all that prompts have in common, so that an edited one is another run."""
        return sha256(f"{self.system}\0{self.text}".encode()).hexdigest()[:16]

    def prompt(self, asked: str, written: str) -> Prompt:
        """Ask the model to go on with a transcript.

        Args:
            asked: What is given.
            written: The transcript so far; never empty, for it says what comes next.
        """
        turns = [Turn("system", self.system)]
        for example in self.examples:
            turns += [Turn("user", example.asked), Turn("assistant", example.written)]
        turns += [Turn("user", asked), Turn("assistant", written)]
        return Prompt(f"{self.text}{asked}\n{written}", tuple(turns), _NEXT, len(self.text))


_NEXT = (
    "\n\nThis is written so far:\n{chain}\n\nGo on exactly where it ends. Write only what comes "
    "next, in the same form."
)
