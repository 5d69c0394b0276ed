"""Replies that were given before are given again, without asking the model."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import fields
from hashlib import sha256
from typing import Any

from multihop.lms.base import LanguageModel, Piece, Prompt, Request
from multihop.lms.store import Record, ReplyStore
from multihop.lms.wrapper import LMWrapper, identity
from multihop.text import Json
from multihop.trace import Tokens

_KEYS = 1
"""Version of what a key is made of. Raise it when an equal request gets another reply than
before, so that no old one is replayed."""

# By exclusion, so that a field that is added later changes the key until somebody decides.
_ASKED = tuple(f.name for f in fields(Request) if f.name not in ("prompt", "role"))
_PROMPT = tuple(f.name for f in fields(Prompt) if f.name not in ("turns", "shared"))

_KEPT: dict[str, Any] = {
    f.name: f.default
    for f in fields(Piece)
    if f.name not in ("text", "tokens", "retries", "replayed")
}
"""Fields of a piece that are kept as they are, and their defaults, which are left out."""


class CachedLM(LMWrapper):
    """Asks a model only what it was never asked before.

    A key is made of everything that decides the output: the model's name and `identity`, taken
    when the wrapper is made, and the request but for its `role`. Sampling without a seed is
    passed on. A record holds the reply's pieces, so a replay is cut where the reply was; its
    first piece says `replayed`, and `tokens` is what the call cost when it was made.

    What is kept is a whole reply, or one that was closed early by the rule that
    `Request.enough` names, which is part of the key. Reading on after the end of such a reply
    gives the finish "cut". Replies that an error or a cancellation ended are not kept; an error
    of the reader's own is to be thrown into the stream, as `complete` does.

    Equal requests at the same time are sent once, whatever threads and event loops they come
    from; the others wait, so a stream should not be held open unread. When the first one ends
    without a record, the next one asks.

    Args:
        lm: Who answers.
        store: Where replies are kept; it may be shared, and closing the model leaves it open.
        kind: Replies are given again to callers of the same kind alone, as "fused" where they
            may have been read on from other streams.

    Attributes:
        hits: Calls answered from the store.
        misses: Calls that were passed on and could be kept.
        joined: Calls that were answered by an equal one made at the same time.
    """

    def __init__(self, lm: LanguageModel, store: ReplyStore, *, kind: str = "") -> None:
        super().__init__(lm)
        self.store = store
        self.hits = self.misses = self.joined = 0
        self._counting = threading.Lock()
        self._model = sha256(_canonical([_KEYS, kind, lm.name, dict(identity(lm))]))

    def key(self, request: Request) -> bytes:
        """What a reply to this request is kept under."""
        prompt = request.prompt
        asked: dict[str, Json] = {name: getattr(request, name) for name in _ASKED}
        asked |= {name: getattr(prompt, name) for name in _PROMPT}
        asked["turns"] = [[turn.speaker, turn.text] for turn in prompt.turns]
        for name in ("temperature", "top_p"):  # 0 is 0.0
            asked[name] = float(getattr(request, name))
        key = self._model.copy()
        key.update(_canonical(asked))
        return key.digest()

    def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Give what was given before, else what the model gives now.

        Raises:
            BadInput: The store cannot be read.
            LMError: As the model raises it; nothing is kept then.
        """
        if request.temperature > 0 and request.seed is None:
            return self.lm.stream(request)
        return self._shared(request)

    async def aclose(self) -> None:
        """Write what is to be kept, and close the model."""
        try:
            await self.store.flush()
        finally:
            await self.lm.aclose()

    async def _shared(self, request: Request) -> AsyncGenerator[Piece, None]:
        key, flights = self.key(request), self.store.flights
        if flights.led_here(key):
            async with aclosing(self.lm.stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        while (coming := flights.join(key)) is not None:
            if (record := await asyncio.wrap_future(coming)) is not None:
                self._count("joined")
                for piece in _replay(record, request.n):
                    yield piece
                return
        async with aclosing(self._led(request, key)) as pieces:
            async for piece in pieces:
                try:
                    yield piece
                except Exception as failure:  # the reader's; closing would say that it had enough
                    await pieces.athrow(failure)
                    raise

    async def _led(self, request: Request, key: bytes) -> AsyncGenerator[Piece, None]:
        """Look the reply up, or ask for it; those who wait for `key` get what comes of it."""
        found: Record | None = None
        record: Record | None = None
        try:
            found = await self.store.get(key)
            if found is None:
                self._count("misses")
                seen: list[Piece] = []
                try:
                    async with aclosing(self.lm.stream(request)) as pieces:
                        async for piece in pieces:
                            seen.append(piece)
                            yield piece
                except GeneratorExit:  # the model's stream is closed by now
                    record = _record(request, seen, closed=True)
                    raise
                record = _record(request, seen, closed=False)
        finally:
            try:
                if record is not None:
                    self.store.put(key, record)
            finally:
                self.store.flights.leave(key, found or record)
        if found is not None:
            self._count("hits")
            for piece in _replay(found, request.n):
                yield piece

    def _count(self, name: str) -> None:
        with self._counting:
            setattr(self, name, getattr(self, name) + 1)


def _canonical(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _record(request: Request, pieces: Sequence[Piece], *, closed: bool) -> Record | None:
    """Pieces as columns; None when they may not be kept."""
    finished = {piece.index for piece in pieces if piece.finish}
    whole = finished.issuperset(range(request.n))
    task = asyncio.current_task()
    # Whoever is being cancelled did not close the stream because it had enough.
    enough = closed and request.enough and not (task and task.cancelling())
    if not (whole or enough):
        return None
    record: Record = {"text": [piece.text for piece in pieces]}
    for name, default in _KEPT.items():
        column = [getattr(piece, name) for piece in pieces]
        if any(value != default for value in column):
            record[name] = column
    if any(piece.tokens for piece in pieces):
        record["tokens"] = [_counts(piece.tokens) for piece in pieces]
    return record


def _counts(tokens: Tokens | None) -> Json:
    return None if tokens is None else [tokens.prompt, tokens.cached, tokens.generated]


def _replay(record: Record, samples: int) -> Iterator[Piece]:
    """The pieces of a record, and an end for every sample that has none."""
    columns: dict[str, Any] = record
    unfinished = set(range(samples))
    kept = [(name, columns[name]) for name in _KEPT if name in columns]
    lists = frozenset(name for name, _ in kept if isinstance(_KEPT[name], tuple))
    counts = columns.get("tokens")
    fused = False
    for number, text in enumerate(columns["text"]):
        values: dict[str, Any] = {
            name: tuple(column[number]) if name in lists else column[number]
            for name, column in kept
        }
        if counts and counts[number]:
            values["tokens"] = Tokens(*counts[number])
        piece = Piece(text, replayed=number == 0, **values)
        if piece.finish:
            unfinished.discard(piece.index)
        fused = piece.fused
        yield piece
    for index in sorted(unfinished):
        yield Piece("", index, "cut", fused=fused)
