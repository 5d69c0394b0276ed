"""Splits paragraphs into passages of about the same length."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from multihop.errors import BadInput

# Where a sentence ends. Abbreviations cost a boundary here, never a word.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]\u2019\u201d]*\s+|(?<=[\u3002\uff01\uff1f])")

_LETTERS_A_WORD = 8
"""Text without blanks (Chinese, Thai, a long URL) counts a word for every so many letters."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """How long passages are.

    Attributes:
        words: A passage is closed when it has this many words.
        most: No passage has more, unless one word alone is longer.
    """

    words: int = 100
    most: int = 150

    def __post_init__(self) -> None:
        if not 1 <= self.words <= self.most:
            raise BadInput(
                f"passages of {self.words} to {self.most} words: "
                "the first number must be at least 1, the second not below the first."
            )


def split(paragraphs: Iterable[str], splitting: Splitting) -> Iterator[str]:
    """Join short paragraphs and split long ones, at sentence ends where that is possible.

    Args:
        paragraphs: Texts, in order; white space in them does not matter.
        splitting: How long the passages shall be.

    Yields:
        Passages; the paragraphs in one are lines. No word is lost or doubled.
    """
    passage: list[str] = []
    size = 0
    for paragraph in paragraphs:
        first = True
        for piece in _pieces(" ".join(paragraph.split()), splitting.most):
            words = _size(piece)
            if passage and (size + words > splitting.most or size >= splitting.words):
                yield "".join(passage)
                passage, size = [], 0
            if passage:
                passage.append("\n" if first else " ")
            passage.append(piece)
            size += words
            first = False
    if passage:
        yield "".join(passage)


def _pieces(paragraph: str, most: int) -> Iterator[str]:
    """The paragraph itself when it fits, else its sentences, else parts of these."""
    if _size(paragraph) <= most:
        if paragraph:
            yield paragraph
        return
    for sentence in _sentences(paragraph):
        if _size(sentence) <= most:
            yield sentence
        else:
            yield from _parts(sentence, most)


def _sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(paragraph):
        sentence = paragraph[start : end.end()].strip()
        start = end.end()
        if sentence:
            yield sentence
    if rest := paragraph[start:].strip():
        yield rest


def _parts(sentence: str, most: int) -> Iterator[str]:
    part: list[str] = []
    size = 0
    for word in sentence.split(" "):
        for start in range(0, len(word), most * _LETTERS_A_WORD):
            piece = word[start : start + most * _LETTERS_A_WORD]
            if part and size + _size(piece) > most:
                yield " ".join(part)
                part, size = [], 0
            part.append(piece)
            size += _size(piece)
    if part:
        yield " ".join(part)


def _size(text: str) -> int:
    return max(len(text.split()), len(text) // _LETTERS_A_WORD)
