"""How a question, its passages and its chain are laid out for an LM (IRCoT, appendix G).

Wikipedia Title: <title>
<text>

Q: <question>
A: <the chain so far>
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from multihop.errors import BadInput
from multihop.lms.base import Prompt, Turn
from multihop.prompts.demonstrations import BETWEEN, Demonstration
from multihop.text import Passage

TITLE = "Wikipedia Title: "
ANSWER = "So the answer is:"

Pin = Literal["first", "last", "stay"]
"""Where IIRC's main passage stands in a prompt; "stay" leaves it where it was collected."""

NEXT_SENTENCE = (
    "\n\nThe reasoning so far is:\n{chain}\n\n"
    "Write only the next sentence of the reasoning, nothing else. When the reasoning is "
    f"complete, write '{ANSWER}' and the answer."
)
SYSTEM = (
    "Answer the question by reasoning step by step over the passages. Write short factual "
    "sentences that name people, places and works in full. As soon as the answer is known, "
    f"end with a sentence that begins with '{ANSWER}'."
)
SYSTEM_DIRECT = "Answer the question from the passages. Write the bare answer, nothing else."


def paragraph(title: str, text: str, words: int) -> str:
    """A passage as prompts show it.

    Args:
        title: Not stripped.
        text: Cut after `words` pieces parted by single blanks, then stripped. A text that
            already begins with a title line is shown as it is.
        words: Most pieces shown (350 in IRCoT's release).
    """
    shown = " ".join(text.split(" ")[:words]).strip()
    return shown if shown.startswith(TITLE) else f"{TITLE}{title}\n{shown}"


def pin(passages: Sequence[Passage], pinned: Passage | None, where: Pin) -> tuple[Passage, ...]:
    """Passages in prompt order, the pinned one in its place.

    It is known by its text; the first passage that has it counts. A pinned passage that was
    never collected comes first, unless it belongs last.

    Raises:
        BadInput: The first passage with the pinned one's text has another title.
    """
    if pinned is None:
        return tuple(passages)
    shown = list(passages)
    place = next((n for n, passage in enumerate(shown) if passage.text == pinned.text), None)
    if place is None:
        place = 0
        shown.insert(0, pinned)
    title = shown[place].title
    if title.strip().lower() != pinned.title.strip().lower():
        raise BadInput(
            f"The pinned passage {pinned.title!r} was collected under the title {title!r}. "
            "Give the question the passage under its own title."
        )
    if where == "stay":
        return tuple(shown)
    shown.pop(place)
    return (pinned, *shown) if where == "first" else (*shown, pinned)


def unfinished(
    question: str, paragraphs: Sequence[str], chain: str = "", instruction: str = ""
) -> str:
    """The unfinished example that the LM goes on with.

    Args:
        question: Used as given.
        paragraphs: As `paragraph` renders them.
        chain: What is already written of the answer.
        instruction: Stands on the question line, before the question.
    """
    context = "\n\n".join(paragraphs)
    asked = f"Q: {instruction}{question}\nA:"
    return f"{context}\n\n{asked} {chain}" if context else f"{asked} {chain}"


def whole(demonstrations: Sequence[Demonstration], test: str) -> str:
    """Demonstrations and test example as one prompt, stripped: it never ends in a blank."""
    return BETWEEN.join([*(d.text for d in demonstrations), test]).strip()


def titles_question(question: str, number: int) -> str:
    """What IIRC's title generation asks."""
    return (
        f"The question is: '{question}'. Generate titles of {number} Wikipedia pages that "
        "have relevant information to answer this question."
    )


def squeeze(text: str) -> str:
    """Runs of blank lines made one."""
    return re.sub(r"\n\n+", "\n\n", text)


@dataclass(frozen=True, slots=True)
class ChatForm:
    """How the same request looks as a chat.

    Attributes:
        system: The system message.
        ask_next: How the next sentence is asked of a server that cannot continue an
            assistant turn; empty where a whole answer is wanted.
    """

    system: str = SYSTEM
    ask_next: str = NEXT_SENTENCE

    def turns(
        self, demonstrations: Sequence[Demonstration], test: str, chain: str = ""
    ) -> tuple[Turn, ...]:
        """Demonstrations as turns, the test example last, its chain to be continued."""
        shown: list[Turn] = [Turn("system", self.system)]
        for demonstration in demonstrations:
            shown += [
                Turn("user", demonstration.asked),
                Turn("assistant", demonstration.answered),
            ]
        asked = test.rpartition("\nA:")[0] or test
        shown.append(Turn("user", asked.strip()))
        if chain:
            shown.append(Turn("assistant", chain))
        return tuple(shown)


CHAT_COT = ChatForm()
CHAT_READ = ChatForm(ask_next="")
CHAT_DIRECT = ChatForm(SYSTEM_DIRECT, "")


def prompt(
    text: str,
    demonstrations: Sequence[Demonstration],
    test: str,
    chain: str,
    chat: ChatForm,
) -> Prompt:
    """Both forms of one request."""
    block = "".join(d.text + BETWEEN for d in demonstrations).lstrip()
    shared = len(block) if text.startswith(block) else 0
    return Prompt(text, chat.turns(demonstrations, test, chain), chat.ask_next, shared)
