"""A retriever whose best hits are put into a better order by somebody else."""

from collections.abc import Mapping, Sequence
from typing import Any

from multihop.errors import BadInput, RetrieverError
from multihop.retrievers.base import Ranking, Reranker, Retriever, calls_made, warnings_of
from multihop.text import Hit, Json, Query


class Reranked:
    """Asks a retriever for more hits than are wanted, and a reranker for the best of them.

    Searches by title are left as the retriever ranks them: they look for a name, not for an
    answer.

    Args:
        retriever: Who searches.
        reranker: Who orders what was found.
        depth: Hits that are ordered, at least 1; more when more are wanted in the end.
        options: What the retriever was opened with; for records.

    Attributes:
        name: "rerank:RETRIEVER by RERANKER".
        identity: What decides the ranking and is not in the name.

    Raises:
        BadInput: `depth` is below 1.
    """

    def __init__(
        self,
        retriever: Retriever,
        reranker: Reranker,
        *,
        depth: int = 50,
        options: Mapping[str, Json] | None = None,
    ) -> None:
        if depth < 1:
            raise BadInput(f"depth is {depth}; rerank at least 1 hit.")
        self.retriever = retriever
        self.reranker = reranker
        self.depth = depth
        self.name = f"rerank:{retriever.name} by {reranker.name}"
        self.identity: dict[str, Json] = {
            "depth": depth,
            "options": dict(options or {}),
            "retriever": dict(getattr(retriever, "identity", {})),
            "reranker": dict(getattr(reranker, "identity", {})),
        }

    @property
    def manifest(self) -> Any:
        """What the corpus inside says about itself; None for a retriever without one."""
        return getattr(self.retriever, "manifest", None)

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat.
            k: Most hits per query, at least 1.

        Returns:
            One `Ranking` per query; the scores are the reranker's.

        Raises:
            BadInput: `k` is below 1.
            RetrieverError: The search or the reranking failed.
            LMError: The model that reranks failed.
        """
        if k < 1:
            raise BadInput(f"k is {k}; ask for at least 1 hit.")
        found = await self.retriever.search(queries, max(self.depth, k))
        if len(found) != len(queries):
            raise RetrieverError(
                f"{self.retriever.name}: gave {len(found)} rankings for {len(queries)} queries."
            )
        better = [_cut(ranking, k) for ranking in found]
        asked = [n for n, query in enumerate(queries) if found[n] and not query.by_title]
        rankings = await self.reranker.rerank(
            [queries[n] for n in asked], [found[n] for n in asked], k
        )
        if len(rankings) != len(asked):
            raise RetrieverError(
                f"{self.reranker.name}: gave {len(rankings)} rankings for {len(asked)} queries."
            )
        for n, ranking in zip(asked, rankings, strict=True):
            self._check(ranking, found[n], k)
            better[n] = Ranking(
                ranking,
                (*calls_made(found[n]), *calls_made(ranking)),
                (*warnings_of(found[n]), *warnings_of(ranking)),
            )
        return better

    async def aclose(self) -> None:
        """Close the retriever and the reranker. Calling it twice is harmless."""
        await self.retriever.aclose()
        await self.reranker.aclose()

    def _check(self, ranking: Sequence[Hit], found: Sequence[Hit], k: int) -> None:
        """Make sure that nothing was lost and nothing made up."""
        ids = {hit.passage.id for hit in ranking}
        wanted = min(k, len(found))
        if len(ranking) != wanted or len(ids) != wanted:
            raise RetrieverError(
                f"{self.reranker.name}: gave {len(ids)} different hits, {len(ranking)} in all, "
                f"where {wanted} of {len(found)} were wanted."
            )
        if unknown := ids - {hit.passage.id for hit in found}:
            raise RetrieverError(
                f"{self.reranker.name}: gave the passage {min(unknown)!r}, which it was not given."
            )


def _cut(ranking: Sequence[Hit], k: int) -> list[Hit]:
    return Ranking(ranking[:k], calls_made(ranking), warnings_of(ranking))


def by_score(hits: Sequence[Hit], scores: Sequence[float], k: int) -> list[Hit]:
    """The best hits by other scores; equal ones stay in the order they had."""
    scored = [Hit(hit.passage, score) for hit, score in zip(hits, scores, strict=True)]
    return sorted(scored, key=lambda hit: -hit.score)[:k]
