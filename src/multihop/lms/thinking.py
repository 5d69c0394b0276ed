"""Takes the `<think>` part out of what a thinking model writes."""

OPEN, CLOSE = "<think>", "</think>"


class ThinkingSplitter:
    """Splits a stream of text into answer and thinking, wherever the pieces are cut.

    A model's thinking counts as such only when it comes before the answer: nothing but white
    space may stand before the opening tag. Later tags are the answer's own text. Blanks
    between the closing tag and the answer are dropped.
    """

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"

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
            thought, closed, rest = self._held.partition(CLOSE)
            if closed:
                thinking, self._held, self._state = thought, rest, "after"
            else:
                keep = _open_end(thought, CLOSE)
                thinking, self._held = thought[: len(thought) - keep], thought[-keep:] * bool(keep)
        if self._state == "after":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "answer"
        if self._state == "answer":
            answer, self._held = self._held, ""
        return answer, thinking

    def finish(self) -> tuple[str, str]:
        """Give what was held back when the stream has ended."""
        held, self._held = self._held, ""
        return ("", held) if self._state == "thinking" else (held, "")


def _open_end(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if tag.startswith(text[-n:])), 0)
