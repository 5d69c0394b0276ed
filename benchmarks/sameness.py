"""How many of the embedded model's chains change by reading on, and by being run again.

Texts are read on from open streams, or not; `reproducible` runs must be equal to the bit.

    python benchmarks/sameness.py [--full]

Over 200 dev questions of three data sets where MULTIHOP_SHARED is there, else over the shipped
ones; prompts are short, so that evaluating all of them anew takes minutes and not hours.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from embedded import Asked, asked, run, shipped
from table import Row, main

from multihop.lms.local import LocalLM
from multihop.trace import Trace

LEAN = {"k": 2, "max_passages": 4, "max_steps": 5, "words": 40, "shots": 1, "max_tokens": 60}
"""Short prompts and a low cap, which many chains reach."""

BARE = {
    "k": 1,
    "max_passages": 2,
    "max_steps": 2,
    "words": 30,
    "shots": 0,
    "max_tokens": 24,
    "reader": "none",
}
"""Prompts that are evaluated anew at every call, 200 questions twice."""


def dev(stack: ExitStack, count: int) -> Asked:
    """Questions of three data sets in equal parts, or the shipped ones."""
    data = Path(os.environ.get("MULTIHOP_SHARED", "../shared")) / "data"
    names = ("hotpotqa", "2wikimultihopqa", "musique")
    if not data.is_dir():
        return shipped(stack)[:count]
    sets = [asked(stack, data / f"{n}_corpus.jsonl", data / f"{n}_dev.jsonl") for n in names]
    return [each for row in zip(*sets, strict=False) for each in row][:count]


def changed(one: Sequence[Trace], other: Sequence[Trace]) -> int:
    """Questions whose chains or answers differ in a byte."""

    def said(run: Trace) -> list[str]:
        return [t.text for t in run.thoughts] + [run.answer.text if run.answer else ""]

    return sum(said(a) != said(b) for a, b in zip(one, other, strict=True))


def fusing(fused: Sequence[Trace], alone: Sequence[Trace]) -> list[Row]:
    count = len(fused)
    equal = count - changed(fused, alone)
    calls = [call for one in fused for call in one.calls]
    read_on = sum(call.fused for call in calls)
    touched = sum(any(call.fused for call in one.calls) for one in fused)
    return [
        Row("sameness", "LM calls read on from an open stream", read_on, f"of {len(calls)} calls"),
        Row("sameness", "questions with such calls", touched, f"of {count} questions"),
        Row(
            *("sameness", "chains and answers equal with and without fusing", equal, "questions"),
            *(f"all {count}", equal / count),
        ),
    ]


def exactness(one: Sequence[Trace], other: Sequence[Trace]) -> list[Row]:
    equal = len(one) - changed(one, other)
    return [
        Row(
            *("sameness", "chains and answers equal in two reproducible runs", equal, "questions"),
            *(f"all {len(one)}", equal / len(one), ">= 1.00"),
        )
    ]


async def sameness(questions: Asked) -> list[Row]:
    fused = await run(questions, LocalLM(window=4096), **LEAN)
    alone = await run(questions, LocalLM(window=4096), fuse=False, **LEAN)
    exact = [
        await run(questions, LocalLM(window=2048, reproducible=True), **BARE) for _ in range(2)
    ]
    return [*fusing(fused, alone), *exactness(*exact)]


def rows(full: bool) -> list[Row]:
    with ExitStack() as stack:
        return asyncio.run(sameness(dev(stack, 200) if full else shipped(stack)[:6]))


if __name__ == "__main__":
    main(rows)
