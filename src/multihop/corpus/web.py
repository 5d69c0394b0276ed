"""HTML and Markdown, by Beautiful Soup and markdown-it-py."""

import re
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup
from bs4.element import CData, NavigableString, PageElement, Tag
from markdown_it import MarkdownIt

from multihop.corpus.sections import Section, by_heading, reading

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


def html_sections(path: Path) -> Iterator[Section]:
    """The text of a page; scripts, styles and navigation are left out."""
    with reading("HTML"):
        content = path.read_bytes()
    yield from _sections(content, "", path.stem)


def markdown_sections(path: Path) -> Iterator[Section]:
    """CommonMark with tables; a YAML front matter may give the title and is left out."""
    with reading("Markdown"):
        text = path.read_text(encoding="utf-8-sig")
        title = ""
        if front := re.match(r"---\n(.*?\n)?---\s*\n", text, re.DOTALL):
            text = text[front.end() :]
            if named := re.search(r"^title:[ \t]*(.+)$", front[1] or "", re.MULTILINE):
                title = named[1].strip().strip("\"'")
        html = MarkdownIt("commonmark").enable("table").render(text)
    yield from _sections(html, title, path.stem)


def _sections(html: str | bytes, title: str, name: str) -> Iterator[Section]:
    with reading("HTML"):
        soup = BeautifulSoup(html, "html.parser")
        if soup.title and not title:
            title = " ".join(soup.title.get_text().split())
        blocks = list(_blocks(soup))
    yield from by_heading(blocks, title, name)


def _blocks(soup: BeautifulSoup) -> Iterator[tuple[int, str]]:
    """Blocks of text with their heading level; 0 is a paragraph, as is a table's row."""
    words: list[str] = []
    level = 0
    # Depth first without recursion: no nesting is too deep. None ends a block.
    waiting: list[tuple[PageElement | None, int]] = [(soup, 0)]
    while waiting:
        element, outer = waiting.pop()
        block = element is None or (isinstance(element, Tag) and element.name in _BLOCKS)
        if block:
            text = " ".join("".join(words).split()).strip(" |")
            if text:
                yield level, text
            words = []
        if element is None:
            level = outer
        elif isinstance(element, Tag) and element.name not in _LEFT_OUT:
            if element.name in _CELLS:
                words.append(" | ")
            if block:
                waiting.append((None, level))
                level = _HEADINGS.get(element.name, level)
            waiting += [(child, level) for child in reversed(element.contents)]
        elif type(element) in (NavigableString, CData):  # no comments, no doctype
            words.append(str(element))
    if text := " ".join("".join(words).split()).strip(" |"):
        yield level, text
