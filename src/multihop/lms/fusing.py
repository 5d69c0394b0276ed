"""Going on with an open stream instead of asking again.

After a sentence the loop searches and asks for the next one. When the search brought nothing
new, the next prompt is the last prompt and what the model has written since, byte for byte: it
is already writing the continuation. So a stream that its reader closed is kept open until the
next request of the same task shows whether it can go on; one that cannot ends the stream, at
the server too. A prompt asked once more, as the reader's after a search that brought nothing,
is read from its beginning.

What holds: with a prefix-consistent model, one whose answer to P + x is its answer to P with x
taken off the front, every text is what a call of its own would have given. A real engine is
nearly that: the evaluation of the same tokens in another batch may flip near ties. So a text
that was not asked for is marked (`Piece.fused`), and sampled texts are never fused.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from multihop.errors import LMError
from multihop.lms.base import Finish, LanguageModel, Piece, Request
from multihop.lms.pacing import PacedLM
from multihop.lms.wrapper import LMWrapper, innermost, inwards
from multihop.trace import Tokens, together

CROWDED = 0.05
"""Seconds that a stream stays open, unread, while other calls wait for its place. A local search
takes less; whoever searches for longer asks anew."""


@runtime_checkable
class Tokenizing(Protocol):
    """A backend that knows token ids; its pieces carry them."""

    async def token_ids(self, text: str) -> list[int]:
        """The ids that a prompt of this text is evaluated as."""
        ...


class FusingLM(LMWrapper):
    """Serves a request from the stream of an earlier one where their texts allow it.

    A request can be served when it is greedy and for one sample, differs from the stream's own
    in nothing but the prompt's text, and that text is the stream's prompt with a beginning of
    what was written since. Where the backend tells token ids, those of the new prompt must be
    the ones that were written. Backends that render chat turns themselves are asked every time:
    what they make of the next turns is theirs to know.

    An open stream keeps its place among the calls in flight. Where a `PacedLM` inside lets calls
    wait for one, streams are kept for no longer than `CROWDED`, so that searches which take
    their time, or ask the model from tasks of their own, hold nobody up.

    Args:
        lm: Who answers.
        patience: Seconds that a stream stays open for the next request of its task. What a
            server writes meanwhile is lost when the prompt changed.

    Attributes:
        fused: Requests served from an earlier stream; of some the rest had to be asked for.
        asked: Requests passed on.
    """

    def __init__(self, lm: LanguageModel, *, patience: float = 1.0) -> None:
        super().__init__(lm)
        self.patience = patience
        self.fused = self.asked = 0
        backend = innermost(lm)
        self._tokens = backend if isinstance(backend, Tokenizing) else None
        self._kept: WeakKeyDictionary[asyncio.Task[object], _Past] = WeakKeyDictionary()
        self._closing: set[asyncio.Task[None]] = set()
        self._paced = _paced(lm)
        if self._paced:
            self._paced.on_wait = self._make_room

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Go on with this task's last stream, or open one."""
        past, place = self._take(), None
        if past:
            try:
                place = await self._place(past, request)
            finally:
                if not place:  # before another is opened: the backend may have but one place
                    await past.close()
        if not (past and place):
            past = _Past(request, self.lm.stream(request))
        self.fused += place is not None
        self.asked += place is None
        wanted = False
        try:
            async with aclosing(self._read(past, request, place)) as pieces:
                async for piece in pieces:
                    try:
                        yield piece
                    except GeneratorExit:  # the reader has enough; it may ask on
                        wanted = True
                        raise
            wanted = True
        finally:
            if past.finish or not (wanted and past.may_go_on):
                await past.close()
            if wanted and past.may_go_on:
                self._keep(past)

    async def aclose(self) -> None:
        """End all streams, then close the model."""
        kept = list(self._kept.values())
        self._kept.clear()
        try:
            await asyncio.gather(*(past.close() for past in kept), *self._closing)
        finally:
            await super().aclose()

    # --- Streams kept open ------------------------------------------------------------------

    def _keep(self, past: "_Past") -> None:
        task = asyncio.current_task()
        assert task
        self._drop(task)  # of two streams read side by side the later one is kept
        task.add_done_callback(self._drop)
        self._kept[task] = past
        past.since = asyncio.get_running_loop().time()
        self._await_more(task, past)

    def _await_more(self, task: "asyncio.Task[object]", past: "_Past") -> None:
        """Keep a stream for as long as is fair to those who wait for its place."""
        if past.timer:
            past.timer.cancel()
        loop = asyncio.get_running_loop()
        end = past.since + self.patience
        past.hurried = self._crowded and not past.finish  # one that has ended takes no place
        if past.hurried:
            end = min(end, max(past.since + CROWDED, loop.time()))

        def late() -> None:
            if past.hurried and not self._crowded:
                self._await_more(task, past)
            else:
                self._drop(task, past)

        past.timer = loop.call_at(end, late)

    @property
    def _crowded(self) -> bool:
        return self._paced is not None and self._paced.crowded

    def _make_room(self) -> None:
        """A call waits for a place: kept streams have less time."""
        for task, past in list(self._kept.items()):
            if not (past.hurried or past.finish):
                self._await_more(task, past)

    def _take(self) -> "_Past | None":
        task = asyncio.current_task()
        past = self._kept.pop(task, None) if task else None
        if past and task:
            task.remove_done_callback(self._drop)
            if past.timer:
                past.timer.cancel()
        return past

    def _drop(self, task: "asyncio.Task[object]", past: "_Past | None" = None) -> None:
        """Close what a task left open; for callbacks, which cannot wait."""
        if past is None or self._kept.get(task) is past:
            task.remove_done_callback(self._drop)
            if past := self._kept.pop(task, None):
                closing = asyncio.get_running_loop().create_task(past.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    # --- Reading ----------------------------------------------------------------------------

    async def _place(self, past: "_Past", request: Request) -> "_Place | None":
        """Where in the stream the answer to a request begins; None when it is not there."""
        place = past.place(request)
        if place and place.ids is not None and self._tokens:
            before = await self._tokens.token_ids(past.request.prompt.text)
            if await self._tokens.token_ids(request.prompt.text) != [*before, *place.ids]:
                return None
        return place

    async def _read(
        self, past: "_Past", request: Request, place: "_Place | None"
    ) -> AsyncGenerator[Piece, None]:
        if place is None:
            async for piece in past.rest():
                yield piece
            return
        served, told = "", past.told
        spent = Tokens(0, 0, 0)
        try:
            async with aclosing(past.rest(place)) as rest:
                async for piece in rest:
                    counts = _less(piece.tokens, told)
                    spent = counts or Tokens()
                    if piece.finish == "length":  # a call of its own may write on
                        break
                    served += piece.text
                    yield replace(piece, fused=True, tokens=counts, sent="", retries=0, warnings=())
            if past.finish == "stop":
                return
        except LMError:  # the old stream is gone; a new call may come through
            pass
        past.broken = True
        await past.close()
        self.asked += 1
        async with aclosing(self.lm.stream(request)) as pieces:
            written = ""
            async for piece in pieces:
                known = len(written)
                written += piece.text
                counts = together(spent, piece.tokens)
                same = written.startswith(served) or (
                    served.startswith(written) and not piece.finish
                )
                if not same:
                    words = "The engine wrote another text when it was asked anew."
                    yield Piece("", 0, "length", tokens=counts, fused=True, warnings=(words,))
                    return
                yield replace(piece, text=written[max(known, len(served)) :], tokens=counts)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a stream's text.

    Attributes:
        piece: Number of the piece that it lies in or before.
        skip: Characters of that piece that come before it.
        ids: Token ids of all pieces before it; None where the backend tells none.
    """

    piece: int
    skip: int
    ids: Sequence[int] | None


@dataclass
class _Past:
    """A stream and what came of it so far.

    Attributes:
        request: What opened it.
        stream: The model's pieces.
        pieces: Those read so far.
        text: Their text.
        finish: Set when it has ended.
        told: The newest counts that a reader was given.
        broken: It cannot be read on.
        since: When its reader had enough, on the event loop's clock.
        timer: Closes it when nobody asks on.
        hurried: The timer is set to `CROWDED`.
    """

    request: Request
    stream: AsyncGenerator[Piece, None]
    pieces: list[Piece] = field(default_factory=list)
    text: str = ""
    finish: Finish | None = None
    told: Tokens = field(default_factory=Tokens)
    broken: bool = False
    since: float = 0.0
    timer: asyncio.TimerHandle | None = None
    hurried: bool = False

    @property
    def may_go_on(self) -> bool:
        """Whether a later request could be served."""
        request = self.request
        greedy = request.temperature == 0 and request.n == 1
        begun = any(piece.text or piece.finish for piece in self.pieces)
        # What it stands on is then not the prompt and this text.
        other = any(piece.sent or piece.thinking for piece in self.pieces)
        readable = not self.broken and self.finish in (None, "stop")
        return greedy and begun and readable and not other

    def place(self, request: Request) -> _Place | None:
        """Where the answer to a request begins, by its text alone."""
        prompt, old = request.prompt, self.request
        if replace(request, prompt=old.prompt, enough=old.enough) != old:
            return None
        added = prompt.text[len(old.prompt.text) :]
        if not prompt.text.startswith(old.prompt.text) or not self.text.startswith(added):
            return None
        at, ids = 0, list[int]()
        told = all(piece.ids for piece in self.pieces if piece.text)
        for number, piece in enumerate(self.pieces):
            if at + len(piece.text) > len(added) or at == len(added):
                skip = len(added) - at
                if skip and (piece.ids or piece.logprobs):  # within a token
                    return None
                return _Place(number, skip, ids if told else None)
            at += len(piece.text)
            ids += piece.ids
        return _Place(len(self.pieces), 0, ids if told else None)

    async def rest(self, place: _Place | None = None) -> AsyncGenerator[Piece, None]:
        """All pieces from a place on: those known, then new ones."""
        number, skip = (place.piece, place.skip) if place else (0, 0)
        while number < len(self.pieces) or await self._read_on():
            piece = self.pieces[number]
            yield replace(piece, text=piece.text[skip:]) if skip else piece
            number, skip = number + 1, 0

    async def _read_on(self) -> bool:
        piece = await anext(self.stream, None)
        if piece is None:
            self.broken = self.finish is None
            return False
        self.pieces.append(piece)
        self.text += piece.text
        self.finish = piece.finish or self.finish
        self.told = piece.tokens or self.told
        return True

    async def close(self) -> None:
        """End the stream, at the server too."""
        if self.timer:
            self.timer.cancel()
        await self.stream.aclose()


def _less(tokens: Tokens | None, told: Tokens) -> Tokens | None:
    """What was counted since; the stream's prompt was counted when it was sent."""
    if tokens is None:
        return None

    def less(now: int | None, before: int | None) -> int | None:
        return None if now is None else max(0, now - (before or 0))

    return Tokens(
        less(tokens.prompt, told.prompt),
        less(tokens.cached, told.cached),
        less(tokens.generated, told.generated),
    )


def _paced(lm: LanguageModel) -> PacedLM | None:
    """The wrapper inside that bounds the calls in flight, if there is one."""
    return next((each for each in inwards(lm) if isinstance(each, PacedLM)), None)
