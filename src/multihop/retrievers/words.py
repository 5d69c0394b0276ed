"""Words of a text by Unicode's rules (UAX #29), as Lucene's StandardTokenizer applies them.

Letters and digits make words, `can't`, `a.b` and `1,000.5` are one each; Han and Hiragana
characters are words of their own, Katakana runs and runs of South-East Asian letters are
words, an emoji sequence is one. The character classes are Unicode 9.0's, as in Lucene 8.
"""

import re
from bisect import bisect_right
from functools import cache
from importlib.resources import files

LONGEST = 255
"""In UTF-16 units, as Lucene counts: a longer word is cut into pieces of this length."""


def words(text: str) -> list[str]:
    """Cut a text into words; what stands between them is dropped.

    A run of underscores alone may be among them.
    """
    if plain(text):
        found: list[str] = _EUROPEAN_WORD.findall(text)
    else:
        found = _short_words(text)
    if found and max(map(len, found)) > LONGEST // 2:
        return _any_words(text)
    return found


def plain(text: str) -> bool:
    """Whether a text has no characters but those of most English text."""
    return text.isascii() or _EUROPEAN.fullmatch(text) is not None


# Most English text has no other characters than these, and then this says it all.
_EUROPEAN = re.compile(
    "[\x00-\x7f\xa0-\xa8\xaa-\xac\xaf-\xb6\xb8-\u024f\u2010-\u2023\u2025\u2026\u20ac]*+"
)
_L = "A-Za-z\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\u024f"
_EUROPEAN_WORD = re.compile(
    f"[{_L}0-9_]++(?:(?:(?<=[{_L}])[:.'\u2018\u2019](?=[{_L}])"
    f"|(?<=[0-9])[,;.'\u2018\u2019](?=[0-9]))[{_L}0-9_]++)*+"
)

# Other text is mapped to one class letter a character (`word_break.txt` explains them), and
# words are found in that string. Every loop is possessive: no text makes it backtrack.
_Y = "[EZTVUGgs]*+"  # what extends a character
_X = "[EZUGgs]*+"  # the same without the two selectors, which end an emoji
_LETTER = f"[AaH]{_Y}"
_NUMBERS = f"N{_Y}(?:(?:[,.']{_Y})?N{_Y})*+"
# Hebrew has words with a final ' or an inner "; a letter that begins one stays out of the run.
_HEBREW = f"H{_Y}(?:'{_Y}|\"{_Y}H{_Y})"
_LETTERS = f"{_LETTER}(?:[:.']{_Y}{_LETTER}|(?!{_HEBREW}){_LETTER})*+"
_RUN = f"(?:(?:K{_Y})++|(?:{_HEBREW}|{_NUMBERS}|{_LETTERS})++)"
_JOIN = f"(?:_{_Y})"
_WORD = f"{_JOIN}{{0,{LONGEST}}}+{_RUN}(?:{_JOIN}++{_RUN})*+{_JOIN}*+"

_SKINNED = f"B{_X}M{_X}"
_PICTURE = f"(?:{_SKINNED}|[PBa]{_X}V?+)"
_NEXT = f"(?:(?<=Z)(?:{_PICTURE}|M{_X})|Z(?:Z*+{_PICTURE}|M{_X}))"
_EMOJI = f"(?:Z*+{_PICTURE}|M{_X})(?:{_NEXT}++|G++g)?+|k(?:{_X}VU|[EZGgs]*+U){_X}|R{_Y}R{_Y}"
_TOKEN = re.compile(f"{_WORD}|{_EMOJI}|(?:[Ss]{_Y})++|[JI]{_Y}|(?:Z++|_)(?P<nothing>)")
_ODD = re.compile(f"[aZ_]|[^ ]{{{LONGEST}}}")  # where a token may not be what it seems
_PIECE = 4 * LONGEST
_JOINERS = re.compile("_++")
_EMOJI_TOKEN = re.compile(_EMOJI)


class _Classes(dict[int, str]):
    """Class letters by code point, looked up in the table when first met."""

    def __missing__(self, code: int) -> str:
        starts, ends, letters = _table()
        at = bisect_right(starts, code) - 1
        self[code] = found = letters[at] if at >= 0 and code <= ends[at] else " "
        return found


@cache
def _table() -> tuple[list[int], list[int], list[str]]:
    """First code points, last code points and classes of all ranges, in order."""
    text = files("multihop.retrievers").joinpath("word_break.txt").read_text(encoding="ascii")
    rows = [line.split(" ") for line in text.splitlines() if not line.startswith("#")]
    return (
        [int(row[1], 16) for row in rows],
        [int(row[-1], 16) for row in rows],
        [row[0] for row in rows],
    )


_CLASSES = _Classes()


def _short_words(text: str) -> list[str]:
    """As `_any_words`, where no word is too long."""
    classes = text.translate(_CLASSES)
    if _ODD.search(classes):
        return _any_words(text)
    return [text[slice(*token.span())] for token in _TOKEN.finditer(classes)]


def _any_words(text: str) -> list[str]:
    """Any text in time that grows with its length."""
    classes = text.translate(_CLASSES)
    found = []
    at = 0
    while at < len(classes):
        # Looked at piece by piece, so that a text that is one endless word takes no longer.
        edge = min(at + _PIECE, len(classes))
        token = _TOKEN.search(classes, at, edge)
        if not token:
            at = edge if edge == len(classes) else edge - LONGEST
            continue
        start, end = token.start(), _end(classes, token)
        if start > at and edge - end < LONGEST and edge < len(classes):
            at = start  # the edge may have cut it
            continue
        if end - start > LONGEST // 2 and _units(text[start:end]) > LONGEST:
            # Lucene sees no further than its window when it cuts.
            token = _TOKEN.match(classes, start, _window(text, start))
            end = _end(classes, token) if token else start + 1
        if token and token["nothing"] is None:
            found.append(text[start:end])
        elif joiners := _JOINERS.match(classes, start):
            # Of a row of underscores only the last can be reached by a word after it.
            end = max(end, joiners.end() - LONGEST + 1)
        at = end
    return found


def _end(classes: str, token: re.Match[str]) -> int:
    """Where the token ends; a letter that is an emoji too goes on as whichever is longer."""
    if classes[token.start()] != "a":
        return token.end()
    emoji = _EMOJI_TOKEN.match(classes, token.start(), token.endpos)
    return max(token.end(), emoji.end() if emoji else 0)


def _units(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text)


def _window(text: str, start: int) -> int:
    """The end of the longest piece from `start` on that fits."""
    room = LONGEST
    for end in range(start, len(text)):
        room -= 2 if text[end] > "\uffff" else 1
        if room < 0:
            return end
    return len(text)
