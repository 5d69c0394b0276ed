"""Reports of runs as a person or a program reads them."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import click

from multihop.cli.render import visible
from multihop.evaluation import Report
from multihop.metrics import COUNTS, Mean

Form = Literal["table", "json", "markdown"]
Command = TypeVar("Command", bound=Callable[..., Any])

_FINE = frozenset({"steps", "searches", "lm_calls", "sent_calls", "replayed_calls", "seconds"})


def options(command: Command) -> Command:
    """Give a command `--json`, `--markdown` and `--metric`; it gets `form` and `more`."""
    for option in reversed(
        [
            click.option("--json", "form", flag_value="json", help="Print the report as JSON."),
            click.option("--markdown", "form", flag_value="markdown", help="Print Markdown."),
            click.option("--table", "form", flag_value="table", default=True, hidden=True),
            click.option(
                "--metric",
                "more",
                multiple=True,
                metavar="NAME",
                help="A further row, as all_gold@15 or drop_f1. May repeat.",
            ),
        ]
    ):
        command = option(command)
    return command


def show(reports: Sequence[Report], form: Form) -> None:
    """Print reports to stdout, side by side."""
    if form == "json":
        click.echo(json.dumps([report.to_dict() for report in reports], indent=1))
    elif form == "markdown":
        click.echo(markdown(reports))
    else:
        _table(reports)


def rows(reports: Sequence[Report]) -> list[tuple[str, list[str]]]:
    """The lines of a report: a name, and a cell for each run."""
    metrics = dict.fromkeys(name for report in reports for name in report.means)
    stops = dict.fromkeys(stop for report in reports for stop in report.stops)
    found = [
        (_label(name), [_cell(name, report.means.get(name)) for report in reports])
        for name in metrics
    ]
    found += [
        (f"stopped: {stop}", [str(report.stops.get(stop, 0)) for report in reports])
        for stop in stops
    ]
    routes = dict.fromkeys(route for report in reports for route in report.routes)
    found += [
        (f"routed to {route} %", [_share(report, route) for report in reports]) for route in routes
    ]
    counts: list[tuple[str, Callable[[Report], int]]] = [
        ("finished", lambda report: report.finished),
        ("without an answer", lambda report: report.without_answer),
        ("cut at max_tokens", lambda report: report.cut),
        ("failed", lambda report: report.failed),
        ("not asked yet", lambda report: report.missing),
    ]
    for name, count in counts:
        numbers = [count(report) for report in reports]
        if name == "finished" or any(numbers):
            found.append((name, [str(number) for number in numbers]))
    return found


def _share(report: Report, route: str) -> str:
    chosen = sum(report.routes.values())
    return f"{100 * report.routes.get(route, 0) / chosen:.1f}" if chosen else "-"


def markdown(reports: Sequence[Report]) -> str:
    """The report as a Markdown table."""
    head = ["", *(_plain(_name(report, reports)) for report in reports)]
    lines = [
        "| " + " | ".join(head) + " |",
        "| --- |" + " ---: |" * len(reports),
        *("| " + " | ".join([name, *cells]) + " |" for name, cells in rows(reports)),
    ]
    return "\n".join(lines)


def _table(reports: Sequence[Report]) -> None:
    from rich.console import Console  # noqa: PLC0415 - takes time, and help needs none of it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for report in reports:
        table.add_column(Text(visible(_name(report, reports))), justify="right")
    for name, cells in rows(reports):
        table.add_row(name, *cells)
    console.print(table)
    for report in reports:
        if report.failed:
            console.print(Text(f"\n{visible(_name(report, reports))}: {report.failed} failed"))
            for question, error in report.failures:
                console.print(Text(f"  {visible(question)}: {visible(error)}"))
            if report.failed > len(report.failures):
                console.print(f"  and {report.failed - len(report.failures)} more")


def _name(report: Report, reports: Sequence[Report]) -> str:
    names = [r.strategy for r in reports]
    return report.strategy if names.count(report.strategy) == 1 else report.run


def _label(name: str) -> str:
    return name.replace("_", " ") + ("" if name in COUNTS else " %")


def _cell(name: str, mean: Mean | None) -> str:
    if mean is None or mean.value is None:
        return "-"
    factor = 1.0 if name in COUNTS else 100.0
    digits = 6 if name == "money" else 2 if name in _FINE else 1
    error = "" if mean.error is None else f" ± {factor * mean.error:.{digits}f}"
    few = f" (n={mean.n})" if mean.unscored else ""
    return f"{factor * mean.value:.{digits}f}{error}{few}"


def _plain(text: str) -> str:
    return visible(text).replace("|", "\\|")
