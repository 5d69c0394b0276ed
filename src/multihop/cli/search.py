"""`multihop search`: what a retriever finds for a query."""

import asyncio
import json

import click

from multihop import names
from multihop.cli import parts
from multihop.cli.render import snippet, visible
from multihop.errors import BadInput
from multihop.retrievers.base import calls_made, warnings_of
from multihop.text import Hit, Query

WIDTH = 300
"""Characters of a passage that are shown."""


@click.command()
@click.argument("query")
@click.option(
    "--index",
    metavar="DIR",
    envvar="MULTIHOP_INDEX",
    show_envvar=True,
    help="BM25 index to search; short for --retriever bm25:DIR.",
)
@click.option("--retriever", metavar="KIND:TARGET", help="What to search with.")
@click.option(
    "--retriever-option",
    "retriever_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the retriever's kind, as depth=50. May repeat.",
)
@click.option("-k", default=10, show_default=True, metavar="N", help="Most passages to show.")
@click.option(
    "--form",
    type=click.Choice(["paper", "official", "text"]),
    help="How BM25 is asked. paper, the default: text and title; official: as the released "
    "IRCoT; text: the text alone.",
)
@click.option(
    "--title",
    "titles",
    multiple=True,
    metavar="TITLE",
    help="Search in this page only; may be repeated.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only passages whose metadata say this, as page=3; may be repeated: values of one field "
    "are alternatives, different fields must all agree.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a passage.")
def search(
    *,
    query: str,
    index: str | None,
    retriever: str | None,
    retriever_options: tuple[str, ...],
    k: int,
    form: str | None,
    titles: tuple[str, ...],
    where: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show the passages that a retriever finds for QUERY, best first."""
    if not query.strip():
        raise BadInput("The query is empty. Search for something.")
    name = parts.one_retriever(index, retriever)
    if name is None:
        raise BadInput(
            "Say where to search: --index DIR or --retriever KIND:TARGET, or set MULTIHOP_INDEX."
        )
    options = parts.pairs("--retriever-option", retriever_options)
    if form:
        options["form"] = form
    asked = Query(query, titles or None, where=tuple(map(_condition, where)) or None)
    hits = asyncio.run(_search(asked, name, options, k))
    for warning in warnings_of(hits):
        click.echo(f"multihop: {visible(warning)}", err=True)
    if calls := calls_made(hits):
        click.echo(f"multihop: LM calls: {len(calls)}", err=True)
    if not hits:
        click.echo("No passage matches.", err=True)
    for rank, hit in enumerate(hits, 1):
        click.echo(_record(rank, hit) if as_json else _lines(rank, hit))
    return 0


def _condition(text: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not (field and equals):
        raise BadInput(f"--where {text}: expected FIELD=VALUE, as page=3.")
    return field, value


async def _search(query: Query, name: str, options: dict[str, str], k: int) -> list[Hit]:
    retriever = names.open_retriever(name, options)
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
            **({"place": passage.place} if passage.place else {}),
        }
    )


def _lines(rank: int, hit: Hit) -> str:
    passage = hit.passage
    head = f"{rank:>3}  {hit.score:8.4f}  {visible(passage.title) or '(no title)'}"
    place = passage.place and f"\n     {visible(passage.place)}"
    return f"{head}  [{visible(passage.id)}]{place}\n     {snippet(passage.text, WIDTH)}"
