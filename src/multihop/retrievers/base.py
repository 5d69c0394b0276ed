"""What a strategy may ask of a retriever, and what a retriever may ask of a reranker."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from multihop.text import Hit, Query
from multihop.trace import LMCall


class Ranking(list[Hit]):
    """The hits of one query, with what finding them took beside searching.

    A retriever that calls no model and has nothing to report gives plain lists. Wrappers hand
    rankings on as they are, or make new ones that keep `calls_made` and `warnings_of` the old.

    Args:
        hits: Best first.
        calls: LM calls made for this query; they go into the trace and count as cost.
        warnings: What the ranking has missed, in words.
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        calls: Iterable[LMCall] = (),
        warnings: Iterable[str] = (),
    ) -> None:
        super().__init__(hits)
        self.calls = tuple(calls)
        self.warnings = tuple(warnings)


def calls_made(ranking: Sequence[Hit]) -> tuple[LMCall, ...]:
    """The LM calls that a ranking took; none for a plain list."""
    return ranking.calls if isinstance(ranking, Ranking) else ()


def warnings_of(ranking: Sequence[Hit]) -> tuple[str, ...]:
    """What a ranking has missed, in words; nothing for a plain list."""
    return ranking.warnings if isinstance(ranking, Ranking) else ()


def given_again(ranking: Sequence[Hit]) -> list[Hit]:
    """A copy for somebody else who asked the same: its calls are replayed and cost nothing."""
    calls = [replace(call, replayed=True) for call in calls_made(ranking)]
    return Ranking(ranking, calls, warnings_of(ranking))


@runtime_checkable
class Retriever(Protocol):
    """Finds passages for queries.

    Attributes:
        name: As a user would name it, "bm25:PATH"; goes into every record.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat.
            k: Most hits per query, at least 1. A smaller corpus gives fewer.

        Returns:
            One ranking per query, in the order of `queries`, best hit first. A query that
            matches nothing gets an empty ranking. A retriever that calls models gives
            `Ranking`s.

        Raises:
            RetrieverError: The search failed. Never fewer hits instead.
            LMError: A model that the retriever calls failed.
        """
        ...

    async def aclose(self) -> None:
        """Free what the retriever holds. Calling it twice is harmless."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Puts hits into a better order.

    Attributes:
        name: As a user would name it, "cross-encoder:NAME"; goes into every record.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    async def rerank(
        self, queries: Sequence[Query], rankings: Sequence[Sequence[Hit]], k: int
    ) -> list[Ranking]:
        """Order the hits of each query by how well they answer it.

        Args:
            queries: Any number.
            rankings: One for each query, best first as somebody else ranked it.
            k: Most hits to give back per query, at least 1.

        Returns:
            For each query the best hits of its ranking, best first, scores on the reranker's
            own scale; the same hits whatever `k` is, cut to it. Calls and warnings are those
            of the reranking alone.

        Raises:
            RetrieverError: The reranking failed. Never the old order instead.
            LMError: The model that reranks failed.
        """
        ...

    async def aclose(self) -> None:
        """Free what the reranker holds. Calling it twice is harmless."""
        ...
