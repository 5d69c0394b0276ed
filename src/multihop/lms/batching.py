"""Requests that wait at the same time go to the engine together.

An engine that evaluates many rows at the price of one is idle most of the time when it gets one
request after the other. Here those that came while it was busy wait, and go together as soon as
it is free: no timer, so nobody waits for company, and a lone request starts at once.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from multihop.errors import BadInput
from multihop.lms.base import LanguageModel, Piece, Request
from multihop.lms.wrapper import LMWrapper


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A request that its backend has found to be possible; backends add what they need.

    Attributes:
        request: What was asked.
        kind: Only requests of equal kind can share a batch: the same adapter, greedy or the
            same sampling. One that must be alone has a kind that equals no other.
        tokens: Of its prompt; rows are padded to the longest.
        rows: Places that it takes in a batch.
    """

    request: Request
    kind: Hashable
    tokens: int
    rows: int = 1


PreparedT = TypeVar("PreparedT", bound=Prepared)


class BatchingLM(LanguageModel, Protocol[PreparedT]):
    """A backend that generates for several requests at a time."""

    async def prepare(self, request: Request) -> PreparedT:
        """Check one request, so that no fault of its own reaches the others of a batch.

        Raises:
            LMRefused: The adapter is not loaded, or the prompt is empty.
            ContextTooLong: Prompt and `max_tokens` exceed the window.
        """
        ...

    def stream_batch(
        self,
        batch: Sequence[PreparedT],
        listening: Callable[[int], bool],
        join: Callable[[int, int], Sequence[PreparedT]],
    ) -> AsyncGenerator[tuple[int, Piece], None]:
        """Generate for all of them: pairs of a place in the batch and the piece for it.

        Args:
            batch: Of one kind.
            listening: Whether anybody still wants the text of a place; asked from any thread
                after every token. A place that nobody listens to must stop costing, and when
                there is none left the stream ends.
            join: Takes more of the same kind from those that wait, for an engine that can let
                them into a running batch; told how many rows it has and the tokens of the
                longest. They get the next places. Callable from any thread.

        Raises:
            LMUnavailable: The device has no memory left for the batch.
        """
        ...


@dataclass(eq=False)
class _Member:
    """A request on its way through a batch.

    Attributes:
        unfinished: Samples whose last piece has not come.
        batch: Those that go together, by place; a member leaves when it is done or closed.
    """

    prepared: Prepared
    unfinished: int
    pieces: asyncio.Queue[Piece | None] = field(default_factory=asyncio.Queue)
    failure: BaseException | None = None
    batch: "dict[int, _Member] | None" = None
    place: int = 0


