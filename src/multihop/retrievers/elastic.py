"""Elasticsearch, the paper's engine, or OpenSearch, as a retriever.

For corpora that one machine is too small for, and for indexes that are there already. On one
machine `bm25` gives the same rankings in a hundredth of the memory.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast, get_args

from multihop.errors import BadInput, CorpusError, IndexMismatch
from multihop.retrievers.base import refuse_where
from multihop.retrievers.elastic_form import (
    BUFFER,
    Form,
    Found,
    clean_passages,
    clean_titles,
    folded,
    search_body,
)
from multihop.retrievers.elastic_index import (
    FIELDS,
    ElasticManifest,
    all_passages,
    checked_hits,
    opened,
    passage_by_id,
    passage_of,
    read_manifest,
    sendable,
    title_key,
)
from multihop.retrievers.elastic_wire import Cluster, path_of
from multihop.retrievers.english import analyze
from multihop.text import Hit, Json, Passage, Query

TOGETHER = 100
"""Queries that go in one request."""

MOST = 10_000
"""Hits that a server gives out for one query (its index.max_result_window)."""

PLAIN = 500
"""Words of a query up to which it is sent as it is. Servers count the words of a query, and refuse
more than 1024; above this, repeats are counted here and words sent as terms, in groups."""


class ElasticRetriever:
    """Searches an index made by `ElasticStore`, or by IRCoT's release.

    The index that the name stands for now is the one that is searched. When it is replaced
    meanwhile by one of the same passages, searches go on there; by one of others, they fail.

    Queries with equal scores stand in document order, the order in which passages were indexed.
    An index of several shards is searched with the word statistics of all of them
    (dfs_query_then_fetch), so that scores are those of one.

    Args:
        target: URL/NAME, as "http://localhost:9200/hotpotqa".
        form: How queries are asked, as for `BM25`.
        title_weight: As for `BM25`: weight of the title's score in the form `paper`.
        corpus: Name of the data set, for `official`, which searches `hotpotqa` among abstracts
            alone. Empty: the index's name.
        content_hash: Refuse an index of other passages than those with this hash.
        unmarked: Take an index without our marker: one that IRCoT's release has built.
        timeout: Seconds that one request may take.
        retries: Attempts after the first, where the connection fails or the server asks to come
            back.
        ca: PEM file of the authority that signed the server's certificate.
        client_certificate: PEM file with a certificate and its key, for servers that ask for one.
        insecure: Take any certificate. For tests.

    Attributes:
        name: "elastic:URL/NAME".
        form: As given.
        title_weight: As given.
        manifest: What the index says about itself.

    Raises:
        BadInput: The target is none; an option is out of its range.
        CorpusError: There is no index, it is empty, or not ours.
        IndexMismatch: It is of another version, or holds other passages.
        RetrieverError: The server is down, slow, or of a version that is not supported.
    """

    def __init__(
        self,
        target: str,
        form: Form = "paper",
        title_weight: float = 1.0,
        *,
        corpus: str = "",
        content_hash: str = "",
        unmarked: bool = False,
        timeout: float = 30.0,
        retries: int = 2,
        ca: str = "",
        client_certificate: str = "",
        insecure: bool = False,
    ) -> None:
        if form not in get_args(Form):
            known = ", ".join(get_args(Form))
            raise BadInput(f"No query form is named {form!r}. Known: {known}.")
        if not 0 <= title_weight <= 1000:
            raise BadInput(f"title_weight is {title_weight}; it is a number from 0 to 1000.")
        if title_weight != 1 and form != "paper":
            raise BadInput(f"title_weight is for the form paper; the form {form!r} has none.")
        if unmarked and form != "official":
            raise BadInput("An index without our marker has the fields of form=official only.")
        self._cluster = Cluster(
            target,
            timeout=timeout,
            retries=retries,
            ca=ca,
            client_certificate=client_certificate,
            insecure=insecure,
        )
        self.name = self._cluster.name
        self.form = form
        self.title_weight = title_weight
        self._corpus = corpus or self._cluster.index
        self._unmarked = unmarked
        self.manifest: ElasticManifest
        try:
            self._cluster.check_version()
            self.manifest = opened(self._cluster, unmarked=unmarked)
            self._check(content_hash)
        finally:
            self._cluster.close()

    def __len__(self) -> int:
        """How many passages the index holds."""
        return self.manifest.passages

    def __iter__(self) -> Iterator[Passage]:
        """All passages, in document order; blocks."""
        return all_passages(self._cluster, self.manifest.index)

    def get(self, passage_id: str) -> Passage | None:
        """Look a passage up by its id; None when there is none. Blocks."""
        return passage_by_id(self._cluster, self.manifest.index, passage_id)

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat, and a repeat is asked once.
            k: Most hits per query, from 1 to `MOST`.

        Returns:
            One ranking per query. A query without a single index term (empty, or stop words
            alone) has an empty ranking, also where the released server gives any passages at
            all, with score 0.

        Raises:
            BadInput: `k` is out of its range; a query has a `where`.
            RetrieverError: The server failed, or answered for a part of the index only.
        """
        if not 1 <= k <= MOST:
            raise BadInput(f"k is {k}; a server gives from 1 to {MOST:,} hits.")
        refuse_where(self.name, queries)
        found: dict[Query, list[Hit]] = {
            query: [] for query in queries if query.titles is not None and not query.titles
        }
        asked = [query for query in dict.fromkeys(queries) if query not in found]
        for start in range(0, len(asked), TOGETHER):
            some = asked[start : start + TOGETHER]
            rankings = await self._rank(some, k)
            found.update(zip(some, rankings, strict=True))
        return [list(found[query]) for query in queries]

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is harmless."""
        await self._cluster.aclose()

    def body(self, query: Query, k: int) -> dict[str, Json]:
        """The search that the server is sent for a query.

        For `official` it is the released one, with three entries more: ties in document order,
        the fields that make our passages, and no count of all hits.
        """
        body = self._official(query, k) if self.form == "official" else self._own(query, k)
        if not self._unmarked:
            body["sort"] = [{"_score": "desc"}, {"number": "asc"}]
            body["track_scores"] = True
        source = cast(list[Json], body.get("_source", []))
        body["_source"] = [*source, *(name for name in FIELDS if name not in source)]
        body["track_total_hits"] = False
        return cast(dict[str, Json], _bounded(body))

    def _official(self, query: Query, k: int) -> dict[str, Json]:
        titles = None if query.titles is None else [sendable(title) for title in query.titles]
        return search_body(
            sendable(query.text),
            self._corpus,
            document_type="title" if query.by_title else "title_paragraph_text",
            allowed_titles=titles,
            buffer=max(BUFFER, k),
        ) | {"size": max(BUFFER, k)}

    def _own(self, query: Query, k: int) -> dict[str, Json]:
        text = sendable(query.text)
        limits: list[Json] = []
        if query.titles is not None:
            keys = sorted({title_key(title) for title in query.titles})
            limits.append({"terms": {"title_key": list[Json](keys)}})
        words: list[Json]
        if query.by_title:
            words = [{"match": {"title": text}}]
            limits.append({"term": {"is_abstract": True}})
        else:
            words = [{"match": {"paragraph_text": text}}]
            if self.form == "paper" and self.title_weight:
                words.append({"match": {"title": {"query": text, "boost": self.title_weight}}})
        ask: dict[str, Json] = {"bool": {"should": words}}
        if limits:
            ask = {"bool": {"must": [ask], "filter": limits}}
        body: dict[str, Json] = {"size": k, "query": ask}
        if query.by_title:
            body["collapse"] = {"field": "title_key"}
        elif self.form == "paper":
            body["collapse"] = {"field": "text_key"}
        return body

    async def _rank(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        found = await self._ask(queries, k)
        if found is None:  # the index was replaced
            await self._follow()
            found = await self._ask(queries, k)
        if found is None:
            raise self._cluster.error("the index is gone.")
        return [self._cleaned(query, hits, k) for query, hits in zip(queries, found, strict=True)]

    async def _ask(self, queries: Sequence[Query], k: int) -> list[list[Found[Passage]]] | None:
        """What the server finds; None when there is no such index any more."""
        head: dict[str, Json] = {
            "index": self.manifest.index,
            "allow_partial_search_results": False,
        }
        if self.manifest.shards > 1:
            head["search_type"] = "dfs_query_then_fetch"
        start = json.dumps(head)
        lines = [line for q in queries for line in (start, json.dumps(self.body(q, k)))]
        answer = await self._cluster.ask(
            "POST", "/_msearch", ("\n".join(lines) + "\n").encode("ascii")
        )
        answers = answer.get("responses") if isinstance(answer, dict) else None
        if not isinstance(answers, list) or len(answers) != len(queries):
            raise self._cluster.error(f"expected {len(queries)} answers to {len(queries)} queries.")
        if any(_no_index(one) for one in answers):
            return None
        found = []
        for query, one in zip(queries, answers, strict=True):
            hits = checked_hits(one)
            if isinstance(hits, str):
                raise self._cluster.error(f"the search for {query.text[:80]!r} failed: {hits}.")
            found.append([self._found(hit) for hit in hits])
        return found

    def _found(self, hit: Mapping[str, Json]) -> Found[Passage]:
        source, score = hit.get("_source"), hit.get("_score")
        texts = isinstance(source, dict) and isinstance(source.get("paragraph_text"), str)
        if not texts or not isinstance(score, (int, float)) or isinstance(score, bool):
            raise self._cluster.error(
                f"a hit without a score or a paragraph_text: {json.dumps(hit)[:80]}."
            )
        passage = passage_of(cast(Mapping[str, Json], source), str(hit.get("_id")))
        return Found(passage, float(score), folded(passage.text), folded(passage.title))

    def _cleaned(self, query: Query, found: list[Found[Passage]], k: int) -> list[Hit]:
        # A filter makes the words optional for the server: it fills up with what has none.
        found = [hit for hit in found if hit.score > 0]
        if self.form == "official" and query.by_title:
            found = clean_titles(found, k)
        elif self.form == "official":
            titles = None if query.titles is None else {folded(title) for title in query.titles}
            found = clean_passages(found, k, titles)
        return [Hit(hit.item, hit.score) for hit in found[:k]]

    async def _follow(self) -> None:
        """Turn to the index that the name stands for now, if it holds the same passages."""
        answer = await self._cluster.ask("GET", path_of(self._cluster.index), allowed=(404,))
        now = await asyncio.to_thread(read_manifest, self._cluster, answer, unmarked=self._unmarked)
        if now.content_hash != self.manifest.content_hash:
            raise self._cluster.error(
                "the index was replaced by one of other passages while it was open. Open it again."
            )
        self.manifest = now

    def _check(self, content_hash: str) -> None:
        if not self.manifest.passages:
            raise CorpusError(f"{self.name}: the index is empty.")
        if content_hash and content_hash != self.manifest.content_hash:
            theirs = self.manifest.content_hash or "that it does not tell"
            raise IndexMismatch(
                f"{self.name}: holds another corpus: content hash {theirs}, expected "
                f"{content_hash}."
            )


def _no_index(answer: Json) -> bool:
    error = answer.get("error") if isinstance(answer, dict) else None
    return isinstance(error, dict) and error.get("type") == "index_not_found_exception"


def _bounded(body: Json) -> Json:
    """The same search, in which no query has more words than a server takes."""
    if isinstance(body, list):
        return [_bounded(part) for part in body]
    if not isinstance(body, dict):
        return body
    match = body.get("match")
    if isinstance(match, dict) and len(body) == 1:
        [(field, value)] = match.items()
        text, boost = (value["query"], value["boost"]) if isinstance(value, dict) else (value, 1.0)
        if isinstance(text, str) and len(text) > PLAIN:
            words = analyze(text)
            if len(words) > PLAIN:
                return _terms(field, words, cast(float, boost))
        return body
    return {name: _bounded(part) for name, part in body.items()}


def _terms(field: str, words: Sequence[str], boost: float) -> Json:
    """What the server makes of a match: each word's score as often as it is there."""
    terms: list[Json] = [
        {"term": {field: {"value": word, "boost": boost * count}}}
        for word, count in Counter(words).items()
    ]
    groups: list[Json] = [
        {"bool": {"should": terms[start : start + PLAIN]}} for start in range(0, len(terms), PLAIN)
    ]
    return {"bool": {"should": groups}}
