"""Concurrent searches, put together into few."""

import asyncio
from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from multihop.errors import BadInput, RetrieverError
from multihop.retrievers.base import Retriever, calls_made, given_again
from multihop.text import Hit, Query


@dataclass(eq=False)
class _Call:
    """One caller's search."""

    queries: Sequence[Query]
    k: int
    asked: frozenset[Query]
    found: asyncio.Future[list[list[Hit]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    alone: bool = False  # it was in a batch that failed


class BatchedRetriever:
    """Searches at once while it can; what comes meanwhile waits and goes together.

    There is no timer: a call that finds a search free never waits, and a call that finds none
    goes with the next that ends, beside all others of the same `k`. Equal queries of a batch
    are asked once. A batch of several calls that fails is repeated call by call, so that the
    error reaches those whose own it is. A caller that goes away disturbs no other.

    Args:
        inner: Who searches.
        at_once: Most searches running at a time, at least 1.
        batch: Most queries of one search; a single call that asks more goes alone, whole.

    Attributes:
        inner: As given; what it has beyond the protocol is found there.
        searches: Searches sent to it.
        queries: Queries asked by callers.
        sent: Queries sent, repeats left out.
    """

    def __init__(self, inner: Retriever, *, at_once: int = 2, batch: int = 32) -> None:
        if min(at_once, batch) < 1:
            raise BadInput(f"at_once is {at_once} and batch {batch}; both must be at least 1.")
        self.inner = inner
        self.at_once = at_once
        self.batch = batch
        self.searches = self.queries = self.sent = 0
        self._waiting: deque[_Call] = deque()
        self._running: set[asyncio.Task[list[list[Hit]]]] = set()

    @property
    def name(self) -> str:
        """The retriever's own name: a wrapper changes no ranking, so it leaves no mark there."""
        return self.inner.name

    @property
    def manifest(self) -> Any:
        """What the index inside says about itself; None for a retriever without one."""
        return getattr(self.inner, "manifest", None)

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat.
            k: Most hits per query, at least 1.

        Returns:
            One ranking per query.

        Raises:
            RetrieverError: The search failed, for these very queries.
        """
        call = _Call(queries, k, frozenset(queries))
        self.queries += len(queries)
        self._waiting.append(call)
        self._next()
        return await call.found

    async def aclose(self) -> None:
        """Close the retriever inside."""
        await self.inner.aclose()

    def _next(self) -> None:
        """Begin searches while any are wanted and allowed."""
        while len(self._running) < self.at_once and (calls := self._together()):
            asked = list(dict.fromkeys(query for call in calls for query in call.queries))
            self.searches += 1
            self.sent += len(asked)
            task = asyncio.create_task(self.inner.search(asked, calls[0].k))
            self._running.add(task)
            task.add_done_callback(partial(self._done, calls, asked))
            for call in calls:
                call.found.add_done_callback(partial(_end_if_forsaken, calls, task))

    def _together(self) -> list[_Call]:
        """The calls of the next search, in the order they came; none when nobody waits."""
        taken: list[_Call] = []
        others: list[_Call] = []
        asked: set[Query] = set()
        while self._waiting and len(asked) < self.batch:
            call = self._waiting.popleft()
            more = asked | call.asked
            if call.found.done():
                pass  # its caller went away
            elif not taken or (
                not (call.alone or taken[0].alone)
                and call.k == taken[0].k
                and len(more) <= self.batch
            ):
                taken.append(call)
                asked = more
            else:
                others.append(call)
        self._waiting.extendleft(reversed(others))
        return taken

    def _done(
        self, calls: list[_Call], asked: list[Query], task: asyncio.Task[list[list[Hit]]]
    ) -> None:
        """Give callers their rankings, or what went wrong."""
        self._running.discard(task)
        several = len(calls) > 1
        calls = [call for call in calls if not call.found.done()]
        if task.cancelled():
            for call in calls:
                call.found.cancel()
        elif failure := self._failure(task, asked):
            for call in reversed(calls):
                if several:
                    call.alone = True
                    self._waiting.appendleft(call)
                else:
                    call.found.set_exception(failure)
        else:
            found = dict(zip(asked, task.result(), strict=True))
            taken: set[Query] = set()  # what models were called for is paid by who asked first
            for call in calls:
                call.found.set_result([_share(found, query, taken) for query in call.queries])
        self._next()

    def _failure(
        self, task: asyncio.Task[list[list[Hit]]], asked: list[Query]
    ) -> BaseException | None:
        failure = task.exception()
        if not failure and len(task.result()) != len(asked):
            return RetrieverError(
                f"{self.name}: gave {len(task.result())} rankings for {len(asked)} queries."
            )
        return failure


def _end_if_forsaken(
    calls: list[_Call], task: asyncio.Task[list[list[Hit]]], _: asyncio.Future[list[list[Hit]]]
) -> None:
    """End a search that nobody waits for any more."""
    if all(call.found.cancelled() for call in calls):
        task.cancel()


def _share(found: dict[Query, list[Hit]], query: Query, taken: set[Query]) -> list[Hit]:
    """A ranking of its own for each who asked."""
    ranking = found[query]
    if query in taken and calls_made(ranking):
        return given_again(ranking)
    taken.add(query)
    return copy(ranking)