@dataclass
class _Line:
    """Who waits in one event loop, in the order of coming, and the batch that runs.

    The lock is for `waiting`: engines take from it in threads of their own.
    """

    waiting: list[_Member] = field(default_factory=list)
    batch: dict[int, _Member] = field(default_factory=dict)
    running: "asyncio.Task[None] | None" = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class BatchedLM(LMWrapper):
    """Collects concurrent requests into batches.

    The oldest request that waits is always in the next batch, joined by those of its kind that
    are nearest to it in length. An engine that can take more into a running batch gets those
    that wait at the head of the line, and none once the oldest is of another kind or does not
    fit: so nobody is passed over for ever.

    A shared batch adds numbers in another order than a lone call does, which can flip a near
    tie between two tokens: use the backend itself where answers must be equal from run to run.

    Args:
        lm: Who answers.
        most: Rows in a batch, samples counted; a request with more samples goes alone.
        most_tokens: Of a batch's prompts, padding included: it bounds the memory for keys
            and values. A longer prompt goes alone.
        padding: Share of a batch's prompt tokens that may be padding, 0 to 1.

    Raises:
        BadInput: A number is out of its range.
    """

    def __init__(
        self,
        lm: BatchingLM[Any],
        *,
        most: int = 16,
        most_tokens: int = 65_536,
        padding: float = 0.25,
    ) -> None:
        super().__init__(lm)
        for name, value in (("most", most), ("most_tokens", most_tokens)):
            if value < 1:
                raise BadInput(f"{name} is {value}; a batch holds at least 1.")
        if not 0 <= padding <= 1:
            raise BadInput(f"padding is {padding:g}; it is a share, 0 to 1.")
        self.lm: BatchingLM[Any] = lm
        self.most = most
        self.most_tokens = most_tokens
        self.padding = padding
        self._lines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = (
            weakref.WeakKeyDictionary()
        )

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Wait for a place in a batch and give what is written for this request.

        Raises:
            LMError: As the backend raises it; what befalls a batch befalls all of it.
        """
        member = _Member(await self.lm.prepare(request), request.n)
        line = self._lines.setdefault(asyncio.get_running_loop(), _Line())
        with line.lock:
            line.waiting.append(member)
        self._go(line)
        try:
            while (piece := await member.pieces.get()) is not None:
                yield piece
            if member.failure:
                raise member.failure
        finally:
            with line.lock:
                if member.batch is None:
                    line.waiting.remove(member)
                else:
                    member.batch.pop(member.place, None)

    def _go(self, line: _Line) -> None:
        """Begin a batch if none runs and somebody waits."""
        if line.running is None and line.waiting:
            # It is filled when its turn comes: requests made in the same breath go together.
            line.running = asyncio.create_task(self._run(line))
            line.running.add_done_callback(lambda task: self._done(line, task))

    async def _run(self, line: _Line) -> None:
        batch = line.batch = {}
        first = self._first(line, batch)
        if not first:  # whoever waited has gone
            return
        places = len(first)

        def join(rows: int, longest: int) -> list[Prepared]:
            nonlocal places
            came = self._more(line, batch, first[0].kind, rows=rows, longest=longest, place=places)
            places += len(came)
            return came

        stream = self.lm.stream_batch(first, batch.__contains__, join)
        async with aclosing(stream) as pieces:
            async for place, piece in pieces:
                member = batch.get(place)
                if member is None:
                    continue
                member.pieces.put_nowait(piece)
                member.unfinished -= piece.finish is not None
                if not member.unfinished:
                    member.pieces.put_nowait(None)
                    batch.pop(place, None)

    def _done(self, line: _Line, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        for member in line.batch.values():
            member.failure = failure
            member.pieces.put_nowait(None)
        line.batch, line.running = {}, None
        self._go(line)

    # --- Who goes together ------------------------------------------------------------------

    def _first(self, line: _Line, batch: dict[int, _Member]) -> list[Prepared]:
        """Take those that begin a batch."""
        with line.lock:
            if not line.waiting:
                return []
            oldest, *others = line.waiting
            begun = oldest.prepared
            chosen = {oldest}
            rows, longest, filled = begun.rows, begun.tokens, begun.rows * begun.tokens
            alike = [m for m in others if m.prepared.kind == begun.kind]
            alike.sort(key=lambda m: abs(m.prepared.tokens - begun.tokens))
            for member in alike:
                one = member.prepared
                if self._fits(one, rows, longest, filled):
                    chosen.add(member)
                    rows, longest = rows + one.rows, max(longest, one.tokens)
                    filled += one.rows * one.tokens
            return self._take(line, batch, chosen, 0)

    def _more(
        self,
        line: _Line,
        batch: dict[int, _Member],
        kind: Hashable,
        *,
        rows: int,
        longest: int,
        place: int,
    ) -> list[Prepared]:
        """Take those at the head of the line that a running batch has room for."""
        if not line.waiting or rows >= self.most:
            return []
        with line.lock:
            chosen: set[_Member] = set()
            filled = rows * longest
            for member in line.waiting:
                one = member.prepared
                if one.kind != kind or not self._fits(one, rows, longest, filled):
                    break
                chosen.add(member)
                rows, longest = rows + one.rows, max(longest, one.tokens)
                filled += one.rows * one.tokens
            return self._take(line, batch, chosen, place)

    def _fits(self, one: Prepared, rows: int, longest: int, filled: int) -> bool:
        """Whether another request has room beside `rows` that hold `filled` tokens."""
        more = rows + one.rows
        padded = more * max(longest, one.tokens)
        wasted = padded - filled - one.rows * one.tokens
        return more <= self.most and padded <= self.most_tokens and wasted <= self.padding * padded

    @staticmethod
    def _take(
        line: _Line, batch: dict[int, _Member], chosen: set[_Member], place: int
    ) -> list[Prepared]:
        """Move members from the line into the batch, in the order of coming."""
        came = [member for member in line.waiting if member in chosen]
        if came:
            line.waiting = [member for member in line.waiting if member not in chosen]
        for number, member in enumerate(came, start=place):
            member.batch, member.place = batch, number
            batch[number] = member
        return [member.prepared for member in came]
