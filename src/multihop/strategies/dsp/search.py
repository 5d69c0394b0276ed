"""Search: passages for queries (section 2.3)."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from multihop.retrievers.fusion import FUSIONS, Fuse
from multihop.strategies.collect import ranking, rankings
from multihop.strategies.dsp.session import Session
from multihop.text import Passage, Query
from multihop.trace import Search

DEPTH = 3
"""Passages asked for each query of a fusion, in multiples of those wanted."""

COMBSUM = FUSIONS["combsum_prob"]
"""CombSUM over probabilities (paper, section 2.3). The paper does not say what they are for a
retriever that gives scores: here a softmax, see `retrievers.fusion.probabilities`."""

RANKED = 1000
"""How far down its ranking a passage is looked for by `rank`."""


async def retrieve(session: Session, query: str, k: int) -> tuple[Passage, ...]:
    """The best `k` passages for a query, best first; none for an empty one."""
    return await fused_retrieval(session, [query], k)


async def fused_retrieval(
    session: Session, queries: Sequence[str], k: int, fuse: Fuse = COMBSUM
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
    found = await rankings(session.retriever, [Query(query) for query in asked], depth)
    if len(asked) == 1:
        best = list(found[0].hits[:k])
    else:
        lists = [search.hits for search in found for _ in range(counts[search.query])]
        best = fuse(lists)[:k]
    waiting = {hit.passage.id: None for hit in best}
    for search in found:
        before = _collected(session)
        ids = {hit.passage.id for hit in search.hits}
        brought = [name for name in waiting if name in ids]
        for name in brought:
            del waiting[name]
        new = tuple(name for name in brought if name not in before)
        session.take(replace(search, kept=new, collected=(*before, *new)))
    return tuple(hit.passage for hit in best)


async def rank(session: Session, query: str, passages: Sequence[Passage]) -> list[float]:
    """The retriever's relevance of given passages to a query.

    A retriever ranks its corpus, so a passage is looked for in the query's ranking; one that is
    not among the first 1000 has 0.
    """
    search = await ranking(session.retriever, Query(query), RANKED)
    scores = {hit.passage.id: hit.score for hit in search.hits}
    return [scores.get(passage.id, 0.0) for passage in passages]


async def grounded(session: Session, candidates: Sequence[str], passages: Sequence[Passage]) -> str:
    """The candidate that the passages speak of most: the sum of their relevance to it.

    The paper scores passages put together; here they are scored each and added up. Of equal ones
    the first.
    """
    scores = [sum(await rank(session, c, passages)) if c.strip() else -math.inf for c in candidates]
    return candidates[scores.index(max(scores))]


def _collected(session: Session) -> tuple[str, ...]:
    for step in reversed(session.steps):
        if isinstance(step, Search):
            return step.collected
    return ()
