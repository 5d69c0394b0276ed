"""Word documents (.docx), by python-docx."""

import re
from collections.abc import Iterator
from pathlib import Path

from docx import Document
from docx.table import Table

from multihop.corpus.sections import Paragraph, Section, by_heading, reading


def sections(path: Path) -> Iterator[Section]:
    """Paragraphs under the headings of Word's own styles; a table's row is a paragraph."""
    with reading("Word document"):
        document = Document(str(path))
        title = " ".join((document.core_properties.title or "").split())
        blocks = []
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                blocks += [(0, Paragraph(row)) for row in _rows(block)]
            elif text := " ".join(block.text.split()):
                style = (block.style and block.style.name) or ""
                if style == "Title":
                    title = title or text
                heading = re.fullmatch("[Hh]eading ([1-6])", style)
                if text != title:
                    blocks.append((int(heading[1]) if heading else 0, Paragraph(text)))
    yield from by_heading(blocks, title, path.stem)


def _rows(table: Table) -> Iterator[str]:
    for row in table.rows:
        cells = [" ".join(cell.text.split()) for cell in row.cells]
        # A merged cell is listed once for each column that it spans.
        kept = [cell for i, cell in enumerate(cells) if cell and [cell] != cells[i - 1 : i]]
        if kept:
            yield " | ".join(kept)
