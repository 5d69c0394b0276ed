"""What a strategy may ask of a retriever."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from multihop.text import Hit, Query


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
            matches nothing gets an empty ranking.

        Raises:
            RetrieverError: The search failed. Never fewer hits instead.
        """
        ...

    async def aclose(self) -> None:
        """Free what the retriever holds. Calling it twice is harmless."""
        ...
