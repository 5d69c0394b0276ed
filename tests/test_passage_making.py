"""Passages made of documents: overlap, tokens, near-duplicates, and where they can be opened."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.corpus import Reader, Splitting
from multihop.corpus.duplicates import first_of_its_kind
from multihop.corpus.sections import Paragraph
from multihop.corpus.split import cut, split
from multihop.errors import BadInput, MissingExtra
from multihop.retrievers.bm25_index import read_manifest
from multihop.text import Passage


def read(*paths: Path, **options) -> list[Passage]:
    return list(Reader(paths, **options))


def sentences(count: int) -> str:
    return " ".join(f"Sentence {n} has five words." for n in range(count))


# --- Overlap ---------------------------------------------------------------------------------


def test_a_passage_begins_with_the_last_sentences_of_the_one_before():
    passages = list(split([sentences(6)], Splitting(15, 15, overlap=6)))
    assert [p.split(" ")[1::5] for p in passages] == [["0", "1", "2"], ["2", "3", "4"], ["4", "5"]]


def test_where_no_sentence_is_so_short_the_last_words_are_said_again():
    passages = list(split([sentences(4)], Splitting(10, 10, overlap=2)))
    assert passages[0].endswith("Sentence 1 has five words.")
    assert passages[1] == "five words. Sentence 2 has five words."
    assert passages[2] == "five words. Sentence 3 has five words."


def test_an_overlap_crosses_no_heading(tmp_path):
    (tmp_path / "a.md").write_text(f"# One\n{sentences(4)}\n## Two\nNew words.")
    passages = read(tmp_path / "a.md", splitting=Splitting(10, 15, overlap=5))
    assert passages[-1].text == "New words."


@given(
    st.lists(st.lists(st.booleans(), max_size=40), max_size=6),
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(0, 7),
)
def test_with_any_overlap_every_word_is_said_in_order_and_no_passage_is_too_long(
    ends, words, more, overlap
):
    splitting = Splitting(words, words + more, min(overlap, words - 1))
    number = 0
    paragraphs = []
    for paragraph in ends:
        numbered = range(number, number := number + len(paragraph))
        paragraphs.append(
            " ".join(f"{n}{'.' * e}" for n, e in zip(numbered, paragraph, strict=True))
        )
    start = end = 0  # of the passage before
    for place, passage in enumerate(split(paragraphs, splitting)):
        said = [int(word.strip(".")) for word in passage.split()]
        assert said == list(range(said[0], said[-1] + 1))
        assert len(said) <= splitting.most
        assert end - splitting.overlap <= said[0] <= end
        assert place == 0 or start < said[0]
        assert end < said[-1] + 1
        start, end = said[0], said[-1] + 1
    assert end == number


@pytest.mark.parametrize("overlap", [-1, 10, 11])
def test_an_impossible_overlap_is_refused(overlap):
    with pytest.raises(BadInput, match="at least 0 and below the length"):
        Splitting(10, 15, overlap)


# --- Tokens ----------------------------------------------------------------------------------


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    """Every letter a token."""
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S"), "isolated")
    made.normalizer = None
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return str(path)


def test_lengths_are_counted_in_tokens(tokenizer):
    from tokenizers import Tokenizer

    def count(text: str) -> int:
        return len(Tokenizer.from_file(tokenizer).encode(f" {text}").ids)

    text = "aaa bbb. ccc ddd. eee fff."
    limit = count("aaa bbb.") + count("ccc ddd.")
    passages = list(split([text], Splitting(limit, limit, tokenizer=tokenizer)))
    assert passages == ["aaa bbb. ccc ddd.", "eee fff."]
    assert Splitting(tokenizer=tokenizer).measure("\ud800 \x00 😀") > 0


def test_a_word_longer_than_a_passage_is_cut(tokenizer):
    passages = list(split(["x" * 1000], Splitting(20, 20, tokenizer=tokenizer)))
    assert "".join(passages) == "x" * 1000
    measure = Splitting(tokenizer=tokenizer).measure
    assert all(measure(passage) <= 20 for passage in passages)


def test_a_tokenizer_that_is_none_is_named_before_anything_is_read(tmp_path):
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "t.json").write_text("{}")
    for name in ("t.json", "none.json"):
        path = str(tmp_path / name)
        with pytest.raises(BadInput, match=rf"{name}: no tokenizer can be read here"):
            Reader([tmp_path / "a.txt"], splitting=Splitting(tokenizer=path))


@pytest.mark.parametrize(
    ("library", "options"),
    [("tokenizers", {"splitting": Splitting(tokenizer="x")}), ("rensa", {"near_duplicates": 0.9})],
)
def test_a_missing_library_names_its_extra(tmp_path, monkeypatch, library, options):
    (tmp_path / "a.txt").write_text("x")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=r"multihop\[documents\]"):
        Reader([tmp_path / "a.txt"], **options)


# --- Places ----------------------------------------------------------------------------------


def test_plain_text_knows_its_lines(tmp_path):
    (tmp_path / "a.txt").write_text("\n\nOne.\ntwo\n\n\nThree.\n")
    passages = read(tmp_path / "a.txt", splitting=Splitting(2, 2))
    assert [(p.text, p.metadata["line"]) for p in passages] == [("One. two", 3), ("Three.", 7)]


def test_markdown_knows_the_lines_of_its_source(tmp_path):
    (tmp_path / "a.md").write_text(
        "---\ntitle: T\n---\n\nFirst.\n\n# H\n\n- one\n- two\n\n```\ncode\n```\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    passages = read(tmp_path / "a.md", splitting=Splitting(1, 9))
    lines = {p.text: p.metadata.get("line") for p in passages}
    assert lines == {"First.": 5, "one": 9, "two": 10, "code": 12, "a | b": 16, "1 | 2": 18}


def test_html_knows_the_lines_of_its_source(tmp_path):
    (tmp_path / "a.html").write_text("<html>\n<body>\n<p>One\n<div>\n<p>Two</p></div>three")
    passages = read(tmp_path / "a.html", splitting=Splitting(1, 9))
    lines = [(p.text, p.metadata["line"]) for p in passages]
    assert lines == [("One", 3), ("Two", 5), ("three", 3)]


def test_a_line_given_by_a_document_is_only_a_number(tmp_path):
    (tmp_path / "a.md").write_text('<p data-source-line="x">One</p>\n\n<p data-source-line="9">Two')
    assert all(type(p.metadata.get("line", 1)) is int for p in read(tmp_path / "a.md"))


def test_a_passage_has_the_line_of_its_first_paragraph():
    paragraphs = [Paragraph("a b", 1), Paragraph("c d", 5), Paragraph("e", 9)]
    assert list(cut(paragraphs, Splitting(4, 4))) == [("a b\nc d", 1), ("e", 9)]


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({}, ""),
        ({"path": "a/b.pdf", "page": 3}, "a/b.pdf#page=3"),
        ({"path": "a.md", "line": 12}, "a.md:12"),
        ({"path": "a.docx"}, "a.docx"),
        ({"path": "a.pdf", "page": "x", "line": True}, "a.pdf"),
        ({"url": "https://en.wikipedia.org/wiki/Ulm"}, "https://en.wikipedia.org/wiki/Ulm"),
        ({"path": 3, "url": ["x"]}, ""),
    ],
)
def test_evidence_can_be_opened_at_its_place(metadata, place):
    assert Passage("a", "", "x", metadata).place == place


# --- Near-duplicates -------------------------------------------------------------------------

WORDS = [f"word{n}" for n in range(100)]


def test_nearly_the_same_text_is_known_again_and_another_is_not():
    is_first = first_of_its_kind(0.8)
    assert is_first(" ".join(WORDS))
    assert not is_first(" ".join(WORDS))
    assert not is_first(" ".join(WORDS).upper() + " more")
    assert is_first(" ".join(WORDS[:60]) + " other" * 40)
    assert is_first(" ".join(reversed(WORDS)))


def test_texts_without_words_are_like_no_other():
    is_first = first_of_its_kind(0.5)
    assert [is_first(text) for text in ("", "", " \n", "one", "one", "ONE two", "one two")] == [
        True, True, True, True, False, True, False,
    ]  # fmt: skip


def test_unusual_texts_are_compared():
    is_first = first_of_its_kind(0.9)
    for text in ("\ud800 \x00 😀 שלום", "😀 " * 1000, "x" * 1_000_000):
        assert is_first(text)
        assert not is_first(text)


@pytest.mark.parametrize("threshold", [0, -1, 1.5, float("nan")])
def test_a_similarity_that_is_none_is_refused(threshold):
    with pytest.raises(BadInput, match="above 0 and at most 1"):
        first_of_its_kind(threshold)


def test_near_duplicates_are_left_out_and_counted(tmp_path, multihop):
    lines = [("a", WORDS), ("b", [*WORDS, "more"]), ("c", WORDS[:50])]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(
        "".join(
            json.dumps({"id": name, "title": name, "text": " ".join(words)}) + "\n"
            for name, words in lines
        )
    )
    reader = Reader([corpus], near_duplicates=0.9)
    assert [p.id for p in reader] == ["a", "c"]
    assert [p.id for p in reader] == ["a", "c"]
    assert reader.left_out == 1
    done = multihop(
        "index", str(corpus), "--near-duplicates", "0.9", "--into", str(tmp_path / "index")
    )
    assert "Left out 1 near-duplicates." in done.err
    manifest = read_manifest(tmp_path / "index")
    assert manifest.passages == 2
    assert manifest.source["near_duplicates"] == 0.9
