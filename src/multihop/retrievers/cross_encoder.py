"""A reranker in this process: a cross-encoder read by sentence-transformers."""

import asyncio
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from multihop.errors import BadInput, MissingExtra, RetrieverError
from multihop.retrievers.base import Ranking
from multihop.retrievers.cutting import cut, sound, titled
from multihop.retrievers.rerank import by_score
from multihop.retrievers.wire import finite
from multihop.text import Hit, Json, Query


class CrossEncoderReranker:
    """Reads query and passage together and says how well they fit (Nogueira and Cho, 2019).

    Passages are read title first, and cut at the end where the pair is longer than the model's
    input: by the model's own tokenizer, and reported. A query keeps at least half of the input.
    One thread of its own computes, so the event loop stays free.

    Args:
        model: A folder, or a name on the Hugging Face hub; one with a single score a pair.
        device: "cpu", "cuda", ...; None takes the best there is.
        batch: Pairs computed at once, at least 1.
        max_length: Most tokens of a pair; None is the model's own limit.
        revision: Commit or tag on the hub; None is the newest.

    Attributes:
        name: "cross-encoder:MODEL".
        identity: What decides the order and is not in the name.

    Raises:
        BadInput: There is no such model, or it does not give one score a pair.
        MissingExtra: sentence-transformers is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        batch: int = 32,
        max_length: int | None = None,
        revision: str | None = None,
    ) -> None:
        if batch < 1:
            raise BadInput(f"batch is {batch}; it must be at least 1.")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingExtra("sentence-transformers", "dense")
        from sentence_transformers import CrossEncoder  # noqa: PLC0415

        self.name = f"cross-encoder:{model}"
        self.batch = batch
        try:
            self._model: Any = CrossEncoder(
                model, device=device, max_length=max_length, revision=revision
            )
        except (OSError, ValueError) as failure:
            why = str(failure).strip().split("\n", 1)[0]
            raise BadInput(f"{self.name} cannot be loaded: {why}") from failure
        if self._model.num_labels != 1:
            raise BadInput(
                f"{self.name} gives {self._model.num_labels} numbers a pair, not one score. "
                "Choose a model that was trained to rank."
            )
        self._tokenizer = self._model.tokenizer
        self._most: int | None = self._model.max_seq_length
        self.identity: dict[str, Json] = {"max_length": self._most, "revision": revision}
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(
            1, thread_name_prefix="multihop-cross-encoder"
        )

    async def rerank(
        self, queries: Sequence[Query], rankings: Sequence[Sequence[Hit]], k: int
    ) -> list[Ranking]:
        """Order the hits of each query; see `Reranker`.

        Raises:
            RetrieverError: It was closed, or the model gave a score that is no number.
        """
        pairs: list[tuple[str, str]] = []
        reports: list[list[str]] = []
        for query, hits in zip(queries, rankings, strict=True):
            text, passages, warnings = await self._shown(query.text, hits)
            pairs += [(text, passage) for passage in passages]
            reports.append(warnings)
        scores = iter(await self._run(self._scores, pairs))
        return [
            Ranking(by_score(hits, [next(scores) for _ in hits], k), (), warnings)
            for hits, warnings in zip(rankings, reports, strict=True)
        ]

    async def aclose(self) -> None:
        """Let the model go. Calling it twice is harmless."""
        if self._thread:
            self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = self._model = None

    async def _shown(self, query: str, hits: Sequence[Hit]) -> tuple[str, list[str], list[str]]:
        """Query and passages as the model will read them, and what was cut, in words."""
        query, passages = sound(query), [sound(titled(hit.passage)) for hit in hits]
        if self._most is None:
            return query, passages, []
        warnings = []
        room = self._most - self._tokenizer.num_special_tokens_to_add(pair=True)
        if room < 2:
            raise RetrieverError(
                f"{self.name}: its input of {self._most} tokens has no room for a query and a "
                "passage. Give it a larger max_length."
            )
        [query], query_cut = await cut([query], room // 2, self._count)
        if query_cut:
            warnings.append(f"{self.name}: the query was cut to {room // 2} tokens.")
        [taken] = await self._count([query])
        passages, many = await cut(passages, room - taken, self._count)
        if many:
            warnings.append(
                f"{self.name}: {many} of {len(hits)} passages were cut to {room - taken} tokens."
            )
        return query, passages, warnings

    async def _count(self, texts: Sequence[str]) -> list[int]:
        found: list[int] = await self._run(self._counts, texts)
        return found

    def _counts(self, texts: Sequence[str]) -> list[int]:
        found = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)
        return [len(ids) for ids in found["input_ids"]]

    def _scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        if not pairs:
            return []
        found = self._model.predict(
            list(pairs), batch_size=self.batch, show_progress_bar=False, convert_to_numpy=True
        )
        return [finite(float(score), f"{self.name}: a score") for score in found.reshape(-1)]

    async def _run(self, work: Any, given: Any) -> Any:
        if self._thread is None:
            raise RetrieverError(f"{self.name}: it was closed. Open it again.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, given)
