"""Concurrent searches go together, and each caller gets what is its own."""

import asyncio
from collections.abc import Sequence

import pytest

from multihop.errors import BadInput, RetrieverError
from multihop.retrievers.base import Ranking, calls_made, warnings_of
from multihop.retrievers.batching import BatchedRetriever
from multihop.text import Hit, Passage, Query
from multihop.trace import LMCall, Tokens


class Slow:
    """Answers when it is let go; keeps what it was asked, search by search."""

    name = "slow"

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], int]] = []
        self.running = self.most = self.ended = 0
        self.gate = asyncio.Semaphore(0)
        self.bad: set[str] = set()
        self.missing = 0
        self.closed = 0

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        self.asked.append(([query.text for query in queries], k))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.acquire()
        finally:
            self.running -= 1
        self.ended += 1
        if broken := [query.text for query in queries if query.text in self.bad]:
            raise RetrieverError(f"cannot search for {broken[0]}")
        found = [[Hit(Passage(q.text, q.text, ""), float(k))] for q in queries]
        return found[: len(found) - self.missing]

    async def aclose(self) -> None:
        self.closed += 1

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self.gate.release()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def begin(retriever: BatchedRetriever, *names: str, k: int = 3) -> list[asyncio.Task]:
    return [asyncio.create_task(retriever.search([Query(name)], k)) for name in names]


def ids(rankings: list[list[Hit]]) -> list[str]:
    return [hit.passage.id for ranking in rankings for hit in ranking]


async def test_a_search_that_finds_the_retriever_idle_goes_at_once():
    slow = Slow()
    [task] = begin(BatchedRetriever(slow), "a")
    await settle()
    assert slow.asked == [(["a"], 3)]
    slow.let()
    assert ids(await task) == ["a"]


async def test_searches_that_wait_go_together_and_each_gets_its_own():
    slow = Slow()
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, *"abcd")
    await settle()
    assert slow.asked == [(["a"], 3)]
    slow.let(2)
    assert [ids(found) for found in await asyncio.gather(*running)] == [["a"], ["b"], ["c"], ["d"]]
    assert slow.asked == [(["a"], 3), (["b", "c", "d"], 3)]
    assert (retriever.searches, retriever.queries, retriever.sent) == (2, 4, 4)


async def test_no_more_searches_run_at_once_than_allowed():
    slow = Slow()
    running = begin(BatchedRetriever(slow, at_once=3, batch=2), *"abcdefghijklm")
    await settle()
    slow.let(99)
    await asyncio.gather(*running)
    assert slow.most == 3
    assert max(len(asked) for asked, _ in slow.asked) == 2


async def test_calls_of_another_k_go_by_themselves():
    slow = Slow()
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, "a", "b") + begin(retriever, "c", k=5) + begin(retriever, "d")
    slow.let(9)
    found = await asyncio.gather(*running)
    assert slow.asked == [(["a"], 3), (["b", "d"], 3), (["c"], 5)]
    assert [rankings[0][0].score for rankings in found] == [3, 3, 5, 3]


async def test_equal_queries_are_asked_once_and_share_no_list():
    slow = Slow()
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, "x", "a", "b", "a")
    slow.let(2)
    _, first, _, again = await asyncio.gather(*running)
    assert slow.asked[1] == (["a", "b"], 3)
    assert first == again
    first[0].clear()
    assert again[0]
    assert (retriever.queries, retriever.sent) == (4, 3)


async def test_a_call_larger_than_a_batch_goes_alone_and_whole():
    slow = Slow()
    retriever = BatchedRetriever(slow, at_once=1, batch=2)
    [first] = begin(retriever, "x")
    large = asyncio.create_task(retriever.search([Query(name) for name in "abc"], 3))
    [last] = begin(retriever, "d")
    slow.let(9)
    assert ids(await large) == ["a", "b", "c"]
    await asyncio.gather(first, last)
    assert [asked for asked, _ in slow.asked] == [["x"], ["a", "b", "c"], ["d"]]


async def test_one_bad_query_fails_its_own_caller_and_no_other():
    slow = Slow()
    slow.bad = {"c"}
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, *"abcd")
    slow.let(9)
    a, b, c, d = await asyncio.gather(*running, return_exceptions=True)
    assert [ids(found) for found in (a, b, d)] == [["a"], ["b"], ["d"]]
    assert isinstance(c, RetrieverError)
    assert "cannot search for c" in str(c)
    assert [asked for asked, _ in slow.asked] == [["a"], ["b", "c", "d"], ["b"], ["c"], ["d"]]


