"""`multihop demo`: two hops over the shipped corpus, with the embedded model."""

import asyncio
import hashlib
from importlib.resources import as_file, files
from pathlib import Path

import click

from multihop import names, places, runs
from multihop.cli import adapters, parts
from multihop.cli.render import Drawing, terminal, visible
from multihop.corpus import Reader
from multihop.datasets import QuestionFile
from multihop.errors import CorpusError
from multihop.lms.adapters import Adapter
from multihop.lms.layers import layered
from multihop.retrievers.bm25 import BM25
from multihop.retrievers.bm25_index import build_index
from multihop.text import Question
from multihop.trace import Trace, trace

DATA = files("multihop") / "data"

QUESTION = "bridge-32"
"""Asked unless told otherwise."""


@click.command()
@click.argument("question", required=False, default=QUESTION, metavar="[ID]")
@click.option("--list", "list_them", is_flag=True, help="List the shipped questions.")
@click.option("--prompts", is_flag=True, help="Show each prompt and raw output too.")
@adapters.option
def demo(*, question: str, list_them: bool, prompts: bool, adapter: str | None) -> int:
    """Ask the shipped corpus a two-hop question: real BM25, real model, nothing scripted.

    ID names one of the shipped questions. The first call builds the index, under the user's
    cache folder.
    """
    known = shipped_questions()
    if list_them:
        for each in known.values():
            click.echo(f"{each.id:<14} {each.text}")
        return 0
    asked = known[names.known("shipped question", question, known)]
    index = shipped_index()
    chosen = adapters.choose(adapter, adapters.Wishes())
    named = f" --adapter {adapter}" if adapter else ""
    click.echo(f'The same as: multihop ask "{asked.text}" --index {index}{named}\n', err=True)
    result = asyncio.run(_ask(asked, index, chosen, prompts=prompts))
    answer = result.answer.text if result.answer else ""
    click.echo(visible(answer))
    runs.append(runs.asks(), result)
    click.echo(
        f"\nGold answer: {' | '.join(asked.answers)}. The embedded model has 135 million "
        "parameters: it shows how the method works, not how well.\n"
        "Name a larger one with --model openai:MODEL@URL or local:FILE.gguf.",
        err=True,
    )
    return 0


async def _ask(
    question: Question, index: Path, adapter: Adapter | str | None, *, prompts: bool
) -> Trace:
    drawing = Drawing(terminal(), prompts=prompts)
    lm = layered(parts.open_lm(names.DEFAULT_LM, adapter=adapter))
    retriever = BM25(index)
    try:
        strategy = names.open_strategy("ircot", retriever=retriever, lm=lm, adapter=adapter)
        named = [adapter.name] if isinstance(adapter, Adapter) else []
        about = [strategy.name, lm.name, *named, f"{len(retriever)} passages"]
        drawing.question(question, " · ".join(about))
        result = await trace(strategy, question, drawing.step)
    finally:
        await retriever.aclose()
        await lm.aclose()
    if result.answer:
        drawing.evidence(result.answer)
    drawing.cost(result)
    return result


def shipped_index() -> Path:
    """The index over the shipped corpus; built when it is not there in this very form."""
    with as_file(DATA / "corpus.jsonl") as corpus:
        digest = hashlib.sha256(corpus.read_bytes()).hexdigest()[:12]
        index = places.cache() / f"demo-{digest}"
        try:
            BM25(index)
        except CorpusError:  # not there yet, or of an older format
            click.echo(f"Indexing the shipped corpus into {index}", err=True)
            index.parent.mkdir(parents=True, exist_ok=True)
            build_index(Reader([corpus]), index)
    return index


def shipped_questions() -> dict[str, Question]:
    """The shipped questions by id."""
    with as_file(DATA / "questions.jsonl") as path:
        return {question.id: question for question in QuestionFile(path)}
