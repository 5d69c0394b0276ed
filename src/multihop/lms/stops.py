"""Ends a stream at stop strings, for servers and models that do not do it themselves."""

from collections.abc import Sequence

from multihop.lms.thinking import open_end


class StopCutter:
    """Cuts a streamed text before the stop string that is complete first.

    Text that may be the beginning of a stop string is held back until that is decided.

    Args:
        stops: Empty ones are ignored.

    Attributes:
        hit: A stop string was found; nothing more is given.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.hit = False
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def feed(self, text: str) -> str:
        """Take the next piece; give what certainly comes before any stop string."""
        if self.hit:
            return ""
        self._held += text
        # The one that is complete first, as if the text came letter by letter.
        found = [(at + len(s), at) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            self.hit = True
            _, sure = min(found)
        else:
            sure = len(self._held) - max((open_end(self._held, s) for s in self._stops), default=0)
        text, self._held = self._held[:sure], self._held[sure:]
        return text

    def finish(self) -> str:
        """Give what was held back when the stream has ended without a stop string."""
        held, self._held = self._held, ""
        return "" if self.hit else held
