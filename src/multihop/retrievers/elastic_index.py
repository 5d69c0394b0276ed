"""Corpora in Elasticsearch or OpenSearch: built, added to, deleted from and looked up.

NAME is an alias. Behind it stands one index with the fields of the released IRCoT index, a few
of ours, and a marker (`_meta` of its mapping) that says what it holds:

    NAME -> NAME-20260131-1f0c53a2

A build fills the next index beside it, compares what is there with what was sent, and then moves
the alias in one step: searches never see half an index. A build that is killed leaves its index
behind; the next build of that name goes on with it, and sends only what is missing or different.
"""

import itertools
import json
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

import multihop
from multihop.errors import BadInput, CorpusError, IndexMismatch
from multihop.retrievers.bm25_rows import encoded, folded_key, id_key
from multihop.retrievers.content import HASHES, content_hash
from multihop.retrievers.content import digest as digest_of
from multihop.retrievers.elastic_wire import Cluster, back_off, path_of, reason, sleep
from multihop.text import Json, Passage

FORMAT = 1
"""Version of the documents and the marker. Readers refuse others."""

SETTINGS: Mapping[str, Json] = {"analyzer": "english", "similarity": "default"}
"""What decides an index's rankings, beside the server's version."""

FIELDS = ("id", "title", "paragraph_text", "metadata", "exact")
"""What a passage is made of again."""

BATCH = 1_000
"""Passages that are sent at a time, at most."""

BATCH_BYTES = 5_000_000
"""Bytes after which a batch is sent; a passage may be larger."""

PAGE = 5_000
"""Digests that are read at a time."""

_TRIES = 8
"""How often a batch is sent that the server has no room for."""


@dataclass(frozen=True, slots=True)
class ElasticManifest:
    """What an index says about itself.

    Attributes:
        passages: How many it holds.
        content_hash: The same for the same passages in any order, and the same as that of a BM25
            index of them; empty where the index does not tell.
        index: The index behind the alias.
        shards: How many it is split into.
        package: Version of multihop that wrote it.
        source: How the passages were made, as the builder was told: paths, splitting.
        written: When, in UTC, ISO 8601.
    """

    passages: int
    content_hash: str
    index: str
    shards: int
    package: str = ""
    source: Mapping[str, Json] = field(default_factory=dict)
    written: str = ""


