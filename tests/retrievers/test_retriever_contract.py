"""What every retriever keeps. A new one joins by a line in `RETRIEVERS`."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from search_server import Answer, Server, serving

from multihop.retrievers.base import Retriever
from multihop.retrievers.batching import BatchedRetriever
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index
from multihop.retrievers.elastic import ElasticRetriever
from multihop.retrievers.elastic_index import ElasticStore
from multihop.retrievers.fusion import combmnz
from multihop.retrievers.http import HttpRetriever
from multihop.retrievers.hybrid import Hybrid, Member
from multihop.retrievers.rerank import Reranked
from multihop.retrievers.rerank_endpoint import EndpointReranker
from multihop.retrievers.rerank_lm import ListwiseReranker, YesNoReranker
from multihop.retrievers.wire import Identity
from multihop.testing import ScriptedLM, TitleRetriever
from multihop.text import Passage, Query

CORPUS = (
    Passage("a", "Lost Gravity", "Lost Gravity is a roller coaster built by Mack Rides."),
    Passage("b", "Mack Rides", "Mack Rides is a company in Germany.", {"page": 3}),
    Passage("c", "Mack Rides", "The Mack Rides company built Lost Gravity in 2016."),
    Passage("d", "", "A passage without a title tells of Lost Gravity too."),
    Passage("e", "Odd \x00 \ud800 \U0001f600", "Gravity \x00 \udfff \U0001f600 שלום " + "x" * 99),
    Passage("f", "Empty", ""),
    Passage("g", "Endless", "lorem ipsum " * 90_000),
)


RETRIEVERS: dict[str, Callable[[Path], Retriever]] = {
    "bm25 paper": lambda index: BM25(index, "paper"),
    "bm25 official": lambda index: BM25(index, "official"),
    "bm25 text": lambda index: BM25(index, "text"),
    "batched": lambda index: BatchedRetriever(BM25(index)),
    "bm25 title weight": lambda index: BM25(index, title_weight=2.5),
    "hybrid": lambda index: Hybrid([Member(BM25(index)), Member(BM25(index, "text"), 0.5)]),
    "hybrid of scores": lambda index: Hybrid(
        [Member(BM25(index)), Member(BM25(index, "official"))], fuse=combmnz
    ),
    "http": lambda index: HttpRetriever(served(index).url),
    "listwise": lambda index: Reranked(
        BM25(index), ListwiseReranker(ScriptedLM(respond=lambda _: "[2] > [3]"), window=3, stride=2)
    ),
    "yes-no": lambda index: Reranked(
        BM25(index), YesNoReranker(ScriptedLM(respond=lambda _: "Perhaps."))
    ),
    "endpoint": lambda index: Reranked(
        BM25(index), EndpointReranker(served(index).url + "/rerank")
    ),
    "batched and reranked": lambda index: BatchedRetriever(
        Reranked(BM25(index), ListwiseReranker(ScriptedLM(respond=lambda _: "[2]")))
    ),
    "titles": lambda _: TitleRetriever(*(p for p in CORPUS if p.title)),
}
SERVERS: dict[Path, Server] = {}


def served(index: Path) -> Server:
    """A server of the index, and of a reranker that prefers what is long."""
    if index not in SERVERS:
        retriever = BM25(index)
        manifest = retriever.manifest
        search = serving(retriever, Identity("", manifest.passages, manifest.content_hash))

        def respond(method: str, path: str, body: dict) -> Answer:
            if not path.endswith("/rerank"):
                return search(method, path, body)
            scores = [len(text) for text in body["documents"]]
            return Answer(
                {"results": [{"index": n, "relevance_score": s} for n, s in enumerate(scores)]}
            )

        SERVERS[index] = Server(respond)
    return SERVERS[index]


ELASTIC: dict[str, Callable[[str], Retriever]] = {
    "elastic paper": lambda url: ElasticRetriever(f"{url}/contract"),
    "elastic official": lambda url: ElasticRetriever(f"{url}/contract", "official"),
    "elastic text": lambda url: ElasticRetriever(f"{url}/contract", "text"),
    "elastic of three shards": lambda url: ElasticRetriever(f"{url}/contract-wide"),
}
"""Those that need a real node."""

ALL = [*RETRIEVERS, *(pytest.param(name, marks=pytest.mark.node) for name in ELASTIC)]
LIMITS_TITLES = [name for name in ALL if name != "titles"]
GRAVITY = Query("Lost Gravity of Mack Rides")  # both titles, and words of four texts


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("contract") / "index"
    build_index(CORPUS, folder)
    yield folder
    if server := SERVERS.pop(folder, None):
        server.close()


@pytest.fixture(scope="module")
def elastic(node: str) -> str:
    ElasticStore(f"{node}/contract").build(CORPUS)
    ElasticStore(f"{node}/contract-wide", shards=3).build(CORPUS)
    return node


def opened(request: pytest.FixtureRequest) -> Retriever:
    name = request.param
    if name in ELASTIC:
        return ELASTIC[name](request.getfixturevalue("elastic"))
    return RETRIEVERS[name](request.getfixturevalue("index"))


@pytest.fixture(params=ALL)
async def retriever(request: pytest.FixtureRequest) -> AsyncIterator[Retriever]:
    found = opened(request)
    yield found
    await found.aclose()


def test_it_is_a_retriever_with_a_name(retriever):
    assert isinstance(retriever, Retriever)
    assert retriever.name


async def test_a_corpus_smaller_than_k_gives_fewer(retriever):
    [hits] = await retriever.search([GRAVITY], 1000)
    assert 0 < len(hits) <= len(CORPUS)


async def test_k_is_the_most_and_a_shorter_ranking_is_the_beginning_of_a_longer(retriever):
    [longer] = await retriever.search([GRAVITY], 3)
    [shorter] = await retriever.search([GRAVITY], 1)
    assert len(longer) == 3
    assert shorter == longer[:1]


async def test_the_best_hit_comes_first(retriever):
    [hits] = await retriever.search([GRAVITY], 10)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


async def test_no_passage_is_given_twice(retriever):
    [hits] = await retriever.search([GRAVITY], 10)
    assert len({hit.passage.id for hit in hits}) == len(hits)


async def test_passages_come_back_as_they_were_given(retriever):
    [hits] = await retriever.search(
        [Query("Lost Gravity, Mack Rides, Odd \x00 \ud800 😀 שלום")], 10
    )
    given = {passage.id: passage for passage in CORPUS}
    assert hits
    for hit in hits:
        assert hit.passage == given[hit.passage.id]


async def test_a_passage_of_a_megabyte_is_found_and_whole(retriever):
    [hits] = await retriever.search([Query("endless lorem")], 1)
    assert [hit.passage for hit in hits] == [CORPUS[-1]]


async def test_rankings_stand_in_the_order_of_the_queries_repeats_included(retriever):
    queries = [GRAVITY, Query("zzz"), GRAVITY, Query("Mack Rides")]
    rankings = await retriever.search(queries, 2)
    alone = [(await retriever.search([query], 2))[0] for query in queries]
    assert rankings == alone
    assert rankings[0] == rankings[2] != rankings[3]


async def test_nothing_asked_is_nothing_found(retriever):
    assert await retriever.search([], 3) == []


@pytest.mark.parametrize("text", ["", "   ", "zzz", "the of and", "\ud800", '?!*:"+-'])
async def test_a_query_that_matches_nothing_gets_an_empty_ranking(retriever, text):
    assert await retriever.search([Query(text)], 3) == [[]]


@pytest.mark.parametrize(
    "text", ['"Lost" +Gravity -Mack:x~2 (a OR b)', "lost " * 5000, "x" * 10**5]
)
async def test_no_query_is_read_as_syntax_or_refused(retriever, text):
    await retriever.search([Query(text)], 3)


async def test_closing_twice_is_harmless(retriever):
    await retriever.aclose()
    await retriever.aclose()


@pytest.fixture(params=LIMITS_TITLES)
async def limiting(request: pytest.FixtureRequest) -> AsyncIterator[Retriever]:
    found = opened(request)
    yield found
    await found.aclose()


async def test_titles_limit_a_search_case_and_outer_blanks_aside(limiting):
    [hits] = await limiting.search([Query(GRAVITY.text, titles=(" mack RIDES ",))], 10)
    assert {hit.passage.id for hit in hits} == {"b", "c"}


async def test_several_titles_are_all_allowed(limiting):
    [hits] = await limiting.search([Query(GRAVITY.text, titles=("Mack Rides", "Lost Gravity"))], 10)
    assert {hit.passage.id for hit in hits} == {"a", "b", "c"}


async def test_no_title_allowed_is_nothing_found(limiting):
    assert await limiting.search([Query(GRAVITY.text, titles=())], 10) == [[]]


async def test_an_unknown_title_is_nothing_found(limiting):
    assert await limiting.search([Query(GRAVITY.text, titles=("No Such Page",))], 10) == [[]]


async def test_a_search_by_title_gives_one_passage_a_page(limiting):
    [hits] = await limiting.search([Query("mack rides", by_title=True)], 10)
    assert [hit.passage.title for hit in hits] == ["Mack Rides"]
    [hits] = await limiting.search([Query("coaster", by_title=True)], 10)
    assert hits == []
