"""Splits paragraphs into passages of about the same length, in words or in tokens."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from multihop.corpus.sections import Paragraph
from multihop.errors import BadInput, MissingExtra

# Where a sentence ends. Abbreviations cost a boundary here, never a word.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]\u2019\u201d]*\s+|(?<=[\u3002\uff01\uff1f])")

_LETTERS_A_WORD = 8
"""Text without blanks (Chinese, Thai, a long URL) counts a word for every so many letters."""


Measure = Callable[[str], int]
"""How long a text is."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """How long passages are: in words, or in tokens where a tokenizer is named.

    Attributes:
        words: A passage is closed when it has this many words (or tokens).
        most: No passage has more, unless one word (one letter) alone is longer. Tokens are
            counted sentence by sentence.
        overlap: The end of a passage that the next one begins with again: its last sentences of
            together at most so many words, or the last words where no sentence is so short. It
            never crosses a heading or a page.
        tokenizer: A tokenizer.json as Hugging Face's `tokenizers` writes it; empty: words count.
    """

    words: int = 100
    most: int = 150
    overlap: int = 0
    tokenizer: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.words <= self.most:
            raise BadInput(
                f"passages of {self.words} to {self.most} words: "
                "the first number must be at least 1, the second not below the first."
            )
        if not 0 <= self.overlap < self.words:
            raise BadInput(
                f"an overlap of {self.overlap} words in passages of {self.words}: "
                "it must be at least 0 and below the length."
            )

    @property
    def measure(self) -> Measure:
        """How the length of a text is found.

        Raises:
            MissingExtra: A tokenizer is named and `tokenizers` is not installed.
            BadInput: It cannot be read.
        """
        return _tokens(self.tokenizer) if self.tokenizer else _size


class Cut(NamedTuple):
    """A passage's text, and the line that its first paragraph begins at, where that is known."""

    text: str
    line: int | None


class _Piece(NamedTuple):
    joint: str  # what parts it from the piece before
    text: str
    size: int
    line: int | None


def split(paragraphs: Iterable[str], splitting: Splitting) -> Iterator[str]:
    """The texts of `cut`."""
    return (text for text, _ in cut(map(Paragraph, paragraphs), splitting))


def cut(paragraphs: Iterable[Paragraph], splitting: Splitting) -> Iterator[Cut]:
    """Join short paragraphs and split long ones, at sentence ends where that is possible.

    Args:
        paragraphs: In order; white space in them does not matter.
        splitting: How long the passages shall be.

    Yields:
        Passages; the paragraphs in one are lines. No word is lost, and none is doubled but for
        the overlap.
    """
    measure = splitting.measure
    passage: list[_Piece] = []
    size = fresh = 0  # fresh: pieces that no passage before had
    for paragraph, line in paragraphs:
        joint = "\n"
        for text in _pieces(" ".join(paragraph.split()), splitting, measure):
            more = measure(text)
            if fresh and (size + more > splitting.most or size >= splitting.words):
                yield _joined(passage)
                passage = _said_again(passage, splitting.overlap, measure)
                size, fresh = sum(piece.size for piece in passage), 0
            if not fresh and size + more > splitting.most:  # no room to say anything again
                passage, size = [], 0
            passage.append(_Piece(joint, text, more, line))
            size += more
            fresh += 1
            joint = " "
    if fresh:
        yield _joined(passage)


def _joined(passage: Sequence[_Piece]) -> Cut:
    text = "".join(piece.joint + piece.text for piece in passage)
    return Cut(text[1:], passage[0].line)


def _said_again(passage: Sequence[_Piece], overlap: int, measure: Measure) -> list[_Piece]:
    """The end of a passage that the next one begins with."""
    kept: list[_Piece] = []
    room = overlap
    for piece in reversed(passage):
        if piece.size > room:
            break
        kept.insert(0, piece)
        room -= piece.size
    if kept or not overlap:
        return kept
    last = passage[-1]
    words = last.text.split(" ")
    end = ""
    while words and measure(longer := f"{words.pop()} {end}".rstrip()) <= overlap:
        end = longer
    return [_Piece(" ", end, measure(end), last.line)] if end else []


def _pieces(paragraph: str, splitting: Splitting, measure: Measure) -> Iterator[str]:
    """The paragraph itself when it fits, else its sentences, else parts of these."""
    if not splitting.overlap and measure(paragraph) <= splitting.most:
        if paragraph:
            yield paragraph
        return
    for sentence in _sentences(paragraph):
        if measure(sentence) <= splitting.most:
            yield sentence
        else:
            yield from _parts(sentence, splitting.most, measure)


def _sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(paragraph):
        sentence = paragraph[start : end.end()].strip()
        start = end.end()
        if sentence:
            yield sentence
    if rest := paragraph[start:].strip():
        yield rest


def _parts(sentence: str, most: int, measure: Measure) -> Iterator[str]:
    part: list[str] = []
    size = 0
    for word in sentence.split(" "):
        for start in range(0, len(word), most * _LETTERS_A_WORD):
            for piece in _halves(word[start : start + most * _LETTERS_A_WORD], most, measure):
                more = measure(piece)
                if part and size + more > most:
                    yield " ".join(part)
                    part, size = [], 0
                part.append(piece)
                size += more
    if part:
        yield " ".join(part)


def _halves(word: str, most: int, measure: Measure) -> Iterator[str]:
    """The word, cut in two as often as it takes to fit."""
    if len(word) < 2 or measure(word) <= most:
        yield word
        return
    middle = len(word) // 2
    yield from _halves(word[:middle], most, measure)
    yield from _halves(word[middle:], most, measure)


def _size(text: str) -> int:
    return max(len(text.split()), len(text) // _LETTERS_A_WORD)


@lru_cache(maxsize=1)
def _tokens(path: str) -> Measure:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - only where it is asked for
    except ModuleNotFoundError:
        raise MissingExtra("tokenizers", "documents") from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as broken:  # noqa: BLE001 - the library raises no other kind
        raise BadInput(f"{path}: no tokenizer can be read here ({broken}).") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def measure(text: str) -> int:
        # The blank before it is what it has in a passage; byte-level tokenizers count it.
        sound = f" {text}".encode("utf-8", "replace").decode()
        return len(tokenizer.encode(sound, add_special_tokens=False).ids)

    return measure