class ElasticStore:
    """Makes and changes an index.

    Args:
        target: URL/NAME, as "http://localhost:9200/hotpotqa".
        shards: How many parts the index is split into. One is exact and enough for some ten
            million passages; the scores of several are made equal to it by a second round of
            requests.
        replicas: Copies of each part on other nodes. They are made when the index is full.
        connections: Batches under way at a time.
        timeout: Seconds that a batch may take.
        ca: As for `Cluster`.
        client_certificate: As for `Cluster`.
        insecure: As for `Cluster`.

    Attributes:
        name: "elastic:URL/NAME".

    Raises:
        BadInput: The target is none; a number is out of its range.
    """

    def __init__(
        self,
        target: str,
        *,
        shards: int = 1,
        replicas: int = 0,
        connections: int = 2,
        timeout: float = 120.0,
        ca: str = "",
        client_certificate: str = "",
        insecure: bool = False,
    ) -> None:
        self._cluster = Cluster(
            target,
            timeout=timeout,
            ca=ca,
            client_certificate=client_certificate,
            insecure=insecure,
        )
        self.name = self._cluster.name
        for word, number, least in (
            ("shards", shards, 1),
            ("replicas", replicas, 0),
            ("connections", connections, 1),
        ):
            if not least <= number <= 1024:
                raise BadInput(f"{self.name}: {word} is {number}; from {least} to 1024.")
        self._shards, self._replicas, self._connections = shards, replicas, connections

    def build(
        self,
        passages: Iterable[Passage],
        *,
        source: Mapping[str, Json] | None = None,
        progress: Callable[[int], None] | None = None,
        on_duplicate: Callable[[Passage], None] | None = None,
    ) -> ElasticManifest:
        """Index passages; the index that the name stands for is replaced when all is done.

        Memory does not grow with the passages, but for a 64-bit hash of each id.

        Args:
            passages: Read once, in order; their order breaks ties between equal scores.
            source: How they were made; kept in the marker.
            progress: Told the count so far, now and then and at the end.
            on_duplicate: Told a passage whose id was there before; when it returns, the passage
                is left out. None raises CorpusError.

        Raises:
            CorpusError: No passages; an id twice; the server took a passage not; the name is
                that of an index which is not ours; another writer is at work.
            RetrieverError: The server failed.
        """
        try:
            self._cluster.check_version()
            current = _current(self._cluster)
            return self._build(passages, current, source, progress, on_duplicate)
        finally:
            self._cluster.close()

    def change(
        self,
        add: Iterable[Passage] = (),
        *,
        delete: Sequence[str] = (),
        source: Mapping[str, Json] | None = None,
        progress: Callable[[int], None] | None = None,
        on_duplicate: Callable[[Passage], None] | None = None,
    ) -> ElasticManifest:
        """Delete passages and add others: all of it, or nothing.

        The passages that stay are copied into the next index through this process.

        Args:
            add: As for `build`; an id that stays counts as a duplicate.
            delete: Ids to delete first; repeats are harmless.
            source: How the added passages were made; replaces entries of the same name.
            progress: As for `build`.
            on_duplicate: As for `build`.

        Raises:
            BadInput: There is no passage with an id that is to be deleted.
            CorpusError: There is no index, or an id is taken.
            RetrieverError: The server failed.
        """
        try:
            self._cluster.check_version()
            old = opened(self._cluster)
            gone = set(delete)
            unknown = [i for i in delete if passage_by_id(self._cluster, old.index, i) is None]
            if unknown:
                shown = ", ".join(map(repr, unknown[:5])) + (", ..." if unknown[5:] else "")
                raise BadInput(
                    f"{self.name}: holds no passage with id {shown}. Nothing was changed."
                )
            stay = (p for p in all_passages(self._cluster, old.index) if p.id not in gone)
            return self._build(
                itertools.chain(stay, add),
                old.index,
                {**old.source, **(source or {})},
                progress,
                on_duplicate,
                empty=True,
            )
        finally:
            self._cluster.close()

    def _build(
        self,
        passages: Iterable[Passage],
        current: str,
        source: Mapping[str, Json] | None,
        progress: Callable[[int], None] | None,
        on_duplicate: Callable[[Passage], None] | None,
        *,
        empty: bool = False,
    ) -> ElasticManifest:
        writer = secrets.token_hex(8)
        index, there = self._adopt(writer, current) or (self._create(writer), 0)
        held = _Held(self._cluster, index, there)
        seen: set[int] = set()
        content = 0

        def missing() -> Iterator[tuple[int, Passage, str]]:
            nonlocal content
            for passage in passages:
                key = id_key(passage.id)
                if key in seen:
                    (on_duplicate or self._refuse)(passage)
                    continue
                number = len(seen)
                seen.add(key)
                digest = digest_of(encoded(passage)).hex()
                content += int(digest, 16)
                if progress and (number + 1) % 256 == 0:
                    progress(number + 1)
                if held.digest(number) != digest:
                    yield number, passage, digest

        self._send(index, missing())
        if not seen and not empty:
            self._cluster.request("DELETE", path_of(index), allowed=(404,))
            raise CorpusError(f"{self.name}: there are no passages to index. Nothing was changed.")
        self._cut(index, len(seen), there)
        self._compare(index, len(seen), content % HASHES)
        manifest = self._finish(index, writer, len(seen), content_hash(content), source or {})
        self._switch(index, current)
        if progress:
            progress(len(seen))
        return manifest

    def _refuse(self, passage: Passage) -> None:
        raise CorpusError(
            f"{self.name}: passage id {passage.id!r} is there twice. Ids are unique in an index."
        )

    # --- The next index -----------------------------------------------------------------------

    def _adopt(self, writer: str, current: str) -> tuple[str, int] | None:
        """The index that a killed build left, and one more than its highest number."""
        left = self._cluster.request("GET", path_of(f"{self._cluster.index}-*"))
        adopted = None
        for index, record in left.items() if isinstance(left, dict) else ():
            marker = _marker(record)
            if marker.get("alias") != self._cluster.index or index == current:
                continue
            fits = marker.get("format") == FORMAT and _shards(record) == self._shards
            if adopted or not fits or marker.get("settings") != dict(SETTINGS):
                self._cluster.request("DELETE", path_of(index), allowed=(404,))
                continue
            adopted = index
        if adopted is None:
            return None
        self._mark(adopted, writer, "building")
        refresh(self._cluster, adopted)
        return adopted, highest(self._cluster, adopted) + 1

    def _create(self, writer: str) -> str:
        day = datetime.now(UTC).strftime("%Y%m%d")
        index = f"{self._cluster.index}-{day}-{secrets.token_hex(4)}"
        self._cluster.request(
            "PUT",
            path_of(index),
            {
                "settings": {
                    "index": {
                        "number_of_shards": self._shards,
                        "number_of_replicas": 0,
                        "refresh_interval": "-1",
                    }
                },
                "mappings": {
                    **mapping(),
                    "_meta": {"multihop": self._record(writer, "building")},
                },
            },
        )
        return index

    def _record(self, writer: str, state: str, **more: Json) -> dict[str, Json]:
        return {
            "format": FORMAT,
            "alias": self._cluster.index,
            "state": state,
            "writer": writer,
            "package": multihop.__version__,
            "settings": dict(SETTINGS),
            **more,
        }

    def _mark(self, index: str, writer: str, state: str, **more: Json) -> None:
        self._cluster.request(
            "PUT",
            path_of(index, "_mapping"),
            {"_meta": {"multihop": self._record(writer, state, **more)}},
        )

    # --- Sending ------------------------------------------------------------------------------

    def _send(self, index: str, documents: Iterator[tuple[int, Passage, str]]) -> None:
        """Send what is missing, a few batches at a time."""
        under_way: deque[Future[None]] = deque()
        with ThreadPoolExecutor(self._connections, "multihop-elastic") as carriers:
            try:
                for batch in _batches(documents):
                    under_way.append(carriers.submit(self._bulk, index, batch))
                    if len(under_way) >= self._connections + 1:
                        under_way.popleft().result()
                while under_way:
                    under_way.popleft().result()
            finally:
                for future in under_way:
                    future.cancel()

    def _bulk(self, index: str, batch: "list[_Line]") -> None:
        """Send a batch, and again those of it that the server had no room for."""
        for attempt in itertools.count():
            answer = self._cluster.request(
                "POST",
                path_of(index, "_bulk"),
                b"".join(line.sent for line in batch),
                retries=_TRIES,
            )
            items = answer.get("items") if isinstance(answer, dict) else None
            if not isinstance(items, list) or len(items) != len(batch):
                raise self._cluster.error("the answer to a batch is none; expected one item each.")
            again = []
            for line, item in zip(batch, items, strict=True):
                done = next(iter(item.values())) if isinstance(item, dict) and item else {}
                status = done.get("status") if isinstance(done, dict) else None
                if status in (429, 503):
                    again.append(line)
                elif status not in (200, 201) and not (line.deletes and status == 404):
                    said = reason(cast(dict[str, Json], done))
                    raise self._cluster.corpus_error(
                        f"the server did not take {line.what} ({said}). Nothing was changed."
                    )
            if not again:
                return
            if attempt == _TRIES:
                raise self._cluster.error(
                    f"the server is too busy for {len(again)} passages, asked {_TRIES + 1} times. "
                    "Run the same again later: it goes on where it stopped."
                )
            sleep(back_off(attempt))
            batch = again

    def _cut(self, index: str, end: int, there: int) -> None:
        """Delete what an earlier build wrote beyond the end."""
        for start in range(end, there, BATCH):
            self._bulk(
                index, [_deletion(number) for number in range(start, min(start + BATCH, there))]
            )

    def _compare(self, index: str, count: int, content: int) -> None:
        """The index holds what was sent, document by document."""
        refresh(self._cluster, index)
        counted = total = 0
        for _, digest in digests(self._cluster, index):
            counted += 1
            total += int(digest, 16)
        if (counted, total % HASHES) != (count, content):
            raise self._cluster.corpus_error(
                f"{count:,} passages were sent, and the index holds {counted:,}, not all as they "
                "were sent. Did another process write there? Run the same again. Nothing was "
                "changed."
            )
        stats = self._cluster.request("GET", path_of(index, "_stats", "docs"))
        if _deleted(stats):
            # What was written twice still counts in word statistics until it is merged away, and
            # no merge drops what is not yet in a commit.
            self._cluster.request("POST", path_of(index, "_flush") + "?force=true")
            self._cluster.request(
                "POST", path_of(index, "_forcemerge") + "?max_num_segments=1", timeout=86_400
            )

    def _finish(
        self, index: str, writer: str, passages: int, content: str, source: Mapping[str, Json]
    ) -> ElasticManifest:
        self._cluster.request(
            "PUT",
            path_of(index, "_settings"),
            {"index": {"refresh_interval": None, "number_of_replicas": self._replicas}},
        )
        refresh(self._cluster, index)
        if self._record_of(index).get("writer") != writer:
            raise self._cluster.corpus_error(
                "another process builds this index too, and went on with it. Nothing was changed."
            )
        written = datetime.now(UTC).isoformat(timespec="seconds")
        self._mark(
            index,
            writer,
            "ready",
            passages=passages,
            content_hash=content,
            # As a text: paths may hold what the server's JSON cannot.
            source=json.dumps(dict(source)),
            written=written,
        )
        return ElasticManifest(
            passages, content, index, self._shards, multihop.__version__, source, written
        )

    def _switch(self, index: str, current: str) -> None:
        """Move the alias and remove the old index, in one step."""
        actions: list[Json] = [{"add": {"index": index, "alias": self._cluster.index}}]
        if current:
            actions.append({"remove_index": {"index": current}})
        self._cluster.request("POST", "/_aliases", {"actions": actions})

    def _record_of(self, index: str) -> Mapping[str, Json]:
        found = self._cluster.request("GET", path_of(index))
        record = found.get(index) if isinstance(found, dict) else None
        return _marker(record)


