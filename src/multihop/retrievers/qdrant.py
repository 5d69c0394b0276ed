"""Corpora in Qdrant: a server by its URL, or its local mode in a folder, for small ones.

NAME is an alias. Behind it stands one collection whose point 0 says what it holds:

    NAME -> NAME-1f0c53a2

A build fills the next collection beside it and then moves the alias in one step: searches never
see half a corpus.

Without an encoder passages are found by their words: BM25 as sparse vectors, the term frequencies
weighted here, the inverse document frequencies by Qdrant. With one they are found by vectors.
"""

import asyncio
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any

import multihop
from multihop.errors import BadInput, CorpusError, IndexMismatch, MissingExtra, RetrieverError
from multihop.retrievers.bm25_rows import encoded, id_key
from multihop.retrievers.content import content_hash, digest
from multihop.retrievers.elastic_form import folded
from multihop.retrievers.english import analyze
from multihop.retrievers.side_by_side import side_by_side
from multihop.text import Hit, Json, Passage, Query, alternatives, facets

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.http.exceptions import ApiException
except ModuleNotFoundError:
    raise MissingExtra("qdrant-client", "qdrant") from None

FORMAT = 1
"""Version of the points and of point 0. Readers refuse others."""

Encode = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Vectors of texts, all of one length."""

K1, B = 1.2, 0.75
BATCH = 256
"""Passages that are sent at a time."""

AHEAD = 4096
"""Passages whose mean length stands for that of all, as BM25 needs it before it has read all."""

AT_ONCE = 8
"""Searches that a server is sent at a time."""


@dataclass(frozen=True, slots=True)
class QdrantManifest:
    """What a collection says about itself.

    Attributes:
        passages: How many it holds.
        content_hash: The same for the same passages in any order, and the same as that of a BM25
            index of them.
        size: Length of the vectors; 0 where passages are found by their words.
        mean_length: Mean words of a passage, as BM25 takes it.
        format: Version of the points.
        package: Version of multihop that wrote it.
        source: How the passages were made, as the builder was told.
        written: When, in UTC, ISO 8601.
    """

    passages: int
    content_hash: str
    size: int = 0
    mean_length: float = 0.0
    format: int = FORMAT
    package: str = multihop.__version__
    source: Mapping[str, Json] = field(default_factory=dict)
    written: str = ""


class _Place:
    """A collection's name at a server or in a folder.

    Args:
        target: URL/NAME, as "http://localhost:6333/wiki", or DIR/NAME. A key for the server is
            read from QDRANT_API_KEY.
        timeout: Seconds that one request may take.
    """

    def __init__(self, target: str, timeout: int) -> None:
        where, slash, self.collection = target.rpartition("/")
        if not (slash and where and re.fullmatch(r"[\w.-]+", self.collection)):
            raise BadInput(f"qdrant:{target}: write qdrant:URL/NAME or qdrant:DIR/NAME.")
        self.name = f"qdrant:{target}"
        self.remote = where.startswith(("http://", "https://"))
        with self.asking():
            self.client = (
                QdrantClient(
                    url=where,
                    api_key=os.environ.get("QDRANT_API_KEY"),
                    timeout=timeout,
                    check_compatibility=False,
                )
                if self.remote
                else QdrantClient(path=where, force_disable_check_same_thread=True)
            )

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Turn the client's errors into one line.

        Raises:
            RetrieverError: The server, or the folder, failed.
        """
        try:
            yield
        except (ApiException, ValueError, OSError, RuntimeError) as broken:
            reason = " ".join(str(broken).split())[:300]
            raise RetrieverError(f"{self.name}: {reason or type(broken).__name__}.") from broken

    def behind(self) -> str:
        """The collection that the name stands for; empty when there is none."""
        with self.asking():
            aliases = self.client.get_aliases().aliases
        return next((a.collection_name for a in aliases if a.alias_name == self.collection), "")

    def manifest(self) -> QdrantManifest:
        """What the collection says about itself.

        Raises:
            CorpusError: There is none, it is empty, or another program's.
            IndexMismatch: It is of another version.
            RetrieverError: The server failed.
        """
        with self.asking():
            if not self.client.collection_exists(self.collection):
                raise CorpusError(
                    f"{self.name}: there is no such collection. "
                    f"Build it with: multihop index PATH... --to {self.name}"
                )
            found = self.client.retrieve(self.collection, [0], with_payload=True)
        said = found[0].payload.get("multihop") if found and found[0].payload else None
        if not isinstance(said, str):
            raise CorpusError(f"{self.name}: the collection was not made by multihop index.")
        record = json.loads(said)
        if record.get("format") != FORMAT:
            raise IndexMismatch(
                f"{self.name}: has format version {record.get('format')!r}, this program reads "
                f"{FORMAT}. Build it anew."
            )
        manifest = QdrantManifest(**record)
        if not manifest.passages:
            raise CorpusError(f"{self.name}: the collection is empty.")
        return manifest


