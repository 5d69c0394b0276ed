"""`multihop compare`: runs side by side on the same questions, with tests and diagnoses."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from multihop import files, names, runs
from multihop.cli import report
from multihop.cli.render import visible
from multihop.errors import BadInput

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--against",
    metavar="RUN",
    help="The run that all others are compared with, by strategy or folder. By default the first.",
)
@click.option("--html", type=FILE, metavar="FILE", help="Write a report with plots and traces.")
@click.option("--csv", "table", type=FILE, metavar="FILE", help="Write the figures as CSV.")
@click.option(
    "--questions",
    type=FILE,
    metavar="FILE",
    help="Write each run's scores, answer and diagnosis of each question as CSV.",
)
@click.option(
    "--traces",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    metavar="N",
    help="Most questions whose traces the HTML report shows in full.",
)
@click.option(
    "--samples",
    type=click.IntRange(100),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Resamples of the bootstrap.",
)
@report.options
def compare(
    *,
    folders: tuple[Path, ...],
    against: str | None,
    html: Path | None,
    table: Path | None,
    questions: Path | None,
    traces: int,
    samples: int,
    form: report.Form,
    more: tuple[str, ...],
) -> None:
    """Compare RUN folders on the questions that all of them have finished; no model is run.

    A RUN may hold several strategies. Differences are question by question: paired bootstrap for
    means, exact McNemar for scores of 0 and 1, p-values corrected by Holm over all comparisons.
    Each wrong answer is sorted by its trace into one diagnosis (docs/compare.md).
    """
    from multihop.comparison import compare as compare_runs  # noqa: PLC0415 - help needs none of it
    from multihop.comparison import page, tables  # noqa: PLC0415

    for path in (html, table, questions):
        if path and not path.parent.is_dir():
            raise BadInput(f"{path}: its folder does not exist. Make it, or name another file.")
    rows = {name: names.open_metric(name) for name in more}
    every = [run for folder in folders for run in runs.folders(folder)]
    found = compare_runs(every, against=against, more=rows, samples=samples)
    if form == "json":
        click.echo(json.dumps(tables.to_dict(found), indent=1))
    elif form == "markdown":
        click.echo(tables.markdown(found))
    else:
        _draw(tables.HEADS, tables.rows(found), left=2)
        click.echo()
        _draw(("diagnosis", *(run.name for run in found.runs)), tables.wrong(found), left=1)
        click.echo()
        click.echo(visible(tables.counted(found)))
    if table:
        files.write(table, tables.measured_csv(found))
    if questions:
        files.write(questions, tables.questions_csv(found))
    if html:
        shown = page.write(found, html, traces=traces)
        click.echo(
            visible(f"{html}: {shown} of {len(found.shared)} questions with their traces."),
            err=True,
        )


def _draw(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> None:
    from rich.console import Console  # noqa: PLC0415 - takes time, and help needs none of it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        if place < left:
            table.add_column(Text(visible(head)), overflow="fold", no_wrap=place == 0)
        else:
            table.add_column(Text(visible(head)), justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(visible(cell)) for cell in line))
    Console(highlight=False, markup=False, emoji=False).print(table)
