"""Qdrant in its local mode, and a server that is not there."""

import gc

import pytest

pytest.importorskip("qdrant_client", reason="needs the extra `qdrant`")

from test_retriever_contract import *  # noqa: F403 - the whole contract, over this retriever
from test_retriever_contract import CORPUS as CONTRACT
from test_where import CORPUS as CHOSEN
from test_where import WHERE

from multihop import names
from multihop.errors import BadInput, CorpusError, IndexMismatch, RetrieverError
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index
from multihop.retrievers.qdrant import QdrantRetriever, QdrantStore
from multihop.text import Passage, Query


@pytest.fixture
async def retriever(tmp_path):
    QdrantStore(f"{tmp_path}/db/contract").build(CONTRACT)
    found = QdrantRetriever(f"{tmp_path}/db/contract")
    yield found
    await found.aclose()


@pytest.fixture
def limiting(retriever):
    return retriever


@pytest.fixture
def target(tmp_path):
    return f"{tmp_path}/db/some"


async def ids(target: str, query: Query, **options) -> list[str]:
    found = QdrantRetriever(target, **options)
    try:
        [hits] = await found.search([query], 10)
    finally:
        await found.aclose()
    return [hit.passage.id for hit in hits]


async def test_only_passages_whose_metadata_say_so_are_found(target):
    QdrantStore(target).build(CHOSEN)
    found = QdrantRetriever(target)
    for where, expected in WHERE.items():
        [hits] = await found.search([Query("the ride gravity", where=where)], 10)
        assert {hit.passage.id for hit in hits} == set(expected), where
    await found.aclose()


async def test_it_ranks_and_counts_as_bm25_does_where_lengths_agree(target, tmp_path):
    corpus = [Passage(f"p{n}", "", f"word{n % 7} word{n % 5} word{n % 3} end") for n in range(40)]
    manifest = QdrantStore(target).build(corpus, source={"paths": ["x"]})
    built = build_index(corpus, tmp_path / "index")
    assert (manifest.passages, manifest.content_hash) == (40, built.content_hash)
    query = Query("word6 word4 word2")
    [theirs] = await BM25(tmp_path / "index", "text").search([query], 10)
    assert await ids(target, query) == [hit.passage.id for hit in theirs]


async def test_passages_are_deleted_and_added_at_once(target):
    store = QdrantStore(target)
    store.build([Passage("a", "X", "one word"), Passage("b", "Y", "two word")])
    with pytest.raises(BadInput, match=r"holds no passage with id 'z'\. Nothing was changed"):
        store.change([Passage("c", "C", "x")], delete=["z"])
    with pytest.raises(CorpusError, match="'b' is there twice"):
        store.change([Passage("b", "B", "new")], delete=["a"])
    assert await ids(target, Query("word")) == ["a", "b"]
    assert store.change([Passage("a", "X", "new word")], delete=["a"]).passages == 2
    assert await ids(target, Query("word")) == ["b", "a"]


async def test_a_build_that_fails_leaves_what_was_there(target):
    def broken():
        yield Passage("b", "", "word")
        raise BadInput("c.jsonl:2: not JSON")

    store = QdrantStore(target)
    store.build([Passage("a", "", "word")])
    with pytest.raises(BadInput, match="not JSON"):
        store.build(broken())
    with pytest.raises(CorpusError, match="no passages to index"):
        store.build([])
    assert await ids(target, Query("word")) == ["a"]


def encode(texts):
    return [[float("one" in text), float("two" in text), 0.5] for text in texts]


async def test_passages_are_found_by_vectors(target):
    passages = [Passage("a", "A", "one"), Passage("b", "B", "two"), Passage("c", "", "")]
    assert QdrantStore(target, encode=encode).build(passages).size == 3
    assert (await ids(target, Query("two"), encode=encode))[0] == "b"
    assert await ids(target, Query("b", by_title=True), encode=encode) == ["b"]
    with pytest.raises(IndexMismatch, match="vectors of 3 numbers, the encoder makes 2"):
        await ids(target, Query("two"), encode=lambda texts: [[1.0, 0.0] for _ in texts])
    with pytest.raises(BadInput, match="holds vectors; name the encoder"):
        QdrantRetriever(target)
    with pytest.raises(IndexMismatch, match="holds vectors; open the store with the encoder"):
        QdrantStore(target).change(delete=["a"])


def test_what_cannot_be_searched_is_one_line(target, tmp_path):
    from qdrant_client import QdrantClient

    with pytest.raises(CorpusError, match=r"no such collection\. Build it with: multihop index"):
        QdrantRetriever(target)
    client = QdrantClient(path=f"{tmp_path}/db")
    client.create_collection("some", vectors_config={})
    client.close()
    with pytest.raises(CorpusError, match="was not made by multihop index"):
        QdrantRetriever(target)
    with pytest.raises(CorpusError, match="Choose another name"):
        QdrantStore(target).build([Passage("a", "", "x")])
    QdrantStore(f"{tmp_path}/db/mine").build([Passage("a", "", "x")])
    with pytest.raises(IndexMismatch, match="holds another corpus: content hash"):
        QdrantRetriever(f"{tmp_path}/db/mine", content_hash="0" * 32)
    with pytest.raises(BadInput, match="of no use there"):
        QdrantRetriever(f"{tmp_path}/db/mine", encode=encode)
    with pytest.raises(BadInput, match="write qdrant:URL/NAME or qdrant:DIR/NAME"):
        QdrantRetriever("wiki")


@pytest.mark.filterwarnings("ignore:.*lock:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_folder_that_another_program_has_open_is_one_line(target, tmp_path):
    from qdrant_client import QdrantClient

    client = QdrantClient(path=f"{tmp_path}/db")
    with pytest.raises(RetrieverError, match="already accessed by another instance"):
        QdrantRetriever(target)
    client.close()
    gc.collect()  # the client forgets to close the lock that it did not get


def test_a_server_that_is_down_is_one_line(unused_tcp_port):
    with pytest.raises(RetrieverError, match=r"qdrant:http://127.0.0.1:\d+/wiki: .*refused"):
        QdrantRetriever(f"http://127.0.0.1:{unused_tcp_port}/wiki", timeout=2)


async def test_a_large_passage_is_kept_whole(target):
    passage = Passage("a", "\ud800\x00", "word \u202e שלום 😀 " * 50_000, {"n": 10**30})
    QdrantStore(target).build([passage])
    found = QdrantRetriever(target)
    [[hit]] = await found.search([Query("word")], 3)
    assert hit.passage == passage
    await found.aclose()


async def test_it_is_opened_by_name(target):
    store = names.open_store(f"qdrant:{target}")
    assert store.build([Passage("a", "", "x")]).passages == 1
    found = names.open_retriever(f"qdrant:{target}")
    assert found.name == f"qdrant:{target}"
    await found.aclose()
