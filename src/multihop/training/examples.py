"""What a model learns from: prompts just as the loop writes them, and how they go on."""

from dataclasses import dataclass
from typing import Literal

Skill = Literal["next", "query", "read", "fact"]
"""What an example teaches.

"next": the next sentence, from what the passages say. "query": the next sentence where they do
not say it yet, which names what to look for. "read": the bare answer. "fact": a question of one
hop about one passage, or about two to be compared.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and how it goes on.

    Attributes:
        prompt: As the loop would send it, to the byte.
        completion: What is learned; begins with a blank. A line end at its end is the stop.
        skill: What it teaches.
        question: Id of the annotated question that it was made from.
        weight: Of its tokens in the loss, above 0.
    """

    prompt: str
    completion: str
    skill: Skill
    question: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Lesson:
    """Examples over the same passages. What their prompts share is evaluated once.

    Attributes:
        question: Id of the annotated question; lessons of one question stay together when a
            validation part is cut off.
        examples: At least one.
    """

    question: str
    examples: tuple[Example, ...]