class QdrantRetriever:
    """Searches a collection made by `QdrantStore`.

    Args:
        target: URL/NAME or DIR/NAME. A folder is open to one program at a time.
        encode: Makes the vectors of queries, for a collection of vectors.
        content_hash: Refuse a collection of other passages than those with this hash.
        timeout: Seconds that one request may take.

    Attributes:
        name: "qdrant:TARGET".
        manifest: What the collection says about itself.

    Raises:
        BadInput: The target is none, or an encoder is missing or not wanted.
        CorpusError: There is no collection, it is empty, or another program's.
        IndexMismatch: It is of another version or holds another corpus.
        RetrieverError: The server does not answer.
    """

    def __init__(
        self,
        target: str,
        *,
        encode: Encode | None = None,
        content_hash: str = "",
        timeout: int = 30,
    ) -> None:
        self._place = _Place(target, timeout)
        self.name = self._place.name
        self._encode = encode
        self._closed = False
        try:
            self.manifest = self._place.manifest()
            self._check(content_hash)
        except BaseException:
            self._place.client.close()
            raise

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Rank the corpus for each query.

        Args:
            queries: Any number, in any order; may repeat, and a repeat is asked once. Titles are
                searched by their words, also in a collection of vectors.
            k: Most hits per query, at least 1.

        Raises:
            BadInput: `k` is below 1.
            IndexMismatch: The encoder's vectors are of another length than the collection's.
            RetrieverError: The search failed.
        """
        if k < 1:
            raise BadInput(f"k is {k}; ask for at least 1 hit.")
        if self._closed:
            raise RetrieverError(f"{self.name}: was closed. Open it again.")
        asked = list(dict.fromkeys(queries))
        found = await side_by_side(
            [partial(asyncio.to_thread, self._search, query, k) for query in asked],
            AT_ONCE if self._place.remote else 1,
        )
        rankings = dict(zip(asked, found, strict=True))
        return [list(rankings[query]) for query in queries]

    async def aclose(self) -> None:
        """Close the connection. Calling it twice is harmless."""
        if not self._closed:
            self._closed = True
            self._place.client.close()

    def _check(self, content_hash: str) -> None:
        if content_hash and content_hash != self.manifest.content_hash:
            raise IndexMismatch(
                f"{self.name}: holds another corpus: content hash "
                f"{self.manifest.content_hash}, expected {content_hash}."
            )
        if bool(self.manifest.size) != bool(self._encode):
            raise BadInput(
                f"{self.name}: holds vectors; name the encoder that made them."
                if self.manifest.size
                else f"{self.name}: holds words, no vectors; an encoder is of no use there."
            )

    def _search(self, query: Query, k: int) -> list[Hit]:
        if query.titles is not None and not query.titles:
            return []
        vector, using = self._vector(query)
        if not vector:
            return []
        must: list[Any] = [
            _any_of("facets", [_facet(name, value) for value in values])
            for name, values in alternatives(query.where).items()
        ]
        if query.titles is not None:
            must.append(_any_of("title_key", [_key(title) for title in query.titles]))
        if query.by_title:
            must.append(_any_of("abstract", ["yes"]))
        limit = k + 2
        while True:
            with self._place.asking():
                points = self._place.client.query_points(
                    self._place.collection,
                    query=vector,
                    using=using,
                    query_filter=models.Filter(must=must) if must else None,
                    limit=limit,
                    with_payload=True,
                ).points
            best: dict[object, Any] = {}
            # Equal scores stand in the order in which passages were indexed.
            for point in sorted(points, key=lambda p: (-p.score, p.payload["number"])):
                best.setdefault(point.payload["title"] if query.by_title else point.id, point)
            kept = list(best.values())[:k]
            tied = len(kept) == k and points[-1].score >= kept[-1].score
            if len(points) < limit or (len(kept) == k and not tied):
                return [Hit(_passage(point.payload), float(point.score)) for point in kept]
            limit *= 4

    def _vector(self, query: Query) -> tuple[Any, str]:
        if query.by_title or not self._encode:
            return _sparse(Counter(analyze(query.text))), "title" if query.by_title else "words"
        if not query.text.strip():
            return None, ""
        [vector] = self._encode([query.text])
        if len(vector) != self.manifest.size:
            raise IndexMismatch(
                f"{self.name}: holds vectors of {self.manifest.size} numbers, the encoder makes "
                f"{len(vector)}. Name the encoder that made them, or build the collection anew."
            )
        return [float(number) for number in vector], "dense"


class QdrantStore:
    """Makes and changes collections; see `Store`.

    Two builds of one name at the same time disturb each other.

    Args:
        target: URL/NAME or DIR/NAME.
        encode: Makes the vectors of passages, of title and text; None finds them by their words.
        timeout: Seconds that one request may take.

    Attributes:
        name: "qdrant:TARGET".
    """

    def __init__(self, target: str, *, encode: Encode | None = None, timeout: int = 60) -> None:
        self._target, self._encode, self._timeout = target, encode, timeout
        self.name = f"qdrant:{target}"

    def build(
        self,
        passages: Iterable[Passage],
        *,
        source: Mapping[str, Json] | None = None,
        progress: Callable[[int], None] | None = None,
        on_duplicate: Callable[[Passage], None] | None = None,
    ) -> QdrantManifest:
        """Index passages; see `Store.build`."""
        place = _Place(self._target, self._timeout)
        try:
            return self._build(place, passages, source or {}, progress, on_duplicate)
        finally:
            place.client.close()

    def change(
        self,
        add: Iterable[Passage] = (),
        *,
        delete: Sequence[str] = (),
        source: Mapping[str, Json] | None = None,
        progress: Callable[[int], None] | None = None,
        on_duplicate: Callable[[Passage], None] | None = None,
    ) -> QdrantManifest:
        """Delete passages and add others, in a new collection; see `Store.change`.

        All vectors are made again.
        """
        place = _Place(self._target, self._timeout)
        try:
            old = place.manifest()
            if bool(old.size) != bool(self._encode):
                raise IndexMismatch(
                    f"{self.name}: holds {'vectors' if old.size else 'words'}; open the store "
                    f"{'with the encoder that made them' if old.size else 'without an encoder'}."
                )
            keys = {passage_id: id_key(passage_id) for passage_id in delete}
            with place.asking():
                there = place.client.retrieve(place.collection, list(keys.values()))
            if missing := set(keys.values()) - {point.id for point in there}:
                shown = ", ".join(repr(name) for name, key in keys.items() if key in missing)
                raise BadInput(
                    f"{self.name}: holds no passage with id {shown}. Nothing was changed."
                )
            kept = (passage for passage in _stored(place) if passage.id not in keys)
            both = (passage for some in (kept, add) for passage in some)
            told = {**old.source, **(source or {})}
            return self._build(place, both, told, progress, on_duplicate)
        finally:
            place.client.close()

    def _build(
        self,
        place: _Place,
        passages: Iterable[Passage],
        source: Mapping[str, Json],
        progress: Callable[[int], None] | None,
        on_duplicate: Callable[[Passage], None] | None,
    ) -> QdrantManifest:
        old, client = place.behind(), place.client
        with place.asking():
            if not old and client.collection_exists(place.collection):
                raise CorpusError(
                    f"{self.name}: a collection of this name is there that was not made by "
                    "multihop index. Choose another name."
                )
            left = re.compile(re.escape(place.collection) + "-[0-9a-f]{8}")
            for each in client.get_collections().collections:
                if left.fullmatch(each.name) and each.name != old:  # by a build that was killed
                    client.delete_collection(each.name)
        new = f"{place.collection}-{secrets.token_hex(4)}"
        try:
            manifest = self._fill(
                place,
                new,
                passages=passages,
                source=source,
                progress=progress,
                on_duplicate=on_duplicate,
            )
            moves: list[Any] = []
            if old:
                moves.append(
                    models.DeleteAliasOperation(
                        delete_alias=models.DeleteAlias(alias_name=place.collection)
                    )
                )
            moves.append(
                models.CreateAliasOperation(
                    create_alias=models.CreateAlias(
                        collection_name=new, alias_name=place.collection
                    )
                )
            )
            with place.asking():
                client.update_collection_aliases(moves)
        except BaseException:
            with place.asking():
                client.delete_collection(new)
            raise
        if old:
            with place.asking():
                client.delete_collection(old)
        return manifest

    def _fill(
        self,
        place: _Place,
        collection: str,
        *,
        passages: Iterable[Passage],
        source: Mapping[str, Json],
        progress: Callable[[int], None] | None,
        on_duplicate: Callable[[Passage], None] | None,
    ) -> QdrantManifest:
        ahead = iter(passages)
        waiting = list(islice(ahead, AHEAD))
        if not waiting:
            raise CorpusError(f"{self.name}: there are no passages to index. Nothing was changed.")
        mean = sum(len(_words(passage)) for passage in waiting) / len(waiting)
        size = len(self._encode([_whole(waiting[0])])[0]) if self._encode else 0
        words = models.SparseVectorParams(modifier=models.Modifier.IDF)
        dense = models.VectorParams(size=size, distance=models.Distance.COSINE) if size else None
        with place.asking():
            place.client.create_collection(
                collection,
                vectors_config={"dense": dense} if dense else {},
                sparse_vectors_config={"words": words, "title": words},
            )
            if place.remote:  # the local mode has no such indexes
                for name in ("facets", "title_key", "abstract"):
                    place.client.create_payload_index(
                        collection, name, models.PayloadSchemaType.KEYWORD
                    )
        seen: set[int] = set()
        content = 0
        while waiting:
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            waiting = waiting or list(islice(ahead, BATCH))
            fresh: list[Passage] = []
            for passage in batch:
                if id_key(passage.id) in seen:
                    if on_duplicate is None:
                        raise CorpusError(
                            f"passage id {passage.id!r} is there twice. Ids are unique."
                        )
                    on_duplicate(passage)
                    continue
                seen.add(id_key(passage.id))
                content += int.from_bytes(digest(encoded(passage)), "big")
                fresh.append(passage)
            vectors = self._encode([_whole(p) for p in fresh]) if self._encode and fresh else ()
            points = [
                _point(passage, len(seen) - len(fresh) + n, mean, vectors[n] if vectors else None)
                for n, passage in enumerate(fresh)
            ]
            if points:
                with place.asking():
                    place.client.upsert(collection, points, wait=True)
            if progress:
                progress(len(seen))
        manifest = QdrantManifest(
            len(seen),
            content_hash(content),
            size,
            mean,
            source=dict(source),
            written=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        said = {"multihop": json.dumps(asdict(manifest)), "number": -1}
        with place.asking():
            place.client.upsert(
                collection, [models.PointStruct(id=0, vector={}, payload=said)], wait=True
            )
        return manifest


def _point(passage: Passage, number: int, mean: float, dense: Sequence[float] | None) -> Any:
    words = _words(passage)
    counts = Counter(words)
    norm = K1 * (1 - B + B * len(words) / max(mean, 1.0))
    weights = {word: count * (K1 + 1) / (count + norm) for word, count in counts.items()}
    vector: dict[str, Any] = {}
    if found := _sparse(weights):
        vector["words"] = found
    if found := _sparse(Counter(analyze(passage.title))):
        vector["title"] = found
    if dense is not None:
        vector["dense"] = [float(x) for x in dense]
    payload: dict[str, Any] = {
        "id": _sound(passage.id),
        "title": _sound(passage.title),
        "text": _sound(passage.text),
        "number": number,
        "title_key": _key(passage.title),
        "abstract": "no" if passage.metadata.get("is_abstract") is False else "yes",
        "facets": sorted(_facet(*facet) for facet in facets(passage.metadata)),
    }
    if passage.metadata:
        payload["metadata"] = json.dumps(dict(passage.metadata))
    fields = [passage.id, passage.title, passage.text]
    if fields != [payload["id"], payload["title"], payload["text"]]:
        payload["exact"] = json.dumps(fields)
    return models.PointStruct(id=id_key(passage.id), vector=vector, payload=payload)


def _passage(payload: Mapping[str, Any]) -> Passage:
    """The passage as it was given."""
    fields = [payload["id"], payload["title"], payload["text"]]
    if "exact" in payload:
        fields = json.loads(payload["exact"])
    return Passage(*fields, *([json.loads(payload["metadata"])] if "metadata" in payload else []))


def _stored(place: _Place) -> list[Passage]:
    """All passages, in the order in which they were indexed."""
    found: list[tuple[int, Passage]] = []
    start: Any = None
    while True:
        with place.asking():
            points, start = place.client.scroll(
                place.collection, limit=BATCH, offset=start, with_payload=True
            )
        found += [(p.payload["number"], _passage(p.payload)) for p in points if p.id]
        if start is None:
            return [passage for _, passage in sorted(found, key=lambda pair: pair[0])]


def _any_of(name: str, values: Sequence[str]) -> Any:
    return models.FieldCondition(key=name, match=models.MatchAny(any=list(values)))


def _sparse(weights: Mapping[str, float]) -> Any:
    """A sparse vector; words are numbered by a 32-bit hash, and those that meet are summed."""
    summed: Counter[int] = Counter()
    for word, weight in weights.items():
        place = int.from_bytes(blake2b(_bytes(word), digest_size=4).digest(), "big")
        summed[place] += weight  # type: ignore[assignment]
    if not summed:
        return None
    return models.SparseVector(indices=list(summed), values=[float(x) for x in summed.values()])


def _words(passage: Passage) -> list[str]:
    return [*analyze(passage.title), *analyze(passage.text)]


def _whole(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def _facet(name: str, value: str) -> str:
    """A field with its value, as a text that any server takes."""
    return f"{_ascii(name)}={_ascii(value)}"


def _key(title: str) -> str:
    return _ascii(folded(title))


def _ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


def _sound(text: str) -> str:
    return _bytes(text).decode("utf-8", "replace")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
