"""What the loop spends, against the released code's policy on the same model.

The released loop writes a whole chain at every step, keeps one sentence, asks anew each time and
works on one question after another. It is written out here once more, plainly, over the same
rules and prompts; both must come to the same chains, queries, passages and answers.

The model writes a known chain token by token: its text is a function of the text before it, so
that going on with a stream and asking again are the same by construction. Chains are those of
the shipped demonstrations, and the officially annotated ones where MULTIHOP_SHARED is there.

    python benchmarks/loop.py [--full]
"""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from table import Row, main

from multihop.corpus import Reader
from multihop.lms.base import Request, complete
from multihop.lms.layers import layered
from multihop.prompts import layout
from multihop.prompts.sentences import first_sentence
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index
from multihop.strategies import make
from multihop.strategies.ircot import IRCoT
from multihop.strategies.rules import Preset, preset
from multihop.strategies.writing import Demonstrations
from multihop.testing import NextWordLM
from multihop.text import Passage, Query, Question
from multihop.trace import Trace, trace

TOKEN = re.compile(r"\s*(?:\w{1,6}|[^\w\s])")
"""A token of the scripted model: up to six letters with the blanks before, or a mark."""

K = 8
"""Two retrievals reach the cap of 15 passages."""


@dataclass(frozen=True)
class Set:
    """Questions with their chains, and an index that holds their passages."""

    name: str
    chains: dict[str, str]
    index: Path


@dataclass
class Run:
    """What must be equal between two ways of running a question."""

    thoughts: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    answer: str = ""


def chain_model(chains: dict[str, str]) -> NextWordLM:
    """Writes on with the chain of the question that stands last in the prompt."""

    def next_word(text: str) -> str:
        asked, _, written = text.rpartition("\nA:")
        question = asked.rpartition("\nQ: ")[2].rpartition("step-by-step.\n")[2]
        chain = " " + chains[question.strip()]
        if not chain.startswith(written):
            return ""
        found = TOKEN.match(chain, len(written))
        return found.group() if found else ""

    return NextWordLM(next_word)


async def released(
    question: Question, lm: NextWordLM, retriever: BM25, rules: Preset, strategy: IRCoT
) -> tuple[Run, int, int]:
    """The released policy; also the tokens written by the reason steps, and all calls."""
    run, collected, thoughts = Run(), list[Passage](), list[str]()
    before, calls = lm.written, len(lm.requests)
    while True:
        query = rules.query(question.text, thoughts)
        if query:
            run.queries.append(query)
            [hits] = await retriever.search([Query(query)], K)
            for hit in hits:
                long = (
                    rules.longest is not None and len(hit.passage.text.split(" ")) > rules.longest
                )
                full = len(collected) >= rules.max_passages
                if not long and not full and not rules.duplicate(hit.passage, collected):
                    collected.append(hit.passage)
        # The whole chain is written; its first sentence is kept.
        request = Request(
            await prompt_of(strategy, question, collected, thoughts), rules.generation, ("\n",)
        )
        reply = await complete(lm, request)
        sentence = first_sentence(reply.text, rules.split)
        thoughts.append(sentence if rules.official_answers else sentence.strip())
        if rules.stop(thoughts, rules.max_steps):
            break
    reasoned = lm.written - before
    answer = await strategy.writer.read(question, collected, "answered")
    run.thoughts, run.passages = thoughts, [p.id for p in collected]
    run.answer = answer.text
    return run, reasoned, len(lm.requests) - calls


async def prompt_of(
    strategy: IRCoT, question: Question, passages: Sequence[Passage], thoughts: Sequence[str]
) -> layout.Prompt:
    """The prompt that the strategy's own writer would send."""
    asked = NextWordLM(lambda _: "")
    writer = replace(strategy.writer, lm=asked)
    await writer.next_sentence(question, passages, thoughts)
    return asked.requests[0].prompt


def substance(run: Trace) -> Run:
    return Run(
        [thought.text for thought in run.thoughts],
        [search.query for search in run.searches if search.query],
        list(run.collected),
        run.answer.text if run.answer else "",
    )


@dataclass
class Tally:
    """Sums over the questions of one set."""

    sentences: int = 0
    kept: int = 0
    released_tokens: int = 0
    released_calls: int = 0
    tokens: int = 0
    sent: int = 0
    capped: int = 0
    capped_released: int = 0
    capped_sent: int = 0


