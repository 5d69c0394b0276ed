"""A reranker behind an address, with the `/rerank` that most servers have.

    POST URL   {"model": ..., "query": ..., "documents": ["..."], "top_n": 3,
                "return_documents": false}
    200        {"results": [{"index": 2, "relevance_score": 0.9}, ...]}

So Cohere, Jina, vLLM, llama.cpp and Infinity speak. Hugging Face's Text Embeddings Inference has
`{"query", "texts"}` and a bare list of `{"index", "score"}` instead.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, get_args

from multihop.errors import BadInput, RetrieverError
from multihop.retrievers.base import Ranking
from multihop.retrievers.cutting import titled
from multihop.retrievers.endpoint import Endpoint
from multihop.retrievers.rerank import by_score
from multihop.retrievers.side_by_side import side_by_side
from multihop.retrievers.wire import finite
from multihop.text import Hit, Json, Query

Shape = Literal["cohere", "tei"]
"""Whose JSON is spoken."""


class EndpointReranker:
    """Has a server score passages.

    Passages go out whole, title first; how long a text the server reads is its own affair, and it
    does not tell what it cuts. Where it refuses long texts instead, `body` can hold the field
    by which it would cut (`{"truncate": true}` for TEI).

    Args:
        url: The whole address, as "http://localhost:8000/v1/rerank".
        model: Its name there; empty sends none.
        shape: "cohere", or "tei" for Text Embeddings Inference.
        body: Further fields of each request.
        batch: Most passages of one request; TEI allows 32 unless told otherwise.
        at_once: Most requests at a time.
        timeout: Seconds that one request may take.
        retries: Attempts after the first, where the connection fails or the server asks to come
            back.
        key_env: The environment variable that holds the key; see `Endpoint`.

    Attributes:
        name: "endpoint:MODEL@URL".
        identity: What decides the order and is not in the name.

    Raises:
        BadInput: The address is none, or a setting is unknown.
    """

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        shape: Shape = "cohere",
        body: Mapping[str, Json] | None = None,
        batch: int = 500,
        at_once: int = 4,
        timeout: float = 60.0,
        retries: int = 2,
        key_env: str = "MULTIHOP_RERANK_KEY",
    ) -> None:
        if shape not in get_args(Shape):
            raise BadInput(f"shape is {shape!r}; known: {', '.join(get_args(Shape))}.")
        if min(batch, at_once) < 1:
            raise BadInput(f"batch is {batch} and at_once {at_once}; both must be at least 1.")
        self.name = f"endpoint:{model}@{url}" if model else f"endpoint:{url}"
        self.model = model
        self.shape = shape
        self.body = dict(body or {})
        self.batch = batch
        self.at_once = at_once
        self.identity: dict[str, Json] = {"shape": shape, "body": self.body}
        self._endpoint = Endpoint(self.name, url, key_env=key_env, timeout=timeout, retries=retries)

    async def rerank(
        self, queries: Sequence[Query], rankings: Sequence[Sequence[Hit]], k: int
    ) -> list[Ranking]:
        """Order the hits of each query; see `Reranker`.

        Raises:
            RetrieverError: The server did not score every passage of every query.
        """
        jobs = [
            partial(self._ask, query.text, hits[start : start + self.batch])
            for query, hits in zip(queries, rankings, strict=True)
            for start in range(0, len(hits), self.batch)
        ]
        parts = iter(await side_by_side(jobs, self.at_once))
        found = []
        for hits in rankings:
            scores: list[float] = []
            while len(scores) < len(hits):
                scores += next(parts)
            found.append(Ranking(by_score(hits, scores, k)))
        return found

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is harmless."""
        await self._endpoint.aclose()

    async def _ask(self, query: str, hits: Sequence[Hit]) -> list[float]:
        texts: list[Json] = [titled(hit.passage) for hit in hits]
        body: dict[str, Json] = {"query": query, **self.body}
        if self.model:
            body["model"] = self.model
        if self.shape == "tei":
            body["texts"] = texts
        else:
            body |= {"documents": texts, "top_n": len(texts), "return_documents": False}
        return self._scores(await self._endpoint.post(body), len(hits))

    def _scores(self, reply: Json, many: int) -> list[float]:
        """Scores in the order of the passages."""
        key = "score" if self.shape == "tei" else "relevance_score"
        results = reply.get("results") if isinstance(reply, dict) else reply
        if self.shape == "cohere" and not isinstance(reply, dict):
            results = None
        if not isinstance(results, list):
            raise self._endpoint.error(f"the answer has no list of results ({str(reply)[:80]!r}).")
        if len(results) != many:
            raise self._endpoint.error(f"{len(results)} results for {many} passages.")
        scores: dict[int, float] = {}
        for n, result in enumerate(results):
            where = f"{self.name}: results[{n}]"
            if not isinstance(result, dict):
                raise RetrieverError(f"{where} is no object.")
            index = result.get("index")
            if type(index) is not int or not 0 <= index < many or index in scores:
                raise RetrieverError(
                    f"{where}: index is {str(index)[:80]}; expected each of 0 to {many - 1} once."
                )
            scores[index] = finite(result.get(key), f"{where}: {key}")
        return [scores[index] for index in range(many)]
