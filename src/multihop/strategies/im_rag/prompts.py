"""What the Questioner and the Answerer read: the question and the inner monologue.

Each turn's prompt is the one before it with the query that was written and what came for it, so
that a model goes on from what it has evaluated. Both roles read the same text and differ in its
last word alone; an adapter learns it without an example.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from multihop.lms.base import Prompt, Turn
from multihop.text import Passage

FORM = "im-rag"
"""Name of these prompts on an adapter's card."""

HEAD = "Write search queries, one at a time, to find what the question needs; then its answer."
ENOUGH = "ENOUGH"
"""What the Questioner writes for a query when nothing more is to be found (stop = "action")."""
HEAD_ACTION = f"{HEAD} When nothing is missing, write {ENOUGH} for a query."

QUERY, ANSWER = "Query:", "Answer:"

Invalid = Literal["empty", "repeated", "long"]
"""Why a query is not sent: it says nothing, was asked before, or has no end."""

OBSERVED: dict[Invalid, str] = {
    "empty": "- Invalid: the query is empty.",
    "repeated": "- Invalid: this query was made before.",
    "long": "- Invalid: the query is too long.",
}
NOTHING = "- Nothing was found."


@dataclass(frozen=True, slots=True)
class Heard:
    """One turn of the monologue.

    Attributes:
        written: The query just as it was written, with its first blank.
        passages: What was passed on of the search, best first.
        invalid: Why nothing was searched for; None where it was.
    """

    written: str
    passages: tuple[Passage, ...] = ()
    invalid: Invalid | None = None


def shown(passage: Passage, words: int) -> str:
    """A passage on one line."""
    text = " ".join(" ".join(passage.text.split()).split(" ")[:words])
    title = " ".join(passage.title.split())
    return f"- {title}: {text}" if title else f"- {text}"


def observation(turn: Heard, words: int) -> str:
    """What is told after a query: a line a passage, or why there is none."""
    if turn.invalid:
        return OBSERVED[turn.invalid]
    return "\n".join(shown(p, words) for p in turn.passages) or NOTHING


def monologue(question: str, turns: Sequence[Heard], words: int, *, action: bool = False) -> str:
    """The question and all turns shown, as text that ends in a line end."""
    head = HEAD_ACTION if action else HEAD
    told = "".join(f"{QUERY}{turn.written}\n{observation(turn, words)}\n" for turn in turns)
    return f"{head}\n\nQuestion: {' '.join(question.split())}\n{told}"


def query_prompt(
    question: str, turns: Sequence[Heard], words: int, *, action: bool = False
) -> Prompt:
    """Asks for the next query."""
    told = monologue(question, turns, words, action=action)
    return _prompt(told, QUERY, "Write the next query alone.", action=action)


def answer_prompt(
    question: str, turns: Sequence[Heard], words: int, *, action: bool = False
) -> Prompt:
    """Asks for the answer."""
    told = monologue(question, turns, words, action=action)
    return _prompt(told, ANSWER, "Write the answer alone, in a few words.", action=action)


def _prompt(told: str, word: str, asked: str, *, action: bool) -> Prompt:
    head = HEAD_ACTION if action else HEAD
    rest = told[len(head) :].strip()
    return Prompt(told + word, (Turn("system", head), Turn("user", f"{rest}\n\n{asked}")))
