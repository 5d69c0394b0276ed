"""A bound on streams in flight: kept, fair, and found by watching the server."""

import asyncio
import math
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from multihop.errors import BadInput, LMUnavailable
from multihop.lms import pacing
from multihop.lms.base import Piece, Prompt, Request, complete
from multihop.lms.pacing import PacedLM
from multihop.lms.wrapper import identity
from multihop.testing import ScriptedLM


def ask(name: str = "Q") -> Request:
    return Request(Prompt(name), max_tokens=9)


class Server(ScriptedLM):
    """Each call waits until it is let go; what it then gives can be set."""

    def __init__(self) -> None:
        super().__init__(respond=lambda request: "Yes, it is.", pieces=4)
        self.began: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.open = self.most = 0
        self.refused: dict[str, int] = {}
        self.failing: set[str] = set()
        self.closed: list[str] = []

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        name = request.prompt.text
        self.began.append(name)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if self.refused.get(name):
                await settle(5)
                yield Piece("", retries=self.refused[name])
            await self.gates.setdefault(name, asyncio.Event()).wait()
            if name in self.failing:
                raise LMUnavailable("Nobody answers.")
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self.open -= 1
            self.closed.append(name)

    def let(self, *names: str) -> None:
        for name in names:
            self.gates.setdefault(name, asyncio.Event()).set()


async def settle(times: int = 40) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def tasks(lm: PacedLM, *names: str) -> list[asyncio.Task]:
    return [asyncio.create_task(complete(lm, ask(name))) for name in names]


async def finish(server: Server, running: list[asyncio.Task]) -> None:
    for name in "abcdefghijklmnopqrstuvwxyz":
        server.let(name)
    await asyncio.gather(*running, return_exceptions=True)


def test_it_looks_like_the_model_inside():
    inner = ScriptedLM(window=77)
    inner.identity = {"weights": "x"}
    lm = PacedLM(inner, 2)
    assert (lm.name, lm.window, identity(lm)) == ("scripted", 77, {"weights": "x"})


@pytest.mark.parametrize("most", [0, -1])
def test_a_bound_below_one_is_refused(most):
    with pytest.raises(BadInput, match=f"most is {most}"):
        PacedLM(ScriptedLM(), most)


async def test_no_more_than_the_bound_are_in_flight_and_all_come_to_an_end():
    server = Server()
    lm = PacedLM(server, 3)
    running = tasks(lm, *"abcdefgh")
    await settle()
    assert server.began == ["a", "b", "c"]
    await finish(server, running)
    assert server.most == lm.peak == 3
    assert sorted(server.began) == list("abcdefgh")
    assert (lm.in_flight, lm.calls) == (0, 8)


async def test_those_who_wait_are_served_in_order():
    server = Server()
    lm = PacedLM(server, 1)
    running = tasks(lm, *"abcd")
    await settle()
    for name in "abcd":
        server.let(name)
        await settle()
    assert server.began == ["a", "b", "c", "d"]
    await finish(server, running)


async def test_a_late_caller_does_not_overtake_when_a_place_comes_free():
    server = Server()
    lm = PacedLM(server, 1)
    running = tasks(lm, *"ab")
    await settle()
    server.let("a")
    await running[0]
    running += tasks(lm, "c")
    await settle()
    assert server.began == ["a", "b"]
    await finish(server, running)


async def test_a_caller_that_goes_away_while_waiting_leaves_the_queue_whole():
    server = Server()
    lm = PacedLM(server, 1)
    running = tasks(lm, *"abc")
    await settle()
    running[1].cancel()
    await settle()
    server.let("a")
    await settle()
    assert server.began == ["a", "c"]
    await finish(server, running)
    assert lm.in_flight == 0


async def test_a_place_given_to_a_caller_that_goes_away_in_the_same_moment_is_not_lost():
    server = Server()
    lm = PacedLM(server, 1)
    held = lm.stream(ask("a"))
    server.let("a")
    await anext(held)
    running = tasks(lm, *"bc")
    await settle()
    await held.aclose()  # gives the place to b, which has not run yet
    running[0].cancel()
    await settle()
    assert server.began == ["a", "c"]
    await finish(server, running)
    assert lm.in_flight == 0


async def test_the_place_is_held_until_the_stream_is_closed_by_whatever_task():
    server = Server()
    lm = PacedLM(server, 1)
    server.let("a", "b")
    stream = lm.stream(ask("a"))

    async def begin() -> None:
        assert (await anext(stream)).text == "Yes,"

    await asyncio.create_task(begin())
    [other] = tasks(lm, "b")
    await settle()
    assert server.began == ["a"]
    await asyncio.create_task(stream.aclose())
    await settle()
    assert server.closed[0] == "a"
    assert (await other).text == "Yes, it is."
    assert lm.in_flight == 0


async def test_a_stream_that_nobody_began_takes_no_place():
    lm = PacedLM(Server(), 1)
    stream = lm.stream(ask("a"))
    await stream.aclose()
    assert (lm.in_flight, lm.calls) == (0, 0)


async def test_a_place_comes_back_when_a_call_fails():
    server = Server()
    server.failing = {"a"}
    server.let("a", "b")
    lm = PacedLM(server, 1)
    with pytest.raises(LMUnavailable):
        await complete(lm, ask("a"))
    assert (await complete(lm, ask("b"))).text == "Yes, it is."


async def test_a_burst_of_refusals_cuts_the_bound_once_and_before_any_answer():
    server = Server()
    server.refused = dict.fromkeys("abcdefghij", 1)
    lm = PacedLM(server, 10)
    running = tasks(lm, *"abcdefghijk")
    await settle()
    assert int(lm.bound) == int(10 * pacing.REFUSED)
    assert (lm.cuts, lm.refusals) == (1, 10)
    assert "k" not in server.began
    await finish(server, running)


