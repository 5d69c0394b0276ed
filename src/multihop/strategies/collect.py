"""Collecting passages over the steps of one question."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from multihop.errors import RetrieverError
from multihop.retrievers.base import Retriever, calls_made, warnings_of
from multihop.strategies.rules import Eviction
from multihop.text import Hit, Passage, Query
from multihop.trace import Search, Step, StopReason


@dataclass
class Collected:
    """The passages found so far, in the order found.

    Attributes:
        cap: Most passages, a pinned one included (paper: 15).
        duplicate: Whether a hit is already there.
        longest: Hits of more words are skipped; None keeps all.
        eviction: What happens at the cap. "first": what came first stays (paper). "fifo":
            the oldest makes room, a pinned one never.
        pinned: IIRC's main passage; collected from the start.
        passages: What is there.
    """

    cap: int
    duplicate: Callable[[Passage, Sequence[Passage]], bool]
    longest: int | None = None
    eviction: Eviction = "first"
    pinned: Passage | None = None
    passages: list[Passage] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.pinned is not None:
            self.passages = [self.pinned, *self.passages]

    def add(self, hits: Sequence[Hit], titles: Sequence[str] | None = None) -> tuple[str, ...]:
        """Collect hits, best first; long, known and surplus ones are left out.

        Args:
            hits: A ranking. Hits left out are not replaced by later ones.
            titles: The titles that the search was limited to.

        Returns:
            Ids of those that joined.

        Raises:
            RetrieverError: A hit's title is outside the limit.
        """
        allowed = None if titles is None else {_bare(title) for title in titles}
        kept: list[str] = []
        for hit in hits:
            passage = hit.passage
            if self.longest is not None and len(passage.text.split(" ")) > self.longest:
                continue
            if self.duplicate(passage, self.passages) or not self._room(len(kept)):
                continue
            if allowed is not None and _bare(passage.title) not in allowed:
                raise RetrieverError(
                    f"The search was limited to the titles {', '.join(titles or ())}, but "
                    f"the retriever returned {passage.title!r}. It does not honour titles."
                )
            self.passages.append(passage)
            kept.append(passage.id)
        return tuple(kept)

    def _room(self, fresh: int) -> bool:
        """Room for one more; the last `fresh` passages came with the same ranking and stay."""
        if len(self.passages) < self.cap:
            return True
        oldest = 1 if self.pinned is not None else 0
        if self.eviction == "fifo" and len(self.passages) - fresh > oldest:
            self.passages.pop(oldest)
            return True
        return False

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all collected passages, in order."""
        return tuple(p.id for p in self.passages)


def _bare(title: str) -> str:
    return title.lower().replace(" ", "").strip()


async def look_up(
    retriever: Retriever,
    query: str,
    k: int,
    collected: Collected,
    titles: tuple[str, ...] | None = None,
) -> Search:
    """One retrieve step: ask, collect, record. An empty query asks nothing."""
    if not query.strip():
        return Search("", (), (), collected.ids, titles)
    found = await ranking(retriever, Query(query, titles), k)
    kept = collected.add(found.hits, titles)
    return replace(found, kept=kept, collected=collected.ids)


async def ranking(retriever: Retriever, query: Query, k: int) -> Search:
    """Ask a retriever one query; see `rankings`."""
    [found] = await rankings(retriever, [query], k)
    return found


async def rankings(retriever: Retriever, queries: Sequence[Query], k: int) -> list[Search]:
    """Ask a retriever queries, all in one batch.

    Returns:
        For each a search of which nothing is collected yet: hits, best first, with scores of our
        own kind of number (retrievers over arrays give theirs), its share of the seconds, and
        the LM calls that it made.

    Raises:
        RetrieverError: The search failed, or did not give one ranking for each query with scores
            that are numbers: nothing else could be written into a trace and read back.
    """
    began = time.perf_counter()
    found = await retriever.search(queries, k)
    seconds = (time.perf_counter() - began) / max(len(queries), 1)
    if len(found) != len(queries):
        asked = "one query" if len(queries) == 1 else f"{len(queries)} queries"
        raise RetrieverError(f"{retriever.name}: gave {len(found)} rankings for {asked}.")
    for hit in (hit for hits in found for hit in hits):
        if not math.isfinite(hit.score):
            raise RetrieverError(
                f"{retriever.name}: the score of {hit.passage.id!r} is {hit.score}; "
                "a score is a finite number."
            )
    return [
        Search(
            query.text,
            tuple(replace(hit, score=float(hit.score)) for hit in hits),
            (),
            (),
            query.titles,
            seconds,
            calls_made(hits),
            warnings_of(hits),
        )
        for query, hits in zip(queries, found, strict=True)
    ]


def dead_end(steps: Sequence[Step], patience: int, cap: int) -> StopReason | None:
    """Whether the last searches brought nothing new, though there was room for it.

    Args:
        steps: Taken so far.
        patience: How many searches in a row that takes.
        cap: Most passages collected.
    """
    searches = [step for step in steps if isinstance(step, Search)][-patience:]
    if len(searches) < patience or len(searches[-1].collected) >= cap:
        return None
    return None if any(search.kept for search in searches) else "no_gain"
