"""A retriever behind an address: anybody's search, said in the JSON of `wire`."""

from collections.abc import Sequence

from multihop.errors import BadInput
from multihop.retrievers.endpoint import Endpoint
from multihop.retrievers.wire import (
    Identity,
    identity_from_json,
    rankings_from_json,
    request_to_json,
)
from multihop.text import Hit, Query


class HttpRetriever:
    """Asks a server for rankings.

    The server is asked once when it is opened what it holds (GET); it need not answer that. All
    queries of a search go in one request.

    Args:
        url: The address, as "http://localhost:8000/search".
        timeout: Seconds that one request may take.
        retries: Attempts after the first, where the connection fails or the server asks to come
            back.
        key_env: The environment variable that holds the key; see `Endpoint`.

    Attributes:
        name: "http:URL".
        manifest: What the server says about itself, with `content_hash`; None where it says
            nothing.

    Raises:
        BadInput: The address is none.
        RetrieverError: The server cannot be reached, refuses, or says nonsense.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        retries: int = 2,
        key_env: str = "MULTIHOP_RETRIEVER_KEY",
    ) -> None:
        if url.startswith("//"):  # "http://HOST" was given where "http:http://HOST" was meant
            url = f"http:{url}"
        self.name = f"http:{url}"
        self._endpoint = Endpoint(self.name, url, key_env=key_env, timeout=timeout, retries=retries)
        said = self._endpoint.get()
        self.manifest: Identity | None = (
            None if said is None else identity_from_json(said, self.name)
        )

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat.
            k: Most hits per query, at least 1.

        Raises:
            BadInput: `k` is below 1.
            RetrieverError: The server did not answer as it should, for all of these queries.
        """
        if k < 1:
            raise BadInput(f"k is {k}; ask for at least 1 hit.")
        if not queries:
            return []
        reply = await self._endpoint.post(request_to_json(queries, k))
        return rankings_from_json(reply, queries, k, self.name)

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is harmless."""
        await self._endpoint.aclose()
