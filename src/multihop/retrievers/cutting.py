"""Passages cut to what a model can read, by its own count of tokens."""

import re
from collections.abc import Awaitable, Callable, Sequence

from multihop.text import Passage

Count = Callable[[Sequence[str]], Awaitable[list[int]]]
"""Counts the tokens of each text."""

LETTERS = 32
"""No text is counted of which more than so many letters a token are there: it cannot fit."""

_SURROGATES = re.compile("[\\ud800-\\udfff]")


def titled(passage: Passage) -> str:
    """A passage as a reranker reads it: its title, a line end, its text."""
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def sound(text: str) -> str:
    """A text without halves of surrogate pairs, which no tokenizer takes."""
    return _SURROGATES.sub("\ufffd", text)


async def cut(texts: Sequence[str], limit: int, count: Count) -> tuple[list[str], int]:
    """Cut each text to a number of tokens.

    Args:
        texts: What is to be read.
        limit: Most tokens of each, at least 1.
        count: The model's own.

    Returns:
        The texts, those that were too long cut at the end, at a blank where there is one near;
        and how many were cut.
    """
    found = [text[: LETTERS * limit] for text in texts]
    waiting = list(range(len(found)))
    while waiting:
        counts = await count([found[n] for n in waiting])
        long = [(n, tokens) for n, tokens in zip(waiting, counts, strict=True) if tokens > limit]
        for n, tokens in long:
            # A little less than the share that fits: most texts are counted twice, not more.
            found[n] = _shorter(found[n], int(len(found[n]) * limit / tokens * 0.98))
        waiting = [n for n, _ in long if found[n]]
    return found, sum(after != before for after, before in zip(found, texts, strict=True))


def _shorter(text: str, length: int) -> str:
    """A beginning of a text of at most this length, but of less than the whole."""
    text = text[: min(length, len(text) - 1)]
    blank = text.rfind(" ", max(0, len(text) - 20))
    return text[:blank] if blank > 0 else text
