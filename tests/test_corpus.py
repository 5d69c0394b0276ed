"""Corpora as users have them: JSONL, folders of documents, and what is wrong with them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.corpus import Reader, Splitting
from multihop.corpus.split import split
from multihop.errors import BadInput, MissingExtra
from multihop.text import Passage


def read(*paths: Path, **options) -> list[Passage]:
    return list(Reader(paths, **options))


def jsonl(path: Path, *lines: object) -> Path:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


# --- JSONL -----------------------------------------------------------------------------------


def test_other_fields_become_metadata_and_numbers_may_be_ids(tmp_path):
    path = jsonl(
        tmp_path / "c.jsonl",
        {"id": "a", "title": "A", "text": "One.", "page": 3, "tags": ["x"]},
        "",
        {"id": 7, "title": "", "text": ""},
    )
    assert read(path) == [
        Passage("a", "A", "One.", {"page": 3, "tags": ["x"]}),
        Passage("7", "", ""),
    ]


def test_odd_characters_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path):
    path = tmp_path / "c.jsonl"
    line = '{"id": "a", "title": "\\u0000", "text": "\\ud800 שלום 😀\\u2028"}'
    path.write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\r\n")
    assert read(path) == [Passage("a", "\0", "\ud800 שלום 😀\u2028")]


BAD_LINES = {
    '{"id": "a"': "not JSON",
    "[1, 2]": "expected a JSON object with id, title and text, found list",
    '{"id": "a", "title": "A", "body": "x"}': r"passage has no 'text' \(its fields: id, title, body\)",
    "{}": r"passage has no 'id' \(its fields: none\)",
    '{"id": "", "title": "", "text": "x"}': "the id is empty",
    '{"id": true, "title": "", "text": "x"}': "'id' must be a string, found bool",
    '{"id": "a", "title": null, "text": "x"}': r"'title' must be a string, found NoneType \(null\)",
    '{"id": "a", "title": "", "text": ["x"]}': "'text' must be a string, found list",
    "[" * 100_000: "not JSON",
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.items(), ids=lambda text: text[:30])
def test_a_bad_line_is_named_by_file_and_line(tmp_path, line, message):
    path = jsonl(tmp_path / "c.jsonl", {"id": "ok", "title": "", "text": "fine"}, line)
    with pytest.raises(BadInput, match=rf"c\.jsonl:2: .*{message}"):
        read(path)


def test_a_line_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(b'{"id": "a", "title": "\xff", "text": ""}\n')
    with pytest.raises(BadInput, match=r"c\.jsonl:1: not UTF-8 at byte 22"):
        read(tmp_path / "c.jsonl")


def test_bad_lines_can_be_skipped_counted_and_listed(tmp_path):
    good = [{"id": str(n), "title": "", "text": "x"} for n in range(3)]
    path = jsonl(tmp_path / "c.jsonl", good[0], *BAD_LINES, good[1], "{", good[2])
    reader = Reader([path], skip_bad=True)
    assert [passage.id for passage in reader] == ["0", "1", "2"]
    assert reader.rejections == len(reader.rejected) == len(BAD_LINES) + 1
    assert reader.rejected[-1].where == f"{path}:{len(BAD_LINES) + 3}"


def test_a_refused_passage_is_named_by_its_line(tmp_path):
    path = jsonl(tmp_path / "c.jsonl", *[{"id": "a", "title": "", "text": "x"}] * 2)
    reader = Reader([path])
    passages = iter(reader)
    next(passages), next(passages)
    with pytest.raises(BadInput, match=r"c\.jsonl:2: taken"):
        reader.reject("taken")


def test_memory_does_not_grow_with_the_file(tmp_path):
    import tracemalloc

    path = tmp_path / "c.jsonl"
    with path.open("w") as file:
        for n in range(20_000):
            file.write(json.dumps({"id": str(n), "title": "", "text": "word " * 50}) + "\n")
    tracemalloc.start()
    count = sum(1 for _ in Reader([path]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 500_000 < path.stat().st_size


# --- Documents -------------------------------------------------------------------------------


def test_text_is_split_at_blank_lines_and_named_by_its_file(tmp_path):
    path = tmp_path / "Notes on Ulm.txt"
    path.write_text("Ulm lies on\nthe Danube.\n\n\n  Its minster is tall.\n")
    [passage] = read(path, splitting=Splitting(50, 60))
    assert passage == Passage(
        f"{path}#1",
        "Notes on Ulm",
        "Ulm lies on the Danube.\nIts minster is tall.",
        {"path": str(path), "line": 1},
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_in_unicode_is_read(tmp_path, encoding):
    (tmp_path / "a.txt").write_text("Grüße aus Ulm", encoding=encoding)
    assert [p.text for p in read(tmp_path)] == ["Grüße aus Ulm"]


def test_text_that_is_not_unicode_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes("Grüße".encode("latin-1"))
    with pytest.raises(BadInput, match=r"a\.txt: not UTF-8 at byte 2"):
        read(tmp_path)


MARKDOWN = """---
title: "The Guide"
---
Opening words.

