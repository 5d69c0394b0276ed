"""`multihop train check`, `export` and `scores`: what is done with a trained adapter."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import click

from multihop import names
from multihop.cli.demo import shipped_index, shipped_questions
from multihop.cli.render import visible
from multihop.errors import BadInput
from multihop.lms.adapters import Adapter, find_adapter
from multihop.lms.gguf import DEFAULT, find_model
from multihop.lms.layers import layered
from multihop.retrievers.bm25 import BM25
from multihop.text import json_object
from multihop.trace import trace
from multihop.training import agreement, card

SHOWN = 10
"""Differences that are listed."""


@click.command()
@click.argument("adapter", metavar="ADAPTER")
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='Prompts to go on with: lines of JSON with a field "prompt", or traces. By default those '
    "of the loop over shipped questions.",
)
@click.option(
    "--questions",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    metavar="N",
    help="Shipped questions to take prompts from.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    metavar="N",
    help="Most prompts.",
)
@click.option(
    "--model",
    default=DEFAULT,
    show_default=True,
    metavar="NAME",
    help="The base model, as a .gguf file or as `local:` takes it.",
)
@click.option(
    "--near",
    type=click.FloatRange(0),
    default=agreement.NEAR,
    show_default=True,
    metavar="NATS",
    help="Lead of a token that rounding may turn.",
)
def check(
    *, adapter: str, prompts: Path | None, questions: int, limit: int, model: str, near: float
) -> int:
    """Compare what ADAPTER writes in llama.cpp and in transformers, token by token.

    ADAPTER is a packaged adapter or a folder; "none" compares the base model. Exit code 1 when a
    greedy continuation differs by more than a near tie.
    """
    found = None if adapter == "none" else find_adapter(adapter)
    if prompts:
        texts = agreement.read_prompts(prompts)
    else:
        click.echo(f"Taking prompts from {questions} shipped questions ...", err=True)
        texts = asyncio.run(_asked(found, model, questions))
    texts = texts[:limit]
    told = asyncio.run(
        agreement.greedy_agreement(found, texts, model=model, near=near, tell=_every(len(texts)))
    )
    for each in told.differences[:SHOWN]:
        kind = "near tie" if each.margin < near else "DIFFERS"
        click.echo(
            f"{kind}: prompt {each.prompt}, token {each.position}: llama.cpp {each.local!r}, "
            f"transformers {each.reference!r}, which leads by {each.margin:.3f} nats",
            err=True,
        )
    if told.unknown:
        click.echo(f"Not compared: {told.unknown}; their tokens are not known.", err=True)
    click.echo(
        f"{told.equal} of {told.prompts} continuations are equal; {len(told.differences)} of "
        f"{told.tokens} tokens differ, {told.near_ties} of them near ties (below {near:g} nats). "
        f"Log-probabilities differ by {told.noise:.4f} nats on average, {told.largest:.3f} at most."
    )
    return 1 if told.real or not told.prompts else 0


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--model",
    default=DEFAULT,
    show_default=True,
    metavar="NAME",
    help="The base model: a .gguf file, or a folder with config.json.",
)
def export(*, folder: Path, model: str) -> int:
    """Write adapter.gguf, llama.cpp's form of the adapter in FOLDER, and put it on its card."""
    weights = Path(model) if Path(model).is_dir() else find_model(model)
    adapter = card.with_gguf(folder, weights)
    click.echo(visible(str(adapter.folder)))
    return 0


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("scores", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def scores(*, folder: Path, scores: Path) -> int:
    """Put the results in SCORES, a JSON object, on the card of the adapter in FOLDER.

    Its values are numbers or texts, or objects of them: then it is a table with a row for each.
    """
    try:
        text = scores.read_text(encoding="utf-8")
    except UnicodeDecodeError as broken:
        raise BadInput(f"{scores}: not UTF-8 ({broken}).") from None
    adapter = card.with_scores(folder, json_object(text, str(scores)))
    click.echo(visible(json.dumps(dict(adapter.card.scores))))
    return 0


async def _asked(adapter: Adapter | None, model: str, number: int) -> list[str]:
    """The prompts that the loop sends for shipped questions."""
    lm = layered(names.open_lm(f"local:{model}", adapter=adapter))
    retriever = BM25(shipped_index())
    try:
        strategy = names.open_strategy("ircot", retriever=retriever, lm=lm, adapter=adapter)
        chosen = list(shipped_questions().values())[:number]
        traces = [await trace(strategy, question) for question in chosen]
    finally:
        await retriever.aclose()
        await lm.aclose()
    return list(dict.fromkeys(call.prompt for each in traces for call in each.calls))


def _every(total: int) -> Callable[[int], None]:
    def tell(done: int) -> None:
        if done % 10 == 0 or done == total:
            click.echo(f"{done} of {total} prompts", err=True)

    return tell
