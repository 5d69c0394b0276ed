"""Index terms of a text as Lucene's `english` analyzer makes them, so that scores agree.

The chain is Lucene's: words, possessive 's off, lower case, 33 stop words off, Porter's first
stemmer. Positions are not kept; BM25 needs none.
"""

from functools import lru_cache

from multihop.retrievers.porter import stem
from multihop.retrievers.words import plain, words
from multihop.text import STOP_WORDS


def analyze(text: str) -> list[str]:
    """Cut a text into index terms.

    Args:
        text: Anything, also empty, with NUL or with lone surrogates (which are no words).

    Returns:
        The terms in order, repeats included; none is empty or holds white space.
    """
    line = term_line(text)
    return line.split(" ") if line else []


def term_line(text: str) -> str:
    """The index terms of a text, with one blank between two."""
    if plain(text):  # then no word reaches over white space
        return " ".join(filter(None, map(_LINES.__getitem__, text.split())))
    return " ".join(filter(None, map(_term, words(text))))


class _Lines(dict[str, str]):
    """The index terms of what stood between white space; forgets all when it has grown large."""

    def __missing__(self, piece: str) -> str:
        if len(self) >= 1 << 19:  # about 80 MB
            self.clear()
        self[piece] = line = " ".join(filter(None, map(_term, words(piece))))
        return line


_LINES = _Lines()


@lru_cache(1 << 17)
def _term(word: str) -> str:
    """The index term of a word; empty for a stop word and for underscores alone."""
    if word[-2:-1] in ("'", "\u2019", "\uff07") and word[-1] in "sS":
        word = word[:-2]
    term = _lower(word)
    if term in STOP_WORDS or (term[:1] == "_" and not term.strip("_")):
        return ""
    if term.isascii() or max(term) <= "\uffff":
        return stem(term)
    # Lucene stems UTF-16 units: a character beyond U+FFFF is two letters to it.
    units = term.encode("utf-16-le")
    split = "".join(
        chr(int.from_bytes(units[i : i + 2], "little")) for i in range(0, len(units), 2)
    )
    return stem(split).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _lower(word: str) -> str:
    # Java lowers character by character: no final sigma, and I with a dot becomes plain i.
    if word.isascii() or not ("\u0130" in word or "\u03a3" in word):
        return word.lower()
    return "".join(char.lower()[0] for char in word)