# --- Reading ----------------------------------------------------------------------------------


def opened(cluster: Cluster, *, unmarked: bool = False) -> ElasticManifest:
    """What the index behind a name says about itself; blocks.

    Args:
        cluster: Where.
        unmarked: Take an index without our marker too, as one of the released IRCoT.

    Raises:
        CorpusError: There is no index, it is not ours, or it is empty.
        IndexMismatch: It is of another version.
        RetrieverError: The server failed.
    """
    found = cluster.request("GET", path_of(cluster.index), allowed=(404,))
    return read_manifest(cluster, found, unmarked=unmarked)


def read_manifest(cluster: Cluster, found: Json, *, unmarked: bool = False) -> ElasticManifest:
    """The manifest in a server's answer to GET NAME; None stands for its 404."""
    hint = f"Build one with: multihop index PATH... --to {cluster.name}"
    if found is None or not isinstance(found, dict) or not found:
        raise cluster.corpus_error(f"no index has this name. {hint}")
    if len(found) > 1:
        raise cluster.corpus_error(f"stands for {len(found)} indexes; name one of them.")
    [(index, record)] = found.items()
    marker = _marker(record)
    if not marker:
        if unmarked:
            return ElasticManifest(_count(cluster, index), "", index, _shards(record))
        raise cluster.corpus_error(
            "the index was not made by multihop. To search it all the same, if it has the fields "
            "of IRCoT's released one: the option unmarked=true."
        )
    if marker.get("format") != FORMAT:
        raise IndexMismatch(
            f"{cluster.name}: the index has format version {marker.get('format')!r}, this program "
            f"reads {FORMAT}. Build it anew, or use the multihop that wrote it."
        )
    if marker.get("settings") != dict(SETTINGS):
        raise IndexMismatch(
            f"{cluster.name}: the index was made with {json.dumps(marker.get('settings'))}, this "
            f"program uses {json.dumps(dict(SETTINGS))}. Build it anew."
        )
    if marker.get("state") != "ready":
        raise cluster.corpus_error(f"the index is still being built. {hint}")
    passages, content = marker.get("passages"), marker.get("content_hash")
    try:
        source = json.loads(str(marker.get("source")))
    except ValueError:
        source = None
    if type(passages) is not int or not isinstance(content, str) or not isinstance(source, dict):
        raise cluster.corpus_error("its marker was changed by others. Build it anew.")
    counted = _count(cluster, index)
    if counted != passages:
        raise cluster.corpus_error(
            f"the marker says {passages:,} passages, the index holds {counted:,}. Build it anew."
        )
    return ElasticManifest(
        passages,
        content,
        index,
        _shards(record),
        str(marker.get("package")),
        source,
        str(marker.get("written")),
    )


