"""What a document is read into: titled runs of paragraphs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from multihop.errors import BadInput, MultihopError


class Paragraph(NamedTuple):
    """A text, and the line that it begins at, from 1, where there are lines."""

    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """The paragraphs between two headings, or of one page.

    Attributes:
        document: The document's own title, or its file name without the ending.
        headings: The headings above it, outermost first.
        page: Page number, from 1, where there are pages.
        paragraphs: Its texts, in order.
    """

    document: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    paragraphs: Iterable[Paragraph] = ()

    @property
    def title(self) -> str:
        """Document and headings, as "Guide / Installation / Linux"."""
        return " / ".join(dict.fromkeys([self.document, *self.headings]))


def by_heading(blocks: Iterable[tuple[int, Paragraph]], title: str, name: str) -> Iterator[Section]:
    """Group blocks of text into sections.

    Args:
        blocks: Texts with their heading level, 1 to 6, or 0 for a paragraph.
        title: The document's title; empty where it has none, then its first heading of level 1
            names what follows.
        name: Stands in for a title.
    """
    headings: dict[int, str] = {}
    paragraphs: list[Paragraph] = []

    def section() -> Section:
        path = tuple(headings[level] for level in sorted(headings))
        return Section(title or name, path, paragraphs=paragraphs)

    for level, block in blocks:
        if not level:
            paragraphs.append(block)
            continue
        if paragraphs:
            yield section()
            paragraphs = []
        headings = {above: text for above, text in headings.items() if above < level}
        headings[level] = block.text
        if level == 1:
            title = title or block.text
    if paragraphs:
        yield section()


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Turn whatever goes wrong in a library into one line about the document.

    Raises:
        BadInput: The library failed.
    """
    try:
        yield
    except MultihopError:
        raise
    except OSError as broken:
        raise BadInput(f"cannot be read ({broken.strerror or broken}).") from broken
    except UnicodeDecodeError as broken:
        raise BadInput(f"not UTF-8 at byte {broken.start}. Convert it first.") from broken
    except Exception as broken:  # other people's files make the libraries fail in every way
        message = " ".join(str(broken).split())
        raise BadInput(f"no readable {kind} ({type(broken).__name__}: {message}).") from broken
