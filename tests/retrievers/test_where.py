"""Searches limited by metadata: in the index, before the best k are taken."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihop.errors import BadInput, IndexMismatch, RetrieverError
from multihop.retrievers import bm25_index
from multihop.retrievers.base import Retriever, refuse_where
from multihop.retrievers.batching import BatchedRetriever
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index, change_index
from multihop.retrievers.hybrid import Hybrid, Member
from multihop.retrievers.wire import (
    rankings_from_json,
    rankings_to_json,
    request_from_json,
    request_to_json,
)
from multihop.testing import TitleRetriever
from multihop.text import Passage, Query, alternatives, facets, meets

CORPUS = (
    Passage("a", "Gravity", "The ride Gravity.", {"tags": ["ride", "steel"], "built": True}),
    Passage("b", "Gravity", "The firm of Gravity.", {"page": 3, "tags": ["firm"]}),
    Passage("c", "Gravity", "A law of gravity.", {"in": {"country": "Spain"}, "tags": ["ride"]}),
    Passage("d", "Gravity", "No gravity here."),
    Passage("e", "Gravity", "Odd gravity.", {"odd \x00\ud800": "\U0001f600 שלום \x00", "n": None}),
)
ASKED = "the ride gravity"

RETRIEVERS: dict[str, Callable[[Path], Retriever]] = {
    "bm25 paper": lambda index: BM25(index, "paper"),
    "bm25 official": lambda index: BM25(index, "official"),
    "bm25 text": lambda index: BM25(index, "text"),
    "batched": lambda index: BatchedRetriever(BM25(index)),
    "hybrid": lambda index: Hybrid([Member(BM25(index))]),
    "titles": lambda _: TitleRetriever(*CORPUS),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("where") / "index"
    build_index(CORPUS, folder)
    return folder


@pytest.fixture(params=RETRIEVERS)
async def retriever(request: pytest.FixtureRequest, index: Path) -> AsyncIterator[Retriever]:
    found = RETRIEVERS[request.param](index)
    yield found
    await found.aclose()


WHERE = {
    (("page", "3"),): "b",
    (("tags", "ride"),): "ac",
    (("tags", "ride"), ("tags", "firm")): "abc",
    (("tags", "ride"), ("in.country", "Spain")): "c",
    (("tags", "ride"), ("page", "3")): "",
    (("built", "true"),): "a",
    (("page", "33"),): "",
    (("no such field", "x"),): "",
    (("odd \x00\ud800", "\U0001f600 שלום \x00"),): "e",
    (("n", "null"),): "e",
    (): "abcde",
}


@pytest.mark.parametrize(("where", "ids"), WHERE.items(), ids=repr)
async def test_only_passages_whose_metadata_say_so_are_found(retriever, where, ids):
    [hits] = await retriever.search([Query(ASKED, where=where)], 10)
    assert {hit.passage.id for hit in hits} == set(ids)


async def test_a_passage_far_behind_the_best_k_is_found(tmp_path):
    many = [Passage(f"p{n}", "", "gravity gravity gravity") for n in range(300)]
    last = Passage("last", "", "gravity among very many other words", {"kind": "rare"})
    build_index([*many, last], tmp_path / "index")
    for form in ("paper", "official", "text"):
        found = BM25(tmp_path / "index", form)
        [hits] = await found.search([Query("gravity", where=(("kind", "rare"),))], 1)
        assert [hit.passage.id for hit in hits] == ["last"]


async def test_scores_are_those_of_the_search_without(index):
    for form in ("paper", "official", "text"):
        found = BM25(index, form)
        [every] = await found.search([Query(ASKED)], 10)
        [some] = await found.search([Query(ASKED, where=(("tags", "ride"),))], 10)
        assert some == [hit for hit in every if hit.passage.id in "ac"]


async def test_titles_and_metadata_limit_a_search_together(index):
    for form in ("paper", "official", "text"):
        found = BM25(index, form)
        where = (("tags", "ride"),)
        [hits] = await found.search([Query(ASKED, titles=("Gravity",), where=where)], 10)
        assert {hit.passage.id for hit in hits} == {"a", "c"}
        [hits] = await found.search([Query(ASKED, titles=("Law",), where=where)], 10)
        assert hits == []
        [hits] = await found.search([Query("gravity", by_title=True, where=(("page", "3"),))], 10)
        assert [hit.passage.id for hit in hits] == ["b"]


async def test_an_index_without_metadata_terms_is_searched_but_not_chosen_from(
    tmp_path, monkeypatch
):
    schema = bm25_index._schema

    def older():
        builder = bm25_index.tantivy.SchemaBuilder

        class Older:
            def __init__(self):
                self.inner = builder()

            def __getattr__(self, name):
                return getattr(self.inner, name)

            def add_unsigned_field(self, name, **options):
                if name != "facets":
                    self.inner.add_unsigned_field(name, **options)

        monkeypatch.setattr(bm25_index.tantivy, "SchemaBuilder", Older)
        made = schema()
        monkeypatch.setattr(bm25_index.tantivy, "SchemaBuilder", builder)
        return made

    monkeypatch.setattr(bm25_index, "_schema", older)
    build_index(CORPUS[:2], tmp_path / "index")
    change_index(tmp_path / "index", CORPUS[2:])
    found = BM25(tmp_path / "index")
    [hits] = await found.search([Query(ASKED)], 10)
    assert len(hits) == len(CORPUS)
    with pytest.raises(IndexMismatch, match=r"older than choosing by metadata\. Build it anew"):
        await found.search([Query(ASKED, where=(("page", "3"),))], 10)


async def test_what_is_added_later_is_chosen_from_too(tmp_path):
    build_index(CORPUS[:2], tmp_path / "index")
    change_index(tmp_path / "index", CORPUS[2:], delete=["a"])
    found = BM25(tmp_path / "index")
    [hits] = await found.search([Query(ASKED, where=(("tags", "ride"),))], 10)
    assert [hit.passage.id for hit in hits] == ["c"]


def test_a_retriever_that_cannot_choose_refuses():
    refuse_where("mine:x", [Query("a"), Query("b", where=())])
    with pytest.raises(BadInput, match=r"mine:x: cannot choose passages by metadata \(page=3\)"):
        refuse_where("mine:x", [Query("a"), Query("b", where=(("page", "3"),))])


# --- Over HTTP -------------------------------------------------------------------------------


def test_it_goes_over_the_wire():
    asked = [Query("a"), Query("b", where=(("page", "3"), ("odd \ud800", "\x00")))]
    assert request_from_json(request_to_json(asked, 3)) == (asked, 3)
    assert "where" not in request_to_json(asked, 3)["queries"][0]


@pytest.mark.parametrize("where", ["x", [["a"]], [["a", 1]], {"a": "b"}, [["a", "b", "c"]]])
def test_a_request_with_another_where_is_refused(where):
    with pytest.raises(BadInput, match=r"queries\[0\]\.where is .*; expected a list of pairs"):
        request_from_json({"queries": [{"text": "a", "where": where}], "k": 1})


async def test_a_server_that_ignores_it_is_found_out(index):
    [hits] = await BM25(index).search([Query(ASKED)], 10)
    reply = rankings_to_json([hits])
    with pytest.raises(RetrieverError, match="has not the metadata that the query asks for"):
        rankings_from_json(reply, [Query(ASKED, where=(("page", "3"),))], 10, "http:x")


# --- What metadata say -----------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_metadata_meet_each_of_their_facets_and_no_other(metadata):
    there = facets(metadata)
    for pair in there:
        assert meets(metadata, (pair,))
    assert meets(metadata, tuple(there))
    assert not meets(metadata, (*there, ("no such field", "x")))


def test_values_of_a_field_are_alternatives():
    assert alternatives((("a", "1"), ("b", "2"), ("a", "3"))) == {"a": {"1", "3"}, "b": {"2"}}
    assert alternatives(None) == {}
