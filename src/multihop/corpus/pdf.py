"""PDF, by pypdf."""

import re
from collections.abc import Iterator
from pathlib import Path

from pypdf import PdfReader

from multihop.corpus.sections import Paragraph, Section, reading
from multihop.errors import BadInput


def sections(path: Path) -> Iterator[Section]:
    """A section a page, so that each passage knows its page. Scanned pages hold no text.

    Raises:
        BadInput: Damaged, or locked by a password.
    """
    with reading("PDF"):
        document = PdfReader(path)
        if document.is_encrypted and not document.decrypt(""):
            raise BadInput("is locked by a password. Save a copy without one.")
        title = (document.metadata and document.metadata.title) or ""
        title = " ".join(title.split()) or path.stem
        pages = len(document.pages)
    for number in range(pages):
        with reading("PDF"):
            text = document.pages[number].extract_text()
        text = re.sub(r"(?<=\w)-\n(?=[a-z])", "", text)  # a word parted at a line's end
        paragraphs = [Paragraph(p) for p in re.split(r"\n\s*\n", text) if p.strip()]
        if paragraphs:
            yield Section(title, page=number + 1, paragraphs=paragraphs)
