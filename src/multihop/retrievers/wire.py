"""Searching over HTTP: the JSON that goes out and comes back, on both sides.

    POST URL   {"queries": [{"text": ..., "titles": [...] | null, "by_title": false,
                             "where": [[FIELD, VALUE], ...]}], "k": 5}
    200        {"rankings": [[{"id", "title", "text", "score", "metadata"}, ...], ...]}

    GET URL    {"name": ..., "passages": 1200, "content_hash": "..."}

One ranking a query, best hit first. Of a query only `text` must be there; of a hit `id`, `text`
and `score`; `where` is sent only when there is one. What GET says is optional, each field of it
too. JSON goes out as ASCII, with escapes, so that any text survives, lone surrogates included.

`multihop.retrievers.http` is the side that asks; a server imports the functions of the other.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from multihop.errors import BadInput, RetrieverError
from multihop.text import Hit, Json, Passage, Query, meets


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says about the corpus behind it.

    Attributes:
        name: Its own name for its retriever; may be empty.
        passages: How many there are; None when it does not tell.
        content_hash: As `Manifest.content_hash` of an index; None when it does not tell.
    """

    name: str = ""
    passages: int | None = None
    content_hash: str | None = None


def encoded(data: Json) -> bytes:
    """JSON as it goes out."""
    return json.dumps(data, allow_nan=False).encode("ascii")


def request_to_json(queries: Sequence[Query], k: int) -> dict[str, Json]:
    """What a search asks."""
    return {
        "queries": [
            {
                "text": query.text,
                "titles": None if query.titles is None else list(query.titles),
                "by_title": query.by_title,
                **({"where": [list(pair) for pair in query.where]} if query.where else {}),
            }
            for query in queries
        ],
        "k": k,
    }


def request_from_json(data: Json) -> tuple[list[Query], int]:
    """What a search asks, on the server's side.

    Raises:
        BadInput: It is something else; the message says where.
    """
    if not isinstance(data, dict) or not isinstance(data.get("queries"), list):
        raise BadInput('A search is a JSON object as {"queries": [{"text": "..."}], "k": 5}.')
    k = data.get("k")
    if type(k) is not int or k < 1:
        raise BadInput(f"k is {_short(k)}; it is a whole number, at least 1.")
    queries = cast(list[Json], data["queries"])
    return [_query(query, f"queries[{n}]") for n, query in enumerate(queries)], k


def _query(data: Json, where: str) -> Query:
    if not isinstance(data, dict) or not isinstance(text := data.get("text"), str):
        raise BadInput(f'{where} is {_short(data)}; expected an object with a "text".')
    titles, by_title = data.get("titles"), data.get("by_title", False)
    if titles is not None and not (
        isinstance(titles, list) and all(isinstance(title, str) for title in titles)
    ):
        raise BadInput(f"{where}.titles is {_short(titles)}; expected a list of texts, or null.")
    if not isinstance(by_title, bool):
        raise BadInput(f"{where}.by_title is {_short(by_title)}; expected true or false.")
    return Query(
        text,
        None if titles is None else tuple(cast(list[str], titles)),
        by_title,
        _where(data.get("where"), where),
    )


def _where(data: Json, where: str) -> tuple[tuple[str, str], ...] | None:
    if data is None:
        return None
    pairs = data if isinstance(data, list) else [data]
    for pair in pairs:
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
        ):
            raise BadInput(
                f"{where}.where is {_short(data)}; expected a list of pairs of texts, or null."
            )
    return tuple((str(name), str(value)) for name, value in cast(list[list[str]], pairs)) or None


def rankings_to_json(rankings: Sequence[Sequence[Hit]]) -> dict[str, Json]:
    """What a search found. Calls and warnings of rankings stay on the server's side."""
    return {
        "rankings": [
            [
                {
                    "id": hit.passage.id,
                    "title": hit.passage.title,
                    "text": hit.passage.text,
                    "score": float(hit.score),
                    "metadata": dict(hit.passage.metadata),
                }
                for hit in ranking
            ]
            for ranking in rankings
        ]
    }


