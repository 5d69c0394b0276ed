"""What a strategy may ask of a retriever, and what a retriever may ask of a reranker."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from multihop.errors import BadInput
from multihop.text import Hit, Json, Passage, Query
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


def refuse_where(name: str, queries: Sequence[Query]) -> None:
    """For a retriever that cannot choose by metadata: say so, and search nothing.

    Args:
        name: The retriever's.
        queries: What is asked.

    Raises:
        BadInput: One of them has a `where`.
    """
    for query in queries:
        if query.where:
            field, value = query.where[0]
            raise BadInput(
                f"{name}: cannot choose passages by metadata ({field}={value}). "
                "Ask without, or search a BM25 index."
            )


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


class Built(Protocol):
    """What a store says of an index that it made.

    Attributes:
        passages: How many there are now.
        content_hash: The same for the same passages in any order.
    """

    @property
    def passages(self) -> int: ...  # noqa: D102

    @property
    def content_hash(self) -> str: ...  # noqa: D102


@runtime_checkable
class Store(Protocol):
    """Makes and changes an index elsewhere than in a folder.

    Attributes:
        name: As a user would name it, and search it by: "elastic:URL/NAME".
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    def build(
        self,
        passages: Iterable[Passage],
        *,
        source: Mapping[str, Json] | None = None,
        progress: Callable[[int], None] | None = None,
        on_duplicate: Callable[[Passage], None] | None = None,
    ) -> Built:
        """Index passages; what is there already is replaced when all is done.

        Args:
            passages: Read once, in order.
            source: How the passages were made; kept with the index.
            progress: Told the count so far, now and then and at the end.
            on_duplicate: Told a passage whose id was there before; when it returns, the passage
                is left out. None raises CorpusError.

        Raises:
            CorpusError: The passages, or what is there already, cannot be used.
            RetrieverError: The store failed.
        """
        ...

    def change(
        self,
        add: Iterable[Passage] = (),
        *,
        delete: Sequence[str] = (),
        source: Mapping[str, Json] | None = None,
        progress: Callable[[int], None] | None = None,
        on_duplicate: Callable[[Passage], None] | None = None,
    ) -> Built:
        """Delete passages by their ids and add others: all of it, or nothing.

        Raises:
            BadInput: There is no passage with an id that is to be deleted.
            CorpusError: There is no index, or an id is taken.
            RetrieverError: The store failed.
        """
        ...
