"""The scheduler against a fake OpenAI server: questions a second, the bound, lock step.

One process is the server (`fake_openai.py`), this one asks: IRCoT in its default preset through
`OpenAILM`, `PacedLM`, `BatchedRetriever` and `evaluate`, so that the traces are written too. A
rate is measured while questions are left to hand out; the bound is the number of places over
the mean latency that the server drew.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import fake_openai
from table import Row, main

from multihop.evaluation import evaluate
from multihop.lms.base import Request
from multihop.lms.openai import OpenAILM
from multihop.lms.pacing import PacedLM, at_work
from multihop.retrievers.batching import BatchedRetriever
from multihop.strategies import make
from multihop.testing import ScriptedLM
from multihop.text import Hit, Passage, Query, Question
from multihop.trace import Search, Step, Strategy

PLACES = 64
CAP = 24


class Towns:
    """A corpus in memory, so that nothing but the scheduler is measured."""

    name = "towns"
    about = "It lies in a valley in the north and is known for the bells of its old church. " * 5

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """Find the towns named in each query, and their neighbours."""
        await asyncio.sleep(0.005)
        return [
            [Hit(p, 1.0 - 0.1 * at) for at, p in enumerate(self.near(q.text)[:k])] for q in queries
        ]

    def near(self, text: str) -> list[Passage]:
        """Passages about them."""
        numbers = [int(n) + more for n in re.findall(r"T(\d+)", text) for more in range(3)]
        return [
            Passage(f"p{n}", f"T{n}", f"T{n} is a town. {self.about}")
            for n in dict.fromkeys(numbers)
        ]

    async def aclose(self) -> None:
        """Nothing is held."""


class Questions:
    """Tells when the last one was handed out, and how far the calls were then."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.lm: PacedLM | None = None
        self.began = self.ended = 0.0
        self.calls = 0

    def __iter__(self) -> Iterator[Question]:
        self.began = time.perf_counter()
        for number in range(self.count):
            if self.lm and number == self.count - 1:
                self.ended = time.perf_counter()
                self.calls = self.lm.calls - self.lm.in_flight
            yield Question(fake_openai.question(number), id=str(number))