def rankings_from_json(
    data: Json, queries: Sequence[Query], k: int, server: str
) -> list[list[Hit]]:
    """What a search found, on the side that asked.

    Args:
        data: The server's reply. A ranking longer than `k` is cut.
        queries: What was asked.
        k: Most hits a query.
        server: Its name, for messages.

    Raises:
        RetrieverError: Another number of rankings; a hit that is none, that is there twice,
            that stands below a worse one, or whose title or metadata were not allowed.
    """
    rankings = data.get("rankings") if isinstance(data, dict) else None
    if not isinstance(rankings, list):
        raise RetrieverError(f'{server}: expected {{"rankings": [...]}}, found {_short(data)}.')
    if len(rankings) != len(queries):
        raise RetrieverError(f"{server}: {len(rankings)} rankings for {len(queries)} queries.")
    return [
        _ranking(ranking, query, k, f"{server}: rankings[{n}]")
        for n, (ranking, query) in enumerate(zip(rankings, queries, strict=True))
    ]


def _ranking(data: Json, query: Query, k: int, where: str) -> list[Hit]:
    if not isinstance(data, list):
        raise RetrieverError(f"{where} is {_short(data)}; expected a list of hits.")
    hits = [_hit(hit, f"{where}[{n}]") for n, hit in enumerate(data[:k])]
    allowed = None if query.titles is None else {title.strip().lower() for title in query.titles}
    seen: set[str] = set()
    for n, hit in enumerate(hits):
        if hit.passage.id in seen:
            raise RetrieverError(f"{where}[{n}]: the id {_short(hit.passage.id)} is there twice.")
        if n and hit.score > hits[n - 1].score:
            raise RetrieverError(f"{where}[{n}] has a higher score than the hit before it.")
        if allowed is not None and hit.passage.title.strip().lower() not in allowed:
            raise RetrieverError(
                f"{where}[{n}] has the title {_short(hit.passage.title)}, which the query does "
                "not allow."
            )
        if not meets(hit.passage.metadata, query.where):
            raise RetrieverError(
                f"{where}[{n}]: {_short(hit.passage.id)} has not the metadata that the query asks "
                "for. The server may not know `where`."
            )
        seen.add(hit.passage.id)
    return hits


def _hit(data: Json, where: str) -> Hit:
    if not isinstance(data, dict):
        raise RetrieverError(f"{where} is {_short(data)}; expected an object.")
    title, metadata = data.get("title", ""), data.get("metadata", {})
    for name, value in (("id", data.get("id")), ("text", data.get("text")), ("title", title)):
        if not isinstance(value, str):
            raise RetrieverError(f"{where}: {name} is {_short(value)}; expected a text.")
    if not isinstance(metadata, dict):
        raise RetrieverError(f"{where}: metadata is {_short(metadata)}; expected an object.")
    passage = Passage(str(data["id"]), str(title), str(data["text"]), metadata)
    return Hit(passage, finite(data.get("score"), f"{where}: score"))


def finite(value: Json, where: str) -> float:
    """A score as it came.

    Raises:
        RetrieverError: It is no finite number.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise RetrieverError(f"{where} is {_short(value)}; expected a finite number.")


def identity_to_json(identity: Identity) -> dict[str, Json]:
    """What a server says about itself."""
    return {
        "name": identity.name,
        "passages": identity.passages,
        "content_hash": identity.content_hash,
    }


def identity_from_json(data: Json, server: str) -> Identity:
    """What a server says about itself, on the side that asked.

    Raises:
        RetrieverError: It says something else.
    """
    found = data if isinstance(data, dict) else None
    if found is not None:
        name, passages, digest = (found.get(f) for f in ("name", "passages", "content_hash"))
        if (
            isinstance(name, (str, type(None)))
            and (passages is None or (type(passages) is int and passages >= 0))
            and isinstance(digest, (str, type(None)))
        ):
            return Identity(name or "", passages, digest or None)
    raise RetrieverError(
        f'{server}: GET gives {_short(data)}; expected {{"name": ..., "passages": ..., '
        '"content_hash": ...}.'
    )


def _short(value: Json) -> str:
    """A value for a message."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
