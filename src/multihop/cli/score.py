"""`multihop score`: the report of finished runs, without running anything."""

from pathlib import Path

import click

from multihop import names, runs
from multihop.cli import budgets, report
from multihop.cost import Prices
from multihop.evaluation import score as score_run


@click.command()
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@budgets.prices_option
@report.options
def score(
    folders: tuple[Path, ...], prices: Path | None, form: report.Form, more: tuple[str, ...]
) -> None:
    """Score RUN folders side by side; no model is run."""
    rows = {name: names.open_metric(name) for name in more}
    every = [run for folder in folders for run in runs.folders(folder)]
    table = Prices.read(prices) if prices else None
    report.show([score_run(run, rows, prices=table) for run in every], form)