def passage_of(source: Mapping[str, Json], document: str) -> Passage:
    """The passage of a document, as it was given.

    Args:
        source: The document's fields.
        document: Its own id, for an index that keeps none in a field.
    """
    if "exact" in source:
        passage_id, title, text = json.loads(str(source["exact"]))
    else:
        passage_id = str(source.get("id", document))
        title, text = (str(source.get(name) or "") for name in ("title", "paragraph_text"))
    metadata = source.get("metadata")
    return Passage(
        passage_id, title, text, *([json.loads(metadata)] if isinstance(metadata, str) else [])
    )


def passage_by_id(cluster: Cluster, index: str, passage_id: str) -> Passage | None:
    """Look a passage up by its id; blocks."""
    for _, document, source in _hits(
        cluster,
        index,
        {
            "size": 2,
            "_source": list(FIELDS),
            "query": {"term": {"key": _hex(id_key(passage_id))}},
        },
    ):
        passage = passage_of(source, document)
        if passage.id == passage_id:
            return passage
    return None


def all_passages(cluster: Cluster, index: str, batch: int = 250) -> Iterator[Passage]:
    """All passages, in document order; blocks."""
    for _, document, source in _pages(cluster, index, {"_source": list(FIELDS)}, 0, batch):
        yield passage_of(source, document)


