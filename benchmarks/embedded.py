"""What the embedded model spends on a question, against evaluating every prompt anew.

    python benchmarks/embedded.py [--full]

Counts are exact; seconds depend on what else the machine does.
"""

import asyncio
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


def shipped(stack: ExitStack) -> Asked:
    data = stack.enter_context(as_file(files("multihop") / "data"))
    return asked(stack, data / "corpus.jsonl", data / "questions.jsonl")


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


def rows(full: bool) -> list[Row]:
    with ExitStack() as stack:
        questions = shipped(stack)
        if not full:
            return asyncio.run(prefixes(questions[:10], 3, "<= 0.25"))
        return [
            *asyncio.run(prefixes(questions[:50], 3, "<= 0.25")),
            *asyncio.run(prefixes(questions[:50], 12, "<= 0.15")),
            *asyncio.run(against_naive(questions[:5])),
        ]


if __name__ == "__main__":
    main(rows)