async def test_a_call_that_fails_alone_is_not_repeated():
    slow = Slow()
    slow.bad = {"a"}
    [task] = begin(BatchedRetriever(slow), "a")
    slow.let(9)
    with pytest.raises(RetrieverError):
        await task
    assert len(slow.asked) == 1


async def test_too_few_rankings_are_an_error_not_an_empty_result():
    slow = Slow()
    slow.missing = 1
    slow.let(9)
    with pytest.raises(RetrieverError, match="gave 0 rankings for 1 queries"):
        await BatchedRetriever(slow).search([Query("a")], 3)


async def test_a_caller_that_goes_away_while_waiting_is_not_searched_for():
    slow = Slow()
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, *"abc")
    await settle()
    running[1].cancel()
    await settle()
    slow.let(9)
    assert ids(await running[2]) == ["c"]
    assert slow.asked == [(["a"], 3), (["c"], 3)]
    await running[0]


async def test_a_caller_that_goes_away_during_its_batch_disturbs_no_other():
    slow = Slow()
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, *"abc")
    slow.let()
    await settle()
    assert slow.asked[-1] == (["b", "c"], 3)
    running[1].cancel()
    await settle()
    slow.let()
    assert ids(await running[2]) == ["c"]
    assert running[1].cancelled()
    await running[0]


async def test_a_search_that_nobody_waits_for_any_more_is_ended():
    slow = Slow()
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, *"abc")
    await settle()
    running[0].cancel()
    await settle()
    assert slow.ended == 0
    assert slow.asked == [(["a"], 3), (["b", "c"], 3)]
    slow.let()
    await asyncio.gather(*running[1:])


async def test_a_failed_batch_of_which_one_caller_is_left_is_repeated_for_it():
    slow = Slow()
    slow.bad = {"b"}
    retriever = BatchedRetriever(slow, at_once=1)
    running = begin(retriever, *"abc")
    slow.let()
    await settle()
    running[1].cancel()
    slow.let(2)
    assert ids(await running[2]) == ["c"]
    await running[0]


async def test_it_passes_on_the_name_the_manifest_and_closing():
    slow = Slow()
    retriever = BatchedRetriever(slow)
    assert (retriever.name, retriever.manifest, retriever.inner) == ("slow", None, slow)
    slow.manifest = object()
    assert retriever.manifest is slow.manifest
    await retriever.aclose()
    assert slow.closed == 1


@pytest.mark.parametrize("limits", [{"at_once": 0}, {"batch": 0}])
def test_limits_below_one_are_refused(limits):
    with pytest.raises(BadInput, match="must be at least 1"):
        BatchedRetriever(Slow(), **limits)


async def test_a_query_that_cannot_be_compared_disturbs_nobody_who_waits():
    slow = Slow()
    batched = BatchedRetriever(slow, at_once=1)
    first, second = (asyncio.create_task(batched.search([Query(x)], 2)) for x in "ab")
    await asyncio.sleep(0)
    with pytest.raises(TypeError):
        await batched.search([Query("c", ["a list", "for a tuple"])], 2)
    slow.gate.release()
    slow.gate.release()
    assert [len(found) for found in await asyncio.gather(first, second)] == [1, 1]


class Calling:
    """Every search takes a call, and warns."""

    name = "calling"

    async def search(self, queries, k):
        call = LMCall("rerank", "m", "p", ("x",), ("stop",), 0.1, Tokens(3, 0, 1))
        return [Ranking([Hit(Passage("a", "", q.text), 1.0)], [call], ["cut"]) for q in queries]

    async def aclose(self):
        pass


async def test_calls_of_a_shared_search_are_paid_once_and_seen_by_all():
    batched = BatchedRetriever(Calling(), at_once=1)
    first = asyncio.create_task(batched.search([Query("x")], 1))
    others = [asyncio.create_task(batched.search([Query("a")], 1)) for _ in range(3)]
    found = [ranking for rankings in await asyncio.gather(first, *others) for ranking in rankings]
    assert [calls_made(ranking)[0].replayed for ranking in found] == [False, False, True, True]
    assert {warnings_of(ranking) for ranking in found} == {("cut",)}
    assert len({id(ranking) for ranking in found}) == 4
