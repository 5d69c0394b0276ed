"""Plain text: paragraphs parted by blank lines, in UTF-8 or, with its mark, UTF-16."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from multihop.corpus.sections import Paragraph, Section, reading

GATHERED = 1000
"""Lines of a paragraph that are held at once; a text without blank lines is cut here."""


def sections(path: Path) -> Iterator[Section]:
    """The whole text as one section, read while it is used."""
    yield Section(path.stem, paragraphs=_paragraphs(path))


def _paragraphs(path: Path) -> Iterator[Paragraph]:
    with reading("text"):
        with path.open("rb") as file:
            utf_16 = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        lines: list[str] = []
        begun = 1
        with path.open(encoding="utf-16" if utf_16 else "utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    begun = begun if lines else number
                    lines.append(line)
                if lines and (not line.strip() or len(lines) == GATHERED):
                    yield Paragraph("".join(lines), begun)
                    lines = []
        if lines:
            yield Paragraph("".join(lines), begun)