# Installation

Needs *Python* and `pip`, see [there](http://x).

- one point
- another

## Linux
```
pip install x
```

# Use

| a | b |
|---|---|
| 1 | 2 |

<b>bold</b> &amp; done<script>alert(1)</script>
"""


def test_markdown_headings_become_titles(tmp_path):
    (tmp_path / "guide.md").write_text(MARKDOWN)
    passages = read(tmp_path)
    assert [(p.title, p.text) for p in passages] == [
        ("The Guide", "Opening words."),
        (
            "The Guide / Installation",
            "Needs Python and pip, see there.\none point\nanother",
        ),
        ("The Guide / Installation / Linux", "pip install x"),
        ("The Guide / Use", "a | b\n1 | 2\nbold & done"),
    ]
    assert passages[2].metadata["headings"] == ["Installation", "Linux"]


def test_a_first_heading_names_a_document_without_a_title(tmp_path):
    (tmp_path / "x.md").write_text("# Ulm\nA city.\n## Minster\nTall.")
    assert [p.title for p in read(tmp_path)] == ["Ulm", "Ulm / Minster"]


def test_html_gives_its_text_and_nothing_else(tmp_path):
    (tmp_path / "page.html").write_text(
        "<html><head><title> A  page </title><style>p{}</style></head><body><nav>Menu</nav>"
        "<h1>A page</h1><p>First<br>line <b>bo</b>ld</p><!-- no --><div>Bare <i>text</i>"
        "<ul><li>One<li>Two</ul></div><script>x()</script>"
        "<table><tr><th>K<td>V</tr></table><h2>Part</h2><p>Last"
    )
    assert [(p.title, p.text) for p in read(tmp_path)] == [
        ("A page", "First\nline bold\nBare text\nOne\nTwo\nK | V"),
        ("A page / Part", "Last"),
    ]


def test_html_nested_without_end_is_read(tmp_path):
    (tmp_path / "deep.html").write_text("<div>" * 3000 + "core" + "</div>" * 3000)
    assert [p.text for p in read(tmp_path)] == ["core"]


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text a page."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    box = "/MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else ""
        objects += [
            f"<< /Type /Page /Parent 2 0 R {box} /Contents {5 + 2 * n} 0 R >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    out, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n".encode()
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n".encode()
    return out + f"startxref\n{start}\n%%EOF\n".encode()


def test_pdf_passages_know_their_page(tmp_path):
    (tmp_path / "paper.pdf").write_bytes(pdf("First page.", "", "Third page."))
    passages = read(tmp_path)
    assert [(p.title, p.text, p.metadata["page"]) for p in passages] == [
        ("paper", "First page.", 1),
        ("paper", "Third page.", 3),
    ]


def test_word_headings_and_tables_are_read(tmp_path):
    import docx

    document = docx.Document()
    document.add_heading("The Report", 0)
    document.add_paragraph("Opening words.")
    document.add_heading("Figures", 1)
    table = document.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "Rides", "12"
    document.add_heading("Sources", 2)
    document.add_paragraph("None.")
    document.save(tmp_path / "r.docx")
    assert [(p.title, p.text) for p in read(tmp_path)] == [
        ("The Report", "Opening words."),
        ("The Report / Figures", "Rides | 12"),
        ("The Report / Figures / Sources", "None."),
    ]


@pytest.mark.parametrize("suffix", [".pdf", ".docx"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04half a zip"])
def test_a_damaged_document_is_named_or_skipped(tmp_path, suffix, content):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    (tmp_path / "good.txt").write_text("Fine.")
    with pytest.raises(BadInput, match=rf"bad\{suffix}: no readable"):
        read(tmp_path)
    reader = Reader([tmp_path], skip_bad=True)
    assert [p.text for p in reader] == ["Fine."]
    assert [r.where for r in reader.rejected] == [str(path)]


def test_documents_without_text_are_listed(tmp_path):
    (tmp_path / "scan.pdf").write_bytes(pdf(""))
    (tmp_path / "empty.md").write_text("# Only a heading")
    reader = Reader([tmp_path])
    assert list(reader) == []
    assert reader.without_text == [str(tmp_path / "empty.md"), str(tmp_path / "scan.pdf")]


def test_a_missing_library_names_its_extra(tmp_path, monkeypatch):
    import sys

    monkeypatch.delitem(sys.modules, "multihop.corpus.pdf", raising=False)
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (tmp_path / "a.pdf").write_bytes(pdf("x"))
    with pytest.raises(MissingExtra, match=r"multihop\[documents\]"):
        read(tmp_path)


# --- Folders ---------------------------------------------------------------------------------


def test_folders_are_read_in_order_to_any_depth_and_other_files_passed_over(tmp_path):
    for name in ("b/2.txt", "b/1.md", "a/deep/er/3.TXT", "c.py", ".git/x.txt", "b/.hidden.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.stem)
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    assert [p.text for p in read(tmp_path)] == ["3", "1", "2"]


def test_what_is_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    assert len(read(tmp_path, tmp_path / "a.txt", tmp_path)) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [("none", "no such file"), ("x.xls", "not read. Known: .jsonl"), ("empty", "nothing to read")],
)
def test_paths_that_cannot_be_read_are_refused_before_anything_is_read(tmp_path, name, message):
    (tmp_path / "x.xls").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=message):
        Reader([tmp_path / name])


# --- Splitting -------------------------------------------------------------------------------


def test_short_paragraphs_are_joined_and_long_ones_split_at_sentences():
    long = " ".join(f"Sentence {n} has five words." for n in range(8))
    passages = list(split(["Short one.", "Short two.", long], Splitting(words=12, most=15)))
    assert (
        passages[0]
        == "Short one.\nShort two.\nSentence 0 has five words. Sentence 1 has five words."
    )
    assert all(len(p.split()) <= 15 for p in passages)
    assert all(p.endswith(".") for p in passages)


@given(
    st.lists(st.text(alphabet="ab .!?\n。猫", max_size=200), max_size=6),
    st.integers(1, 8),
    st.integers(0, 8),
)
def test_no_letter_is_lost_or_doubled_and_no_passage_is_too_long(paragraphs, words, more):
    splitting = Splitting(words, words + more)
    passages = list(split(paragraphs, splitting))
    assert "".join("".join(passages).split()) == "".join("".join(paragraphs).split())
    assert all(1 <= len(passage.split()) <= splitting.most for passage in passages)


def test_impossible_lengths_are_refused():
    with pytest.raises(BadInput, match="at least 1"):
        Splitting(0, 10)
    with pytest.raises(BadInput, match="below the first"):
        Splitting(20, 10)
