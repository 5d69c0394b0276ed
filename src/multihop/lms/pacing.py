"""One bound for all streams that a model has in flight, found by watching its server."""

import asyncio
import math
import statistics
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from multihop.errors import BadInput, LMUnavailable
from multihop.lms.base import LanguageModel, Piece, Request
from multihop.lms.wrapper import LMWrapper

REFUSED, FAILED, SLOW = 0.7, 0.5, 0.9
"""What is left of the bound after the server refused a call, did not answer one, or came to
let all of them wait."""

QUEUEING, STANDING = 2.0, 1.5
"""Times the best recent wait for a first piece: from the one on the bound shrinks, from the
other on it does not grow. A wait is the median over a round of calls, of two rounds the
shorter: single ones vary much."""

ROUND, RECENT = 32, 12
"""Fewest calls of a round (else twice the bound), and rounds that are remembered."""

LEAST_BY_WAIT = 0.25
"""Share of `most` below which slow first pieces do not lead: a queue at the server costs no
throughput, too few calls do."""


def at_work(most: int) -> int:
    """Questions to have at work so that `most` streams stay in flight.

    A quarter more, at least one: these search, write their traces, or wait in line.
    """
    return most + max(1, most // 4)


class PacedLM(LMWrapper):
    """Lets a bounded number of streams be open at a time; the others wait in order.

    A stream has its place from before the model is asked until it ends or is closed, by
    whatever task. The bound begins at `most`, so that a server that can bear it is busy at
    once. Where `adaptive`, it is cut at most once a round trip, when the server refused (429,
    5xx) or did not answer or when first pieces take ever longer, and creeps back with calls
    that went well: one place a round trip, a tenth of that where it was refused before.

    Args:
        lm: Who answers.
        most: Most streams in flight, at least 1.
        adaptive: Whether the bound may be less.

    Attributes:
        most: As given.
        bound: Streams that may be in flight now; its whole part counts.
        in_flight: Streams that are.
        peak: Most that ever were.
        calls: Streams begun.
        refusals: Attempts that the server refused.
        cuts: How often the bound was cut.
        waited: Seconds that calls waited for their places, in all.
        on_wait: Told when a call has to wait for its place.
    """

    def __init__(self, lm: LanguageModel, most: int, *, adaptive: bool = True) -> None:
        if most < 1:
            raise BadInput(f"most is {most}; at least 1 call must be in flight.")
        super().__init__(lm)
        self.most = most
        self.adaptive = adaptive
        self.bound = float(most)
        self.in_flight = self.peak = self.calls = self.refusals = self.cuts = 0
        self.waited = 0.0
        self.on_wait: Callable[[], None] | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wall = math.inf  # calls that the server bore when it last refused one more
        self._cut_at = -math.inf
        self._waits: list[float] = []  # for first pieces, in this round
        self._rounds: deque[float] = deque(maxlen=RECENT)

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Wait for a place, then pass the request on."""
        await self._enter()
        began, begun, told = time.monotonic(), False, 0
        try:
            async with aclosing(self.lm.stream(request)) as pieces:
                async for piece in pieces:
                    if not begun:
                        begun = bool(piece.text or piece.thinking or piece.finish)
                        if piece.retries > told:
                            self.refusals += piece.retries - told
                            told = piece.retries
                            self._refusal(began)
                            began = time.monotonic()  # of the next attempt, about
                        elif begun and not told:
                            self._success(time.monotonic() - began)
                    yield piece
        except LMUnavailable:
            self._cut(FAILED * self.bound, began)
            raise
        finally:
            self.in_flight -= 1
            self._admit()

    # --- Places -----------------------------------------------------------------------------

    @property
    def crowded(self) -> bool:
        """Whether calls wait for a place."""
        return any(not turn.done() for turn in self._waiting)

    async def _enter(self) -> None:
        began = time.monotonic()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        if self.on_wait and not turn.done():
            self.on_wait()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place was given in the same moment
                self.in_flight -= 1
                self._admit()
            raise
        self.waited += time.monotonic() - began

    def _admit(self) -> None:
        while self._waiting and self.in_flight < int(self.bound):
            turn = self._waiting.popleft()
            if not turn.done():  # else its caller went away
                turn.set_result(None)
                self.in_flight += 1
                self.calls += 1
                self.peak = max(self.peak, self.in_flight)

    # --- The bound --------------------------------------------------------------------------

    def _cut(self, bound: float, began: float) -> None:
        """Lower the bound, unless what tells of it was sent before the last cut."""
        if self.adaptive and began > self._cut_at:
            self.bound = min(self.bound, max(1.0, bound))
            self.cuts += 1
            self._cut_at = time.monotonic()
            self._waits.clear()

    def _refusal(self, began: float) -> None:
        if began > self._cut_at:
            self._wall = min(self.in_flight, int(self.bound)) - 1
        self._cut(REFUSED * self.bound, began)

    def _success(self, wait: float) -> None:
        if self.bound > self._wall + 2:  # it bears more by now
            self._wall = math.inf
        if not self.adaptive or self.in_flight < int(self.bound):
            return  # a bound that nobody feels says nothing
        slow = self._slow(wait)
        if not slow:
            step = 1.0 if self.bound < self._wall else 0.1
            self.bound = min(float(self.most), self.bound + step / self.bound)
            self._admit()

    def _slow(self, wait: float) -> bool:
        """Whether calls wait clearly longer than they did; cuts the bound when far longer."""
        self._waits.append(wait)
        over = len(self._waits) >= max(ROUND, 2 * int(self.bound))
        if over:
            self._rounds.append(statistics.median(self._waits))
            self._waits.clear()
        if len(self._rounds) < 3:
            return False
        longer = min(self._rounds[-1], self._rounds[-2]) / min(self._rounds)
        least = LEAST_BY_WAIT * self.most
        if over and longer > QUEUEING and self.bound > least:
            self._cut(max(least, SLOW * self.bound), math.inf)
        return longer > STANDING
