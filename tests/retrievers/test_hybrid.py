"""Several retrievers as one: what is asked, what is fused, what is refused."""

import asyncio
import math

import pytest

from multihop.errors import BadInput, CorpusError, RetrieverError
from multihop.retrievers.base import Ranking, calls_made, warnings_of
from multihop.retrievers.fusion import convex
from multihop.retrievers.hybrid import Hybrid, Member
from multihop.retrievers.wire import Identity
from multihop.text import Hit, Passage, Query
from multihop.trace import LMCall


class Fixed:
    """Gives one ranking for every query; keeps what it was asked."""

    def __init__(self, *hits, name="fixed", content_hash=None, error=None):
        self.name = name
        self.hits = [Hit(Passage(i, t, "text of " + i), s) for i, t, s in hits]
        self.manifest = content_hash and Identity(name, len(hits), content_hash)
        self.error = error
        self.asked = []
        self.closed = 0
        self.gate = None
        self.cancelled = False

    async def search(self, queries, k):
        self.asked.append((list(queries), k))
        try:
            if self.gate:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.error:
            raise self.error
        return [self.hits[:k] for _ in queries]

    async def aclose(self):
        self.closed += 1


def ids(hits):
    return [hit.passage.id for hit in hits]


ONE = [("a", "A", 9.0), ("b", "B", 8.0), ("c", "C", 7.0)]
TWO = [("c", "C", 0.9), ("b", "B", 0.5), ("d", "D", 0.1)]


async def test_each_member_is_asked_once_with_its_depth_and_all_queries():
    one, two = Fixed(*ONE), Fixed(*TWO)
    hybrid = Hybrid([Member(one, depth=2), Member(two, depth=50)])
    queries = [Query("x", ("A",)), Query("y")]
    await hybrid.search(queries, 1)
    assert one.asked == [(queries, 2)]
    assert two.asked == [(queries, 50)]
    await hybrid.search(queries, 70)
    assert (one.asked[-1][1], two.asked[-1][1]) == (70, 70)


async def test_rankings_are_fused_by_id_with_weights():
    hybrid = Hybrid([Member(Fixed(*ONE), 3), Member(Fixed(*TWO), 1)], fuse=convex)
    [hits] = await hybrid.search([Query("x")], 9)
    assert [(hit.passage.id, hit.score) for hit in hits] == [
        ("a", 0.75),
        ("b", 0.75 * 0.5 + 0.25 * 0.5),
        ("c", 0.25),
        ("d", 0.0),
    ]
    assert hybrid.identity["fusion"] == "convex"


async def test_a_member_of_weight_zero_is_not_asked():
    one, two = Fixed(*ONE), Fixed(*TWO)
    [hits] = await Hybrid([Member(one), Member(two, 0)]).search([Query("x")], 9)
    assert ids(hits) == ["a", "b", "c"]
    assert two.asked == []


async def test_members_search_at_the_same_time():
    one, two = Fixed(*ONE), Fixed(*TWO)
    one.gate = two.gate = asyncio.Event()
    search = asyncio.create_task(Hybrid([Member(one), Member(two)]).search([Query("x")], 1))
    for _ in range(5):
        await asyncio.sleep(0)
    assert one.asked
    assert two.asked
    one.gate.set()
    await search


async def test_the_failure_of_one_ends_the_search_of_the_others():
    slow, broken = Fixed(*ONE), Fixed(error=RetrieverError("broken: it is down."))
    slow.gate = asyncio.Event()
    with pytest.raises(RetrieverError, match="it is down"):
        await Hybrid([Member(slow), Member(broken)]).search([Query("x")], 1)
    assert slow.cancelled


def test_members_that_say_that_they_hold_other_corpora_are_refused():
    one, two = Fixed(*ONE, name="one", content_hash="aaaa"), Fixed(name="two", content_hash="bb")
    with pytest.raises(CorpusError) as refused:
        Hybrid([Member(one), Member(Fixed(*TWO, name="silent")), Member(two)])
    assert str(refused.value).startswith(
        "one and two hold different corpora (3 passages, content hash aaaa, and 0, bb)."
    )
    both = Hybrid([Member(one), Member(two)], same_corpus=False)
    assert both.manifest == one.manifest


async def test_one_id_for_two_passages_is_an_error():
    one, two = Fixed(*ONE, name="one"), Fixed(("c", "other", 1.0), name="two")
    with pytest.raises(RetrieverError, match="the id 'c' is one passage in one and another in two"):
        await Hybrid([Member(one), Member(two)]).search([Query("x")], 1)


async def test_scores_that_are_no_numbers_and_missing_rankings_are_errors():
    broken = Fixed(("a", "A", math.nan), name="broken")
    with pytest.raises(RetrieverError, match="broken: the score of 'a' is nan"):
        await Hybrid([Member(broken)]).search([Query("x")], 1)

    class Few(Fixed):
        async def search(self, queries, k):
            return []

    with pytest.raises(RetrieverError, match="few: gave 0 rankings for 1 queries"):
        await Hybrid([Member(Few(name="few"))]).search([Query("x")], 1)


async def test_a_search_by_title_gives_one_passage_a_page():
    one, two = Fixed(("a1", "A", 1.0)), Fixed(("a2", " a", 1.0), ("b", "B", 0.5))
    [hits] = await Hybrid([Member(one), Member(two)]).search([Query("x", by_title=True)], 9)
    assert ids(hits) == ["a1", "b"]


async def test_calls_and_warnings_of_members_are_kept():
    call = LMCall("rerank", "m", "p", ("x",), ("stop",), 0.1)

    class Calling(Fixed):
        async def search(self, queries, k):
            return [Ranking(self.hits, [call], ["cut"]) for _ in queries]

    hybrid = Hybrid([Member(Calling(*ONE)), Member(Calling(*TWO))])
    [hits] = await hybrid.search([Query("x")], 1)
    assert calls_made(hits) == (call, call)
    assert warnings_of(hits) == ("cut",)
    await hybrid.aclose()
    assert [member.retriever.closed for member in hybrid.members] == [1, 1]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([], "at least one retriever"),
        ([Member(Fixed(), -1)], "weight -1"),
        ([Member(Fixed(), math.nan)], "weight nan"),
        ([Member(Fixed(), 1, 0)], "depth 0"),
        ([Member(Fixed(), 0)], "All weights"),
    ],
)
def test_settings_that_mean_nothing_are_refused(members, words):
    with pytest.raises(BadInput, match=words):
        Hybrid(members)


async def test_no_query_asks_nothing_and_k_is_at_least_one():
    one = Fixed(*ONE)
    assert await Hybrid([Member(one)]).search([], 3) == []
    assert one.asked == []
    with pytest.raises(BadInput, match="k is 0"):
        await Hybrid([Member(one)]).search([Query("x")], 0)