async def test_a_call_made_after_the_cut_can_cut_again_down_to_one():
    server = Server()
    server.let("a")
    server.refused = {"a": 1}
    lm = PacedLM(server, 4)
    bounds = [lm.bound]
    for _ in range(6):
        await complete(lm, ask("a"))
        bounds.append(lm.bound)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == 1.0


async def test_retries_told_with_the_first_text_count_too():
    class Late(ScriptedLM):
        async def stream(self, request):
            yield Piece("Yes.", finish="stop", retries=2)

    lm = PacedLM(Late(), 10)
    await complete(lm, ask())
    assert (lm.refusals, lm.cuts) == (2, 1)
    assert lm.bound == 10 * pacing.REFUSED


async def test_an_unavailable_server_cuts_the_bound():
    server = Server()
    server.failing = {"a"}
    server.let("a")
    lm = PacedLM(server, 8)
    with pytest.raises(LMUnavailable):
        await complete(lm, ask("a"))
    assert lm.bound == 8 * pacing.FAILED


async def test_a_fixed_bound_stays():
    server = Server()
    server.refused = {"a": 3}
    server.let("a")
    lm = PacedLM(server, 8, adaptive=False)
    await complete(lm, ask("a"))
    assert (lm.bound, lm.refusals, lm.cuts) == (8, 3, 0)


# --- In simulated time ----------------------------------------------------------------------


class Jumping(asyncio.SelectorEventLoop):
    """Sleeps take no time: the clock jumps to the next thing due."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        select = self._selector.select

        def jump(timeout):
            self.now += timeout or 0
            return select(0)

        self._selector.select = jump

    def time(self) -> float:
        return self.now


class Simulated(ScriptedLM):
    """A server that bears `cap` calls and refuses more, or has `slots` and lets more wait."""

    def __init__(self, latency, *, cap: float = math.inf, slots: int = 1000) -> None:
        super().__init__()
        self.latency = latency
        self.cap = cap
        self.slots = asyncio.Semaphore(slots)
        self.open = 0

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        retries = 0
        while self.open >= self.cap:
            retries += 1
            yield Piece("", retries=retries)
            await asyncio.sleep(1.0 + 0.1 * random.random())
        self.open += 1
        try:
            async with self.slots:
                await asyncio.sleep(self.latency())
        finally:
            self.open -= 1
        yield Piece("Yes.", finish="stop", retries=retries)


def simulate(monkeypatch, lm: Simulated, most: int, calls: int, callers: int = 0, **options):
    """Have the calls made by so many callers; gives the paced LM and calls a second."""
    random.seed(1)
    with asyncio.Runner(loop_factory=Jumping) as runner:
        loop = runner.get_loop()
        monkeypatch.setattr(pacing.time, "monotonic", loop.time)
        paced = PacedLM(lm, most, **options)
        left = iter(range(calls))

        async def caller() -> None:
            for _ in left:
                await complete(paced, ask())

        async def all_callers() -> None:
            await asyncio.gather(*(caller() for _ in range(callers or 2 * most)))

        runner.run(all_callers())
        return paced, calls / loop.time()


def steady() -> float:
    return 0.2


def long_tailed() -> float:
    return random.lognormvariate(math.log(0.2), 1.0)


def test_a_steady_server_is_kept_busy_to_the_bound(monkeypatch):
    paced, rate = simulate(monkeypatch, Simulated(steady), 64, 6400)
    assert rate > 0.99 * 64 / 0.2
    assert paced.bound == 64


def test_long_tails_alone_cut_next_to_nothing(monkeypatch):
    _, fixed = simulate(monkeypatch, Simulated(long_tailed), 64, 6_000, adaptive=False)
    _, rate = simulate(monkeypatch, Simulated(long_tailed), 64, 6_000)
    assert rate > 0.97 * fixed


def test_a_server_that_refuses_is_found_and_kept_nearly_full(monkeypatch):
    paced, rate = simulate(monkeypatch, Simulated(steady, cap=24), 64, 6_000)
    assert rate > 0.85 * 24 / 0.2
    assert paced.refusals < 0.02 * 6_000


def test_the_bound_grows_back_when_the_server_bears_more(monkeypatch):
    lm = Simulated(steady, cap=8)

    def more() -> float:
        if asyncio.get_running_loop().time() > 30:
            lm.cap = math.inf
        return 0.2

    lm.latency = more
    paced, _ = simulate(monkeypatch, lm, 64, 6_000)
    assert paced.bound == 64


def test_first_pieces_that_come_ever_later_cut_the_bound_gently(monkeypatch):
    lm = Simulated(steady)

    def slower() -> float:
        return 0.2 if asyncio.get_running_loop().time() < 2 else 1.0

    lm.latency = slower
    paced, _ = simulate(monkeypatch, lm, 64, 2_000)
    assert paced.cuts > 2
    assert 64 * pacing.LEAST_BY_WAIT <= paced.bound < 50


def test_a_server_that_became_slower_for_good_gets_its_calls_back(monkeypatch):
    lm = Simulated(steady)

    def slower() -> float:
        return 0.2 if asyncio.get_running_loop().time() < 2 else 1.0

    lm.latency = slower
    paced, _ = simulate(monkeypatch, lm, 64, 6_000)
    assert paced.bound == 64


def test_a_bound_that_nobody_reaches_does_not_grow(monkeypatch):
    lm = Simulated(steady, cap=8)
    paced, _ = simulate(monkeypatch, lm, 64, 500, callers=10)
    bound = paced.bound
    lm.cap = math.inf
    assert bound < 12
