"""Search: passages for queries (section 2.3)."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from multihop.errors import RetrieverError
from multihop.strategies.dsp.fusions import Fuse, combsum_prob
from multihop.strategies.dsp.session import Session
from multihop.text import Hit, Passage, Query
from multihop.trace import Search

DEPTH = 3
"""Passages asked for each query of a fusion, in multiples of those wanted."""

RANKED = 1000
"""How far down its ranking a passage is looked for by `rank`."""


async def retrieve(session: Session, query: str, k: int) -> tuple[Passage, ...]:
    """The best `k` passages for a query, best first; none for an empty one."""
    return await fused_retrieval(session, [query], k)


async def fused_retrieval(
    session: Session, queries: Sequence[str], k: int, fuse: Fuse = combsum_prob
) -> tuple[Passage, ...]:
    """The best `k` passages for several queries together.

    The queries go out as one batch, each once, and each is asked for three times as many. A query
    that was written twice counts twice. One query alone is a plain search.

    Args:
        session: The retriever; each query becomes a step.
        queries: Empty ones are left out.
        k: Passages wanted.
        fuse: Makes one ranking of several.

    Raises:
        RetrieverError: The search failed, or gave scores that are no numbers.
    """
    counts = Counter(" ".join(query.split()) for query in queries if query.strip())
    asked = list(counts)
    if not asked:
        session.take(Search("", (), (), _collected(session)))
        return ()
    depth = k if len(asked) == 1 else DEPTH * k
    began = time.perf_counter()
    rankings = await _search(session, asked, depth)
    seconds = time.perf_counter() - began
    if len(asked) == 1:
        best = rankings[0][:k]
    else:
        lists = [
            ranking for q, ranking in zip(asked, rankings, strict=True) for _ in range(counts[q])
        ]
        best = fuse(lists)[:k]
    waiting = {hit.passage.id: None for hit in best}
    for query, ranking in zip(asked, rankings, strict=True):
        before = _collected(session)
        kept = tuple(name for name in waiting if any(hit.passage.id == name for hit in ranking))
        for name in kept:
            del waiting[name]
        new = tuple(name for name in kept if name not in before)
        session.take(
            Search(query, tuple(ranking), new, (*before, *new), None, seconds / len(asked))
        )
    return tuple(hit.passage for hit in best)


async def rank(session: Session, query: str, passages: Sequence[Passage]) -> list[float]:
    """The retriever's relevance of given passages to a query.

    A retriever ranks its corpus, so a passage is looked for in the query's ranking; one that is
    not among the first 1000 has 0.
    """
    [ranking] = await _search(session, [query], RANKED)
    scores = {hit.passage.id: hit.score for hit in ranking}
    return [scores.get(passage.id, 0.0) for passage in passages]


async def grounded(session: Session, candidates: Sequence[str], passages: Sequence[Passage]) -> str:
    """The candidate that the passages speak of most: the sum of their relevance to it.

    The paper scores passages put together; here they are scored each and added up. Of equal ones
    the first.
    """
    scores = [sum(await rank(session, c, passages)) if c.strip() else -math.inf for c in candidates]
    return candidates[scores.index(max(scores))]


async def _search(session: Session, queries: Sequence[str], k: int) -> list[list[Hit]]:
    rankings = await session.retriever.search([Query(q) for q in queries], k)
    if len(rankings) != len(queries):
        raise RetrieverError(
            f"{session.retriever.name}: gave {len(rankings)} rankings for {len(queries)} queries."
        )
    for hit in (hit for ranking in rankings for hit in ranking):
        if not math.isfinite(hit.score):
            raise RetrieverError(
                f"{session.retriever.name}: the score of {hit.passage.id!r} is {hit.score}; "
                "a score is a finite number."
            )
    return [[replace(hit, score=float(hit.score)) for hit in ranking] for ranking in rankings]


def _collected(session: Session) -> tuple[str, ...]:
    for step in reversed(session.steps):
        if isinstance(step, Search):
            return step.collected
    return ()
