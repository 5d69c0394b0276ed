"""Own CPU time per LM call: everything but the model, with 15 paragraphs in the prompt.

A scripted LM streams a chain of six sentences by the token, of which each call reads one; the
default preset asks, through all layers but the cache. CPU seconds of the whole process, threads
included, over LM calls.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from table import Row, main

from multihop.evaluation import evaluate
from multihop.lms.layers import layered
from multihop.retrievers.base import Retriever
from multihop.retrievers.batching import BatchedRetriever
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index
from multihop.strategies import make
from multihop.testing import ScriptedLM, ScriptedRetriever
from multihop.text import Passage, Question

PARAGRAPHS, WORDS, TOKEN = 15, 90, 4
CHAIN = [
    f"The {nth} of the builders came from a town in the north of the old kingdom, as Mr. Hill says."
    for nth in ("first", "second", "third", "fourth", "fifth")
]
CHAIN.append("So the answer is: a town in the north.")


def corpus(size: int) -> list[Passage]:
    """Passages of words with a natural distribution."""
    draw = random.Random(7)
    words = [f"w{number}" for number in range(5000)]
    weights = [1 / (rank + 10) for rank in range(5000)]
    return [
        Passage(f"p{n}", f"Page {n}", " ".join(draw.choices(words, weights, k=WORDS)))
        for n in range(size)
    ]


class Asked:
    """So many questions, made as they are read."""

    def __init__(self, count: int, passages: list[Passage]) -> None:
        self.count, self.passages = count, passages

    def __iter__(self) -> Iterator[Question]:
        for number in range(self.count):
            words = self.passages[number % len(self.passages)].text.split()[:20]
            yield Question(f"Question {number}: {' '.join(words)}?", id=str(number))


async def per_call(retriever: Retriever, count: int, passages: list[Passage]) -> float:
    """CPU milliseconds per LM call."""
    calls = 0

    def respond(request) -> str:
        nonlocal calls
        calls += 1
        chain = request.prompt.text.rpartition("\nA:")[2]
        return " ".join(CHAIN[chain.count(".") - chain.count("Mr.") :])

    lm = layered(ScriptedLM(respond=respond, pieces=TOKEN, keep=False))
    strategy = make("ircot", lm=lm, retriever=retriever, k=PARAGRAPHS)
    with tempfile.TemporaryDirectory() as folder:
        await evaluate(Asked(2, passages), strategy, Path(folder) / "warm")
        calls, began = 0, time.process_time()
        await evaluate(Asked(count, passages), strategy, Path(folder) / "run", concurrency=16)
        return (time.process_time() - began) / calls * 1e3


def rows(full: bool) -> list[Row]:
    count = 1000 if full else 100
    passages = corpus(20_000 if full else 2_000)
    shown = {q.text: passages[:PARAGRAPHS] for q in Asked(count, passages)}
    scripted = asyncio.run(per_call(ScriptedRetriever(shown), count, passages))
    with tempfile.TemporaryDirectory() as folder:
        build_index(passages, Path(folder) / "index")
        bm25 = BatchedRetriever(BM25(Path(folder) / "index"))
        searching = asyncio.run(per_call(bm25, count, passages))
    what = f"own CPU a call, {PARAGRAPHS} paragraphs, traces on disk"
    return [
        Row("own time", f"{what}, scripted retriever", scripted, "ms", goal="<= 2.0"),
        Row("own time", f"{what}, BM25 over {len(passages):,} passages", searching, "ms"),
    ]


if __name__ == "__main__":
    main(rows)