@contextmanager
def server(*options: str) -> Generator[tuple[str, dict[str, float]], None, None]:
    """The fake server's address, and what it told at its end."""
    told: dict[str, float] = {}
    script = Path(__file__).with_name("fake_openai.py")
    process = subprocess.Popen(
        [sys.executable, str(script), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield process.stdout.readline().strip(), told
    finally:
        out, _ = process.communicate()
        told |= json.loads(out)


def opened(url: str, most: int = PLACES, *, adaptive: bool = True) -> tuple[PacedLM, Strategy]:
    lm = PacedLM(OpenAILM("m", url, api="completions"), most, adaptive=adaptive)
    return lm, make("ircot", lm=lm, retriever=BatchedRetriever(Towns(), at_once=4))


async def without_barriers(
    lm: PacedLM, strategy: Strategy, questions: Questions
) -> tuple[float, float]:
    """Seconds until all questions are answered and on disk, and own CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        await evaluate(Questions(1), strategy, Path(folder) / "warm")
        questions.lm, lm.calls = lm, 0
        began, own = time.perf_counter(), time.process_time()
        await evaluate(questions, strategy, Path(folder) / "run", concurrency=at_work(lm.most))
        return time.perf_counter() - began, time.process_time() - own


async def in_lock_step(strategy: Strategy, questions: Questions, group: int) -> float:
    """Seconds when all questions of a group take a step before any takes the next."""

    async def step(stream: AsyncGenerator[Step, None]) -> bool:
        """Up to the next LM call's end; whether more is to come."""
        async for done in stream:
            if not isinstance(done, Search):
                return True
        return False

    began = time.perf_counter()
    waiting = list(questions)
    while waiting:
        streams = [strategy.steps(question) for question in waiting[:group]]
        waiting = waiting[group:]
        while streams:
            more = await asyncio.gather(*map(step, streams))
            streams = [stream for stream, going in zip(streams, more, strict=True) if going]
    return time.perf_counter() - began


def run(count: int, *options: str) -> tuple[PacedLM, Questions, float, float, dict[str, float]]:
    """One run without barriers: seconds in all, own CPU seconds, what the server told."""
    questions = Questions(count)
    with server(*options) as (url, told):
        lm, strategy = opened(url)

        async def both() -> tuple[float, float]:
            taken = await without_barriers(lm, strategy, questions)
            await lm.aclose()
            return taken

        seconds, own = asyncio.run(both())
    return lm, questions, seconds, own, told


def rate_rows(what: str, count: int, places: int, goal: str, *options: str) -> list[Row]:
    lm, questions, _, own, told = run(count, *options)
    rate = questions.calls / (questions.ended - questions.began)
    bound = places / told["mean"]
    calls = sum(fake_openai.steps(number) for number in range(count))
    load = f"load average {os.getloadavg()[0]:.1f}"
    rows = [
        Row(
            "scheduler",
            f"{what}: questions a second ({load})",
            rate * count / calls,
            "/s",
            f"bound: {bound * count / calls:.1f} /s",
            rate / bound,
            goal,
        )
    ]
    if told["refused"]:
        rows.append(
            Row(
                "scheduler",
                f"{what}: calls refused",
                told["refused"],
                "calls",
                "all calls",
                told["refused"] / calls,
            )
        )
    else:
        rows.append(
            Row("scheduler", f"{what}: own CPU a call, HTTP included", own / lm.calls * 1e3, "ms")
        )
    return rows


def lock_step_rows(count: int) -> list[Row]:
    """Long-tailed latencies: this scheduler, and two ways in lock step, all with 64 places."""
    _, _, seconds, _, _ = run(count, "--latency", "tailed")
    rows = []
    for what, group in (("groups of 64", PLACES), ("all questions at once", count)):
        with server("--latency", "tailed") as (url, _):
            lm, strategy = opened(url, adaptive=False)

            async def lock_step(
                group: int = group, lm: PacedLM = lm, strategy: Strategy = strategy
            ) -> float:
                taken = await in_lock_step(strategy, Questions(count), group)
                await lm.aclose()
                return taken

            other = asyncio.run(lock_step())
        rows.append(
            Row(
                "scheduler",
                f"long-tailed 200 ms, {count} questions",
                count / seconds,
                "/s",
                f"lock step, {what}: {count / other:.1f} /s",
                other / seconds,
                ">= 1.5",
            )
        )
    return rows


async def scripted(count: int, together: int) -> None:
    """Ask so many questions of a scripted LM, so many at work at once."""

    def respond(request: Request) -> str:
        number = int(request.prompt.text.rpartition(" of T")[2].partition(" ")[0])
        return " ".join(fake_openai.sentences(number)[-2:])

    lm = PacedLM(ScriptedLM(respond=respond, keep=False), PLACES)
    strategy = make("ircot", lm=lm, retriever=BatchedRetriever(Towns()))
    with tempfile.TemporaryDirectory() as folder:
        await evaluate(Questions(count), strategy, Path(folder) / "run", concurrency=together)


def memory_rows(counts: Sequence[tuple[int, int]]) -> list[Row]:
    """Peak memory of fresh processes, against the first."""
    found: list[Row] = []
    for count, together in counts:
        program = (
            "import asyncio, resource, scheduler\n"
            f"asyncio.run(scheduler.scripted({count}, {together}))\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
        peak, seconds = float(done.stdout), time.perf_counter() - began
        first = found[0].value if found else peak
        found.append(
            Row(
                "scheduler",
                f"peak memory, {count:,} questions, {together:,} at work ({seconds:.0f} s)",
                peak,
                "MiB",
                f"{counts[0][0]:,} questions" if found else "",
                peak / first if found else None,
            )
        )
    return found


def rows(full: bool) -> list[Row]:
    count = 2000 if full else 400
    return [
        # The first second, in which all places fill at once, must not weigh much.
        *rate_rows(f"fixed 200 ms, {PLACES} places", max(count, 1200), PLACES, ">= 0.95"),
        *lock_step_rows(1024 if full else 256),
        *rate_rows(f"server takes {CAP} at a time, else 429", count, CAP, "", "--cap", str(CAP)),
        *memory_rows(
            [(1_000, 128), (10_000, 128), (50_000, 128), (10_000, 10_000)]
            if full
            else [(1_000, 128), (10_000, 128)]
        ),
    ]


if __name__ == "__main__":
    main(rows)
