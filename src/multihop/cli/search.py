"""`multihop search`: what BM25 finds for a query."""

import asyncio
import json
from pathlib import Path
from typing import get_args

import click

from multihop.cli.render import snippet, visible
from multihop.errors import BadInput
from multihop.retrievers.bm25 import BM25, Form
from multihop.text import Hit, Query

WIDTH = 300
"""Characters of a passage that are shown."""


@click.command()
@click.argument("query")
@click.option(
    "--index",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="An index made by `multihop index`.",
)
@click.option("-k", default=10, show_default=True, metavar="N", help="Most passages to show.")
@click.option(
    "--form",
    type=click.Choice(get_args(Form)),
    default="paper",
    show_default=True,
    help="paper: text and title; official: as the released IRCoT; text: the text alone.",
)
@click.option(
    "--title",
    "titles",
    multiple=True,
    metavar="TITLE",
    help="Search in this page only; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a passage.")
def search(
    *, query: str, index: Path, k: int, form: Form, titles: tuple[str, ...], as_json: bool
) -> int:
    """Show the passages that BM25 finds for QUERY, best first."""
    if not query.strip():
        raise BadInput("The query is empty. Search for something.")
    hits = asyncio.run(_search(Query(query, titles or None), index, k, form))
    if not hits:
        click.echo("No passage matches.", err=True)
    for rank, hit in enumerate(hits, 1):
        click.echo(_record(rank, hit) if as_json else _lines(rank, hit))
    return 0


async def _search(query: Query, index: Path, k: int, form: Form) -> list[Hit]:
    retriever = BM25(index, form)
    try:
        [hits] = await retriever.search([query], k)
    finally:
        await retriever.aclose()
    return hits


def _record(rank: int, hit: Hit) -> str:
    passage = hit.passage
    return json.dumps(
        {
            "rank": rank,
            "score": hit.score,
            "id": passage.id,
            "title": passage.title,
            "text": passage.text,
            "metadata": dict(passage.metadata),
        }
    )


def _lines(rank: int, hit: Hit) -> str:
    passage = hit.passage
    head = f"{rank:>3}  {hit.score:8.4f}  {visible(passage.title) or '(no title)'}"
    return f"{head}  [{visible(passage.id)}]\n     {snippet(passage.text, WIDTH)}"
