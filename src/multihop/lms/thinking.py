"""Takes the `<think>` part out of what a thinking model writes."""

OPEN, CLOSE = "<think>", "</think>"


class ThinkingSplitter:
    """Splits a stream of text into answer and thinking, wherever the pieces are cut.

    A model's thinking counts as such only when it comes before the answer: nothing but white
    space may stand before the opening tag. Later tags are the answer's own text. Blanks
    between the closing tag and the answer are dropped.

    Args:
        opened: The text begins inside the thinking, because the prompt wrote the opening tag.

    Attributes:
        stray: A closing tag was seen in an answer that no thinking came before: what was
            given as answer was thinking that the prompt had opened.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self.stray = False
        self._state = "thinking" if opened else "start"
        self._held = ""
        self._thought = False
        self._tail = ""

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next piece; give the answer and the thinking that are certain by now."""
        self._held += text
        answer = thinking = ""
        if self._state == "start":
            begun = self._held.lstrip()
            if begun.startswith(OPEN):
                self._state, self._held = "thinking", begun[len(OPEN) :]
            elif not OPEN.startswith(begun):  # it cannot become the tag any more
                self._state = "answer"
        if self._state == "thinking":
            self._thought = True
            thinking, closed, rest = self._held.partition(CLOSE)
            if closed:
                self._held, self._state = rest, "after"
            else:
                sure = len(thinking) - open_end(thinking, CLOSE)
                thinking, self._held = thinking[:sure], thinking[sure:]
        if self._state == "after":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "answer"
        if self._state == "answer":
            answer, self._held = self._held, ""
            self._watch(answer)
        return answer, thinking

    def finish(self) -> tuple[str, str]:
        """Give what was held back when the stream has ended."""
        held, self._held = self._held, ""
        return ("", held) if self._state == "thinking" else (held, "")

    def _watch(self, answer: str) -> None:
        if not self._thought and not self.stray:
            seen = self._tail + answer
            self.stray = CLOSE in seen
            self._tail = seen[1 - len(CLOSE) :]


def open_end(text: str, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)
