"""HTML and Markdown, by Beautiful Soup and markdown-it-py."""

import re
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup
from bs4.element import CData, NavigableString, PageElement, Tag
from markdown_it import MarkdownIt

from multihop.corpus.sections import Paragraph, Section, by_heading, reading

_LEFT_OUT = {
    "button", "head", "iframe", "nav", "noscript", "script", "style", "svg", "template",
}  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html",
    "li", "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead",
    "tr", "ul", *_HEADINGS,
}  # fmt: skip
_CELLS = {"td", "th"}
_LINE = "data-source-line"
"""Where rendered Markdown says which line a block comes from."""


def html_sections(path: Path) -> Iterator[Section]:
    """The text of a page; scripts, styles and navigation are left out."""
    with reading("HTML"):
        content = path.read_bytes()
    yield from _sections(content, "", path.stem)


def markdown_sections(path: Path) -> Iterator[Section]:
    """CommonMark with tables; a YAML front matter may give the title and is left out."""
    with reading("Markdown"):
        text = path.read_text(encoding="utf-8-sig")
        title, before = "", 0
        if front := re.match(r"---\n(.*?\n)?---\s*\n", text, re.DOTALL):
            text = text[front.end() :]
            before = front[0].count("\n")
            if named := re.search(r"^title:[ \t]*(.+)$", front[1] or "", re.MULTILINE):
                title = named[1].strip().strip("\"'")
        markdown = MarkdownIt("commonmark").enable("table")
        tokens = markdown.parse(text)
        for token in tokens:
            if token.map and token.nesting >= 0:
                token.attrSet(_LINE, str(before + token.map[0] + 1))
        html = markdown.renderer.render(tokens, markdown.options, {})
    yield from _sections(html, title, path.stem, rendered=True)


def _sections(
    html: str | bytes, title: str, name: str, *, rendered: bool = False
) -> Iterator[Section]:
    with reading("HTML"):
        soup = BeautifulSoup(html, "html.parser")
        if soup.title and not title:
            title = " ".join(soup.title.get_text().split())
        blocks = list(_blocks(soup, rendered=rendered))
    yield from by_heading(blocks, title, name)


def _blocks(soup: BeautifulSoup, *, rendered: bool) -> Iterator[tuple[int, Paragraph]]:
    """Blocks of text with their heading level; 0 is a paragraph, as is a table's row."""
    words: list[str] = []
    level = 0
    line: int | None = None
    # Depth first without recursion: no nesting is too deep. None ends a block.
    waiting: list[tuple[PageElement | None, int, int | None]] = [(soup, 0, None)]
    while waiting:
        element, outer, outer_line = waiting.pop()
        block = element is None or (isinstance(element, Tag) and element.name in _BLOCKS)
        if block:
            text = " ".join("".join(words).split()).strip(" |")
            if text:
                yield level, Paragraph(text, line)
            words = []
        if element is None:
            level, line = outer, outer_line
        elif isinstance(element, Tag) and element.name not in _LEFT_OUT:
            if element.name in _CELLS:
                words.append(" | ")
            if block:
                waiting.append((None, level, line))
                level = _HEADINGS.get(element.name, level)
            if block or rendered:
                line = _line(element, rendered=rendered) or line
            waiting += [(child, level, None) for child in reversed(element.contents)]
        elif type(element) in (NavigableString, CData):  # no comments, no doctype
            words.append(str(element))
    if text := " ".join("".join(words).split()).strip(" |"):
        yield level, Paragraph(text, line)


def _line(element: Tag, *, rendered: bool) -> int | None:
    """The line of the file that an element begins at."""
    if not rendered:
        return element.sourceline
    said = str(element.get(_LINE, ""))
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None