def digests(cluster: Cluster, index: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Number and digest of all documents from a number on, in order; blocks."""
    body: dict[str, Json] = {"_source": False, "docvalue_fields": ["digest"]}
    for number, _, fields in _pages(cluster, index, body, start, PAGE):
        values = fields.get("digest")
        yield number, str(values[0]) if isinstance(values, list) and values else "0"


def highest(cluster: Cluster, index: str) -> int:
    """The highest number of a document; -1 when there is none. Blocks."""
    body: dict[str, Json] = {"size": 1, "_source": False, "sort": [{"number": "desc"}]}
    return next((number for number, _, _ in _hits(cluster, index, body)), -1)


def refresh(cluster: Cluster, index: str) -> None:
    """Make all that was written visible to searches; blocks."""
    cluster.request("POST", path_of(index, "_refresh"))


def checked_hits(answer: Json) -> list[dict[str, Json]] | str:
    """The hits of a search, or what went wrong with it.

    A search that did not see all shards, or stopped early, is one that went wrong.
    """
    if not isinstance(answer, dict):
        return f"an answer that is none: {json.dumps(answer)[:80]}"
    if "error" in answer:
        return reason(answer)
    shards, outer = answer.get("_shards"), answer.get("hits")
    hits = outer.get("hits") if isinstance(outer, dict) else None
    if not isinstance(shards, dict) or not isinstance(hits, list):
        return "an answer without hits"
    failed, total, successful = (shards.get(n) for n in ("failed", "total", "successful"))
    if failed or total != successful:
        failures = shards.get("failures")
        first = failures[0] if isinstance(failures, list) and failures else {}
        said = reason(first.get("reason")) if isinstance(first, dict) and first else "no reason"
        return f"{failed or 'not all'} of {total} shards failed ({said})"
    if answer.get("timed_out") or answer.get("terminated_early"):
        return "the server stopped before it had searched everything"
    found = [hit for hit in hits if isinstance(hit, dict)]
    return found if len(found) == len(hits) else "a hit that is none"


def _pages(
    cluster: Cluster, index: str, body: Mapping[str, Json], start: int, size: int
) -> Iterator[tuple[int, str, Mapping[str, Json]]]:
    while True:
        page = list(
            _hits(
                cluster,
                index,
                {
                    **body,
                    "size": size,
                    "track_total_hits": False,
                    "sort": [{"number": "asc"}],
                    "query": {"range": {"number": {"gte": start}}},
                },
            )
        )
        yield from page
        if len(page) < size:
            return
        start = page[-1][0] + 1


def _hits(
    cluster: Cluster, index: str, body: dict[str, Json]
) -> Iterator[tuple[int, str, Mapping[str, Json]]]:
    """Number, id and fields of each hit."""
    found = checked_hits(
        cluster.request(
            "POST", path_of(index, "_search") + "?allow_partial_search_results=false", body
        )
    )
    if isinstance(found, str):
        raise cluster.error(f"a search failed: {found}.")
    for hit in found:
        order, fields = hit.get("sort"), hit.get("_source") or hit.get("fields") or {}
        number = order[0] if isinstance(order, list) and order else 0
        yield int(cast(int, number)), str(hit.get("_id")), cast(Mapping[str, Json], fields)


class _Held:
    """The digests that a killed build left, a page at a time."""

    def __init__(self, cluster: Cluster, index: str, end: int) -> None:
        self._end = end
        self._ahead = digests(cluster, index) if end else iter(())
        self._next = next(self._ahead, None)

    def digest(self, number: int) -> str | None:
        """Of the document with this number; asked in ascending order."""
        while self._next is not None and self._next[0] < number:
            self._next = next(self._ahead, None)
        return self._next[1] if self._next and self._next[0] == number else None


# --- What the server is given -----------------------------------------------------------------


def mapping() -> dict[str, Json]:
    """The fields of a document: those of the released index, and ours."""
    text: Json = {"type": "text", "analyzer": "english"}
    kept: Json = {"type": "keyword", "index": False, "doc_values": False}
    return {
        "dynamic": False,
        "properties": {
            "id": kept,
            "title": text,
            "paragraph_text": text,
            "url": text,
            "is_abstract": {"type": "boolean"},
            "paragraph_index": {"type": "integer"},
            "metadata": kept,
            "exact": kept,
            "number": {"type": "long"},
            "digest": {"type": "keyword", "index": False},
            "key": {"type": "keyword", "doc_values": False},
            "text_key": {"type": "keyword", "index": False},
            "title_key": {"type": "keyword"},
        },
    }


def document(passage: Passage, number: int, digest: str) -> dict[str, Json]:
    """What is sent of a passage.

    Half a surrogate pair is no text to the server: it is sent as U+FFFD, which separates words as
    well, and the passage itself beside it as a JSON text. So is metadata, whatever it holds.
    """
    texts = [passage.id, passage.title, passage.text]
    clean = [sendable(text) for text in texts]
    fields: dict[str, Json] = {
        "id": clean[0],
        "title": clean[1],
        "paragraph_text": clean[2],
        "is_abstract": passage.metadata.get("is_abstract") is not False,
        "number": number,
        "digest": digest,
        "key": _hex(id_key(passage.id)),
        "text_key": _hex(folded_key(passage.text)),
        "title_key": title_key(passage.title),
    }
    if clean != texts:
        fields["exact"] = json.dumps(texts)
    if passage.metadata:
        fields["metadata"] = json.dumps(dict(passage.metadata))
    url, place = passage.metadata.get("url"), passage.metadata.get("paragraph_index")
    if isinstance(url, str):
        fields["url"] = sendable(url)
    if type(place) is int and abs(place) < 1 << 31:
        fields["paragraph_index"] = place
    return fields


def sendable(text: str) -> str:
    """The text, with U+FFFD for half surrogate pairs."""
    return re.sub(r"[\ud800-\udfff]", "\ufffd", text)


def title_key(title: str) -> str:
    """What a title is searched by exactly: case and outer white space aside."""
    return _hex(folded_key(title))


@dataclass(frozen=True, slots=True)
class _Line:
    """One operation of a batch."""

    sent: bytes
    what: str
    deletes: bool = False


def _batches(documents: Iterator[tuple[int, Passage, str]]) -> Iterator[list[_Line]]:
    batch: list[_Line] = []
    size = 0
    for number, passage, digest in documents:
        body = json.dumps(document(passage, number, digest))
        sent = f'{{"index":{{"_id":"{number}"}}}}\n{body}\n'.encode("ascii")
        if batch and size + len(sent) > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(_Line(sent, f"the passage {passage.id[:100]!r}"))
        size += len(sent)
        if len(batch) == BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _deletion(number: int) -> _Line:
    sent = f'{{"delete":{{"_id":"{number}"}}}}\n'.encode("ascii")
    return _Line(sent, f"that document {number} is deleted", deletes=True)


def _hex(key: int) -> str:
    return f"{key:016x}"


def _current(cluster: Cluster) -> str:
    """The index behind the name, which a build will replace; empty when there is none."""
    found = cluster.request("GET", path_of(cluster.index), allowed=(404,))
    if not isinstance(found, dict) or not found:
        return ""
    if len(found) > 1 or cluster.index in found or not _marker(next(iter(found.values()))):
        raise cluster.corpus_error(
            f"{', '.join(list(found)[:3])} has this name and was not made by multihop. Name "
            "another index, or delete that one."
        )
    return next(iter(found))


def _marker(record: Json) -> Mapping[str, Json]:
    """What an index's mapping says of us; empty when nothing."""
    found: Json = record
    for name in ("mappings", "_meta", "multihop"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _shards(record: Json) -> int:
    found: Json = record
    for name in ("settings", "index", "number_of_shards"):
        found = found.get(name) if isinstance(found, dict) else None
    return int(found) if isinstance(found, (str, int)) else 1


def _count(cluster: Cluster, index: str) -> int:
    said = cluster.request("GET", path_of(index, "_count"))
    shards = said.get("_shards") if isinstance(said, dict) else None
    count = said.get("count") if isinstance(said, dict) else None
    if not isinstance(shards, dict) or type(count) is not int:
        raise cluster.error("the answer to a count is none.")
    if shards.get("failed"):
        raise cluster.error(
            f"{shards['failed']} of {shards.get('total')} shards of the index cannot be read."
        )
    return count


def _deleted(stats: Json) -> bool:
    found: Json = stats
    for name in ("_all", "primaries", "docs", "deleted"):
        found = found.get(name) if isinstance(found, dict) else None
    return bool(found)
