"""What the embedded model spends on a question, against evaluating every prompt anew.

    python benchmarks/embedded.py [--full]

Counts are exact; seconds depend on what else the machine does. With --full also: how many
chains change when texts are read on from open streams, and whether `reproducible` runs are
equal, over 200 dev questions where MULTIHOP_SHARED is there, else over the shipped ones.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path

from table import Row, main

from multihop.corpus import Reader
from multihop.datasets import QuestionFile
from multihop.lms.layers import layered
from multihop.lms.local import LocalLM
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index
from multihop.strategies import make
from multihop.text import Question
from multihop.trace import Trace, trace

Asked = list[tuple[Question, BM25]]

LEAN = {"k": 2, "max_passages": 4, "max_steps": 5, "words": 40, "shots": 1, "max_tokens": 60}
"""Short prompts and a low cap, which many chains reach."""

BARE = {
    **{"k": 1, "max_passages": 2, "max_steps": 2, "words": 30, "shots": 0, "max_tokens": 24},
    "reader": "none",
}
"""Prompts that are evaluated anew at every call, 200 questions twice."""


def shipped(stack: ExitStack) -> Asked:
    data = stack.enter_context(as_file(files("multihop") / "data"))
    return asked(stack, data / "corpus.jsonl", data / "questions.jsonl")


def dev(stack: ExitStack, count: int) -> Asked:
    """Questions of three data sets in equal parts, or the shipped ones."""
    data = Path(os.environ.get("MULTIHOP_SHARED", "../shared")) / "data"
    names = ("hotpotqa", "2wikimultihopqa", "musique")
    if not data.is_dir():
        return shipped(stack)[:count]
    sets = [asked(stack, data / f"{n}_corpus.jsonl", data / f"{n}_dev.jsonl") for n in names]
    return [each for row in zip(*sets, strict=False) for each in row][:count]


def asked(stack: ExitStack, corpus: Path, questions: Path) -> Asked:
    index = stack.enter_context(tempfile.TemporaryDirectory())
    build_index(Reader([corpus]), index)
    retriever = BM25(index)
    return [(question, retriever) for question in QuestionFile(questions)]


async def run(
    questions: Asked, lm: LocalLM, *, fuse: bool = True, **settings: object
) -> list[Trace]:
    """One question after the other, through the layers that users get."""
    lean = layered(lm, fuse=fuse)
    traces = []
    for number, (question, retriever) in enumerate(questions):
        if number % 20 == 0:
            print(f"embedded: {number} of {len(questions)} questions", file=sys.stderr)
        strategy = make("ircot", lm=lean, retriever=retriever, **settings)
        traces.append(await trace(strategy, question))
    await lean.aclose()
    return traces


async def naive_tokens(lm: LocalLM, traces: Sequence[Trace]) -> int:
    """Prompt tokens if every call were sent and evaluated from its beginning."""
    return sum([len(await lm.token_ids(c.prompt)) for t in traces for c in t.calls])


async def prefixes(questions: Asked, shots: int, goal: str) -> list[Row]:
    lm = LocalLM(window=8192)
    began = time.perf_counter()
    traces = await run(questions, lm, shots=shots)
    seconds = (time.perf_counter() - began) / len(questions)
    naive = await naive_tokens(lm, traces)
    await lm.aclose()
    calls = [call for one in traces for call in one.calls]
    evaluated = sum((c.tokens.prompt or 0) - (c.tokens.cached or 0) for c in calls)
    written = sum(c.tokens.generated or 0 for c in calls)
    named = f"{shots} demonstrations, {len(questions)} questions"
    fused = sum(call.fused for call in calls)
    return [
        Row(
            *("embedded", f"{named}: prompt tokens evaluated", evaluated, "tokens"),
            *(f"every prompt anew ({naive:,})", evaluated / naive, goal),
        ),
        Row("embedded", f"{named}: tokens written a question", written / len(traces), "tokens"),
        Row(
            *("embedded", f"{named}: LM calls sent", len(calls) - fused, "calls"),
            *("calls of the method", 1 - fused / len(calls)),
        ),
        Row("embedded", f"{named}: time a question, {lm.threads} threads", seconds, "s"),
    ]


async def against_naive(questions: Asked) -> list[Row]:
    seconds = {}
    for exact in (True, False):
        lm = LocalLM(reproducible=exact, keep=False)
        began = time.perf_counter()
        await run(questions, lm)
        seconds[exact] = (time.perf_counter() - began) / len(questions)
    return [
        Row(
            *("embedded", f"time a question, {len(questions)} questions", seconds[False], "s"),
            *("nothing reused", seconds[False] / seconds[True]),
        )
    ]


def changed(one: Sequence[Trace], other: Sequence[Trace]) -> int:
    """Questions whose chains or answers differ in a byte."""

    def said(run: Trace) -> list[str]:
        return [t.text for t in run.thoughts] + [run.answer.text if run.answer else ""]

    return sum(said(a) != said(b) for a, b in zip(one, other, strict=True))


async def sameness(questions: Asked) -> list[Row]:
    count = len(questions)
    fused = await run(questions, LocalLM(window=4096), **LEAN)
    alone = await run(questions, LocalLM(window=4096), fuse=False, **LEAN)
    calls = [call for one in fused for call in one.calls]
    touched = sum(any(call.fused for call in one.calls) for one in fused)
    exact = [
        await run(questions, LocalLM(window=2048, reproducible=True), **BARE) for _ in range(2)
    ]
    return [
        Row(
            "embedded",
            f"chains equal with and without fusing, {count} questions, {touched} with fused calls",
            *((count - changed(fused, alone)), "questions", "all"),
            (count - changed(fused, alone)) / count,
        ),
        Row(
            *("embedded", "calls read on from an open stream", sum(c.fused for c in calls)),
            *("calls", "all", sum(c.fused for c in calls) / len(calls)),
        ),
        Row(
            *("embedded", f"chains equal in two reproducible runs, {count} questions"),
            *(count - changed(*exact), "questions", "all", 1 - changed(*exact) / count),
            ">= 1.0",
        ),
    ]


def rows(full: bool) -> list[Row]:
    with ExitStack() as stack:
        questions = shipped(stack)
        if not full:
            return asyncio.run(prefixes(questions[:10], 3, "<= 0.25"))
        return [
            *asyncio.run(prefixes(questions[:50], 3, "<= 0.25")),
            *asyncio.run(prefixes(questions[:50], 12, "<= 0.15")),
            *asyncio.run(against_naive(questions[:5])),
            *asyncio.run(sameness(dev(stack, 200))),
        ]


if __name__ == "__main__":
    main(rows)
