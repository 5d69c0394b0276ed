"""`multihop train router`: which strategy a question needs, learned from runs."""

from collections.abc import Mapping
from pathlib import Path

import click

from multihop.cli.render import visible
from multihop.errors import BadInput
from multihop.strategies.router import ROUTES
from multihop.text import Json
from multihop.training import router as training


@click.command()
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--into",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the router is written, as JSON.",
)
@click.option(
    "--unanswered",
    type=click.Choice([*ROUTES, "none"]),
    default="ircot",
    show_default=True,
    help="Label of questions that no strategy answered right; none leaves them out.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the cross-validation.")
def router(*, folders: tuple[Path, ...], into: Path, unanswered: str, seed: int) -> None:
    """Train Adaptive-RAG's router on RUN folders of nor, oner and ircot.

    The runs must be of training questions: of `multihop eval TRAIN --strategy nor,oner,ircot`.
    A question's label is the cheapest strategy that answered it right.
    """
    if into.exists():
        raise BadInput(f"{into}: exists already. Name another file with --into.")
    labels = training.label(folders, None if unanswered == "none" else unanswered)
    made = training.train(labels, seed)
    made.save(into)
    click.echo(table(made.made))
    click.echo(f"Router: {visible(str(into))}", err=True)


def table(told: Mapping[str, Json]) -> str:
    """How a router chose among questions that it had not seen, as a person reads it."""
    rows = told["confusion"]
    assert isinstance(rows, dict)
    names = list(rows)
    width = max(len("needed"), *(len(name) for name in names))
    lines = ["needed".ljust(width) + "".join(f"  {name:>6}" for name in names) + "   <- chosen"]
    for name, row in rows.items():
        assert isinstance(row, dict)
        lines.append(name.ljust(width) + "".join(f"  {row[other]!s:>6}" for other in names))
    lines.append(
        f"accuracy {_percent(told['accuracy'])} over {told['folds']} folds; always "
        f"{told['always']}: {_percent(told['accuracy_always'])}. "
        f"{told['unanswered']} of {told['questions']} questions were answered right by none."
    )
    return "\n".join(lines)


def _percent(share: Json) -> str:
    assert isinstance(share, (int, float))
    return f"{100 * share:.1f} %"
