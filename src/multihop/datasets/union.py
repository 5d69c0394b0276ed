"""Corpora that are the contexts of a data set's questions, each once."""

import hashlib
from collections.abc import Iterable, Iterator

from multihop.text import Passage


def named(title: str, text: str) -> str:
    """The id of a passage in such a corpus: a hash of its title and text, 16 hexadecimal digits.

    IRCoT's release hashes the same string, title, blank and text; what it takes for a repeat is
    one here.
    """
    content = f"{title} {text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def union(paragraphs: Iterable[tuple[str, str]]) -> Iterator[Passage]:
    """Passages in the order of their first occurrence; the ids of all of them are kept."""
    seen: set[str] = set()
    for title, text in paragraphs:
        name = named(title, text)
        if name not in seen:
            seen.add(name)
            yield Passage(name, title, text)