async def compare(data: Set, rules: Preset) -> Tally:
    """Run every question both ways and make sure that they come to the same."""
    retriever = BM25(data.index)
    plain, inner = chain_model(data.chains), chain_model(data.chains)
    lean = layered(inner)
    settings = {"retriever": retriever, "k": K, "demonstrations": Demonstrations(), "reader": "cot"}
    slow = make("ircot", lm=plain, preset=rules, stop_early=False, **settings)
    fast = make("ircot", lm=lean, preset=rules, stop_early=True, **settings)
    tally = Tally()
    for text in data.chains:
        question = Question(text)
        one, tokens, calls = await released(question, plain, retriever, rules, slow)
        before = inner.written, len(inner.requests)
        result = await trace(fast, question)
        if substance(result) != one:
            raise SystemExit(f"{data.name}, {rules.name}: the traces differ for {text!r}.")
        sent = len(inner.requests) - before[1]
        tally.sentences += len(one.thoughts)
        tally.kept += sum(len(TOKEN.findall(thought)) for thought in one.thoughts)
        tally.released_tokens += tokens
        tally.released_calls += calls
        tally.tokens += inner.written - before[0] - (result.calls[-1].tokens.generated or 0)
        tally.sent += sent
        searches = result.searches
        if len(searches) > 2 and len(searches[1].collected) == rules.max_passages:
            tally.capped += 1
            tally.capped_released += calls
            tally.capped_sent += sent
    await lean.aclose()
    await retriever.aclose()
    return tally


def reported(rules: str, name: str, data: Set, tally: Tally) -> list[Row]:
    named = f"{rules}, {name}, {len(data.chains)} questions"
    wasted = tally.released_tokens / tally.kept
    # One token after a sentence tells that it is over: short sentences cannot reach 1.10.
    limit = 1 + tally.sentences / tally.kept
    return [
        Row(
            *("loop", f"{named}: reasoning tokens written", tally.tokens, "tokens"),
            f"those of the sentences kept (released policy: {wasted:.2f}; limit: {limit:.2f})",
            *(tally.tokens / tally.kept, f"<= {max(1.10, limit):.2f}"),
        ),
        Row(
            *("loop", f"{named}: LM calls sent", tally.sent, "calls"),
            *("released policy", tally.sent / tally.released_calls),
        ),
    ]


def sets(stack: ExitStack) -> Iterator[Set]:
    """The shipped questions with chains, and the official ones that are there."""
    own = stack.enter_context(as_file(files("multihop") / "data"))
    data = Path(os.environ.get("MULTIHOP_SHARED", "../shared")) / "data"
    for name, chains, corpus in [
        ("shipped", own / "demonstrations.jsonl", own / "corpus.jsonl"),
        *(
            (name, data / f"{name}_demonstrations.jsonl", data / f"{name}_corpus.jsonl")
            for name in ("hotpotqa", "2wikimultihopqa", "musique")
        ),
    ]:
        if not chains.is_file():
            continue
        lines = [json.loads(line) for line in chains.read_text(encoding="utf-8").splitlines()]
        index = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        build_index(Reader([corpus]), index)
        yield Set(name, {line["question"].strip(): chain(line) for line in lines}, index)


def chain(line: dict[str, Any]) -> str:
    if "cot" in line:
        return str(line["cot"]).strip()
    return " ".join([*line["chain"], f"{layout.ANSWER} {line['answer']}."])


def rows(full: bool) -> list[Row]:
    names = ["default", *(["official"] if find_spec("spacy") else []), *(["paper"] if full else [])]
    found = []
    with ExitStack() as stack:
        several = list(sets(stack))
        for name in names:
            tallies = [asyncio.run(compare(data, preset(name))) for data in several]
            for data, tally in zip(several, tallies, strict=True):
                found += reported(name, data.name, data, tally)
            capped = sum(tally.capped for tally in tallies)
            sent = sum(tally.capped_sent for tally in tallies)
            if capped:
                found.append(
                    Row(
                        "loop",
                        f"{name}: LM calls sent where two searches reach the cap ({capped})",
                        *(sent, "calls", "released policy"),
                        *(sent / sum(tally.capped_released for tally in tallies), "<= 0.8"),
                    )
                )
    return found


if __name__ == "__main__":
    main(rows)
