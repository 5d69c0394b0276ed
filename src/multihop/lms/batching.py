"""Requests that wait at the same time go to the engine together.

An engine that evaluates many rows at the price of one is idle most of the time when it gets one
request after the other. Here those that came while it was busy wait, and go together as soon as
it is free: no timer, so nobody waits for company, and a lone request starts at once.
"""

import asyncio
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
        self, batch: Sequence[PreparedT], listening: Callable[[int], bool]
    ) -> AsyncGenerator[tuple[int, Piece], None]:
        """Generate for all of them: pairs of a place in `batch` and the piece for it.

        Args:
            batch: Of one kind.
            listening: Whether anybody still wants the text of a place; asked from any thread
                after every token. A place that nobody listens to must stop costing, and when
                there is none left the stream ends.

        Raises:
            LMUnavailable: The device has no memory left for the batch.
        """
        ...


@dataclass(eq=False)
class _Member:
    """A request on its way through a batch."""

    prepared: Prepared
    pieces: asyncio.Queue[Piece | None] = field(default_factory=asyncio.Queue)
    failure: BaseException | None = None
    chosen: bool = False
    closed: bool = False


@dataclass
class _Line:
    """Who waits in one event loop, in the order of coming, and the batch that runs."""

    waiting: list[_Member] = field(default_factory=list)
    batch: list[_Member] = field(default_factory=list)
    running: "asyncio.Task[None] | None" = None


class BatchedLM(LMWrapper):
    """Collects concurrent requests into batches.

    The oldest request that waits is always in the next batch, so none is passed over for ever;
    it is joined by those of its kind that are nearest to it in length. A shared batch adds
    numbers in another order than a lone call does, which can flip a near tie between two
    tokens: use the backend itself where answers must be equal from run to run.

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
        """Wait for the next batch and give what it writes for this request.

        Raises:
            LMError: As the backend raises it; what befalls a batch befalls all of it.
        """
        member = _Member(await self.lm.prepare(request))
        line = self._lines.setdefault(asyncio.get_running_loop(), _Line())
        line.waiting.append(member)
        self._go(line)
        try:
            while (piece := await member.pieces.get()) is not None:
                yield piece
            if member.failure:
                raise member.failure
        finally:
            member.closed = True
            if not member.chosen:
                line.waiting.remove(member)

    def _go(self, line: _Line) -> None:
        """Begin a batch if none runs and somebody waits."""
        if line.running is None and line.waiting:
            # It is filled when its turn comes: requests made in the same breath go together.
            line.running = asyncio.create_task(self._run(line))
            line.running.add_done_callback(lambda task: self._done(line, task))

    async def _run(self, line: _Line) -> None:
        batch = line.batch = self._next(line)
        if not batch:  # whoever waited has gone
            return

        def listening(place: int) -> bool:
            return not batch[place].closed

        prepared = [member.prepared for member in batch]
        async with aclosing(self.lm.stream_batch(prepared, listening)) as pieces:
            async for place, piece in pieces:
                if listening(place):
                    batch[place].pieces.put_nowait(piece)

    def _done(self, line: _Line, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        for member in line.batch:
            member.failure = failure
            member.pieces.put_nowait(None)
        line.batch, line.running = [], None
        self._go(line)

    def _next(self, line: _Line) -> list[_Member]:
        """Take from the line who goes together, in the order of coming."""
        if not line.waiting:
            return []
        first, *others = line.waiting
        first.chosen = True
        rows, longest = first.prepared.rows, first.prepared.tokens
        real = rows * longest
        fits = [m for m in others if m.prepared.kind == first.prepared.kind]
        fits.sort(key=lambda m: abs(m.prepared.tokens - first.prepared.tokens))
        for member in fits:
            one = member.prepared
            more, most = rows + one.rows, max(longest, one.tokens)
            filled = real + one.rows * one.tokens
            if (
                more <= self.most
                and more * most <= self.most_tokens
                and more * most - filled <= self.padding * more * most
            ):
                member.chosen = True
                rows, longest, real = more, most, filled
        batch = [member for member in line.waiting if member.chosen]
        line.waiting = [member for member in line.waiting if not member.chosen]
        return batch
