"""A retriever that goes on when a search fails, only where that is asked for.

IRCoT's release takes a failed request for an empty one, nine times in a process. Everywhere
else in this package a failed search ends the question.
"""

from collections.abc import Sequence

from multihop.errors import RetrieverError
from multihop.retrievers.base import Retriever
from multihop.text import Hit, Query


class SkippingRetriever:
    """Gives no hits where a search fails, a bounded number of times.

    Args:
        retriever: Who searches.
        allowed: Failures taken for empty rankings; the next one raises.

    Attributes:
        failures: What was skipped, in order.
    """

    def __init__(self, retriever: Retriever, allowed: int = 9) -> None:
        self._retriever = retriever
        self._allowed = allowed
        self.failures: list[RetrieverError] = []

    @property
    def name(self) -> str:
        """The inner retriever's name, marked."""
        return f"skipping:{self._retriever.name}"

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Search; see `Retriever`."""
        found = []
        for query in queries:
            try:
                found += await self._retriever.search([query], k)
            except RetrieverError as failure:
                self.failures.append(failure)
                if len(self.failures) > self._allowed:
                    raise
                found.append([])
        return found

    async def aclose(self) -> None:
        """Close the inner retriever."""
        await self._retriever.aclose()
