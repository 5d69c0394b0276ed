"""`multihop experiment`: the paper's protocol, from one file."""

import asyncio
import dataclasses
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import click

from multihop import evaluation, files, names
from multihop.cli import budgets, parts
from multihop.cli.progress import progress
from multihop.cli.render import visible
from multihop.cost import Prices
from multihop.errors import BadInput
from multihop.experiments import asked, config, estimate, folder, results, running, tables
from multihop.experiments.plan import Cell, Plan, adapter_of, demonstrations, plan
from multihop.lms.base import LanguageModel
from multihop.lms.layers import questions_at_work
from multihop.lms.wrapper import identity
from multihop.retrievers.batching import BatchedRetriever

Command = TypeVar("Command", bound=Callable[..., Any])

MARKDOWN, CSV, JSON = "tables.md", "tables.csv", "tables.json"


@click.group()
def experiment() -> None:
    """Run and show experiments: grids, the best setting, tables as in the paper.

    An experiment is a TOML file; docs/experiments.md describes it, recipes/ has examples.
    """


_RULE = click.option(
    "--rule",
    type=click.Choice(["paper", "official"]),
    help="Choose the best setting by this rule instead of the file's.",
)
_INTO = click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The experiment's folder, instead of the file's.",
)


def _forms(command: Command) -> Command:
    for option in reversed(
        [
            click.option("--json", "form", flag_value="json", help="Print JSON."),
            click.option("--csv", "form", flag_value="csv", help="Print CSV, a line a figure."),
            click.option("--markdown", "form", flag_value="markdown", help="Print Markdown."),
            click.option("--table", "form", flag_value="table", default=True, hidden=True),
            click.option(
                "--metric",
                "more",
                multiple=True,
                metavar="NAME",
                help="A further column of the JSON and CSV forms, as all_gold@15. May repeat.",
            ),
        ]
    ):
        command = option(command)
    return command


@experiment.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.toml")
@_INTO
@_RULE
@click.option("--retry-failed", is_flag=True, help="Ask again what failed in an earlier sitting.")
@click.option(
    "--give-up-after",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Stop after N failures in a row.",
)
@budgets.prices_option
@budgets.run_options
@_forms
def run(
    *,
    file: Path,
    into: Path | None,
    rule: str | None,
    retry_failed: bool,
    give_up_after: int,
    form: str,
    more: tuple[str, ...],
    **limits: Any,
) -> int:
    """Run what is missing of an experiment, then print its tables.

    Every setting of the grid is run on dev with the first set of demonstrations, the best one on
    test with all sets. Each finished question is on disk at once: after a kill, the same command
    goes on where it was. Results of another rule or metric come from the same runs; only where
    another setting is the best one, its runs on test are made.
    """
    told = config.read(file)
    chosen = _scored(plan(told), rule, more)
    where = into or Path(told.folder)
    questions = _look_at(chosen)
    for note in chosen.notes:
        click.echo(f"Note: {visible(note)}.", err=True)
    limit = budgets.Budgets.take({**dict.fromkeys(_QUESTION), **limits}, ("ircot",))

    async def work() -> int:
        async with Opening(limit) as opener:
            return await running.run(
                chosen,
                questions,
                where,
                opener,
                retry_failed=retry_failed,
                give_up_after=give_up_after,
                budget=limit.run,
                telling=_telling,
            )

    left = asyncio.run(work())
    found = results.results(chosen, where, prices=limit.prices)
    _write(found, where)
    click.echo(f"Experiment's folder: {visible(str(where))}", err=True)
    _show(found, form)
    if left and limit.run:
        click.echo(
            f"The budget is used up ({limit.run.reached}). The same command with a larger one "
            "goes on.",
            err=True,
        )
    return 1 if left or found.failed else 0


_QUESTION = tuple(f"budget_{unit}" for unit in budgets.UNITS)


@experiment.command()
@click.argument("place", type=click.Path(path_type=Path), metavar="FILE.toml|DIR")
@_INTO
@_RULE
@budgets.prices_option
@_forms
def show(
    *,
    place: Path,
    into: Path | None,
    rule: str | None,
    prices: Path | None,
    form: str,
    more: tuple[str, ...],
) -> int:
    """Print how far an experiment is, and its tables; nothing is run.

    DIR is the experiment's folder, which needs nothing outside of itself. All is scored anew, so
    that --rule and --metric cost seconds.
    """
    if place.is_dir():
        where, laid_out = place, folder.read_plan(place)
    else:
        told = config.read(place)
        where = into or Path(told.folder)
        laid_out = plan(told)
        if not (where / folder.EXPERIMENT).exists():
            raise BadInput(
                f"{where}: nothing was run yet. Run: multihop experiment run {place}; or see what "
                f"it will take: multihop experiment check {place}"
            )
    chosen = _scored(laid_out, rule, more)
    found = results.results(chosen, where, prices=Prices.read(prices) if prices else None)
    _show(found, form)
    _tell_missing(found)
    return 0


@experiment.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.toml")
@_INTO
def check(*, file: Path, into: Path | None) -> int:
    """Make sure that an experiment can be run, and print what it will take; nothing is run.

    Questions and demonstrations are read, indexes and adapters looked for; models are not opened.
    """
    told = config.read(file)
    laid_out = plan(told)
    where = into or Path(told.folder)
    questions = _look_at(laid_out)
    estimates = estimate.estimate(laid_out, questions, where)
    _draw([_plan_table(estimates)])
    total, most = sum(e.calls for e in estimates), [e.most for e in estimates]
    count = sum(e.grid + e.tests for e in estimates)
    click.echo(
        f"\n{count} runs, {sum(e.questions for e in estimates):,} questions, about {total:,} LM "
        f"calls{'' if None in most else f', at most {sum(m or 0 for m in most):,}'}."
    )
    if not all(e.measured for e in estimates):
        click.echo(f"Taken until measured: {estimate.SENTENCES} sentences a chain.")
    for note in laid_out.notes:
        click.echo(f"Note: {visible(note)}.")
    click.echo(f"Folder: {visible(str(where))}")
    return 0


def _look_at(laid_out: Plan) -> asked.Asked:
    """Read questions and demonstrations, and look for indexes: what can be refused at once, is."""
    for data in {laid_out.dataset(e).name: laid_out.dataset(e) for e in laid_out.entries}.values():
        kind, _, target = (data.search or "").partition(":")
        if kind == "bm25" and not Path(target).is_dir():
            raise BadInput(
                f"datasets, {data.name}: there is no index at {target}. Build it: multihop index"
            )
    for cell in laid_out.cells():
        demonstrations(laid_out, cell)
    return asked.look(laid_out)


def _scored(laid_out: Plan, rule: str | None, more: Sequence[str]) -> Plan:
    """The plan with what the options say about scoring."""
    metrics = laid_out.experiment.metrics
    changes: dict[str, Any] = {"more": (*metrics.more, *more)}
    if rule:
        changes["rule"] = rule
    for name in more:
        names.open_metric(name)
    return laid_out.scored_by(dataclasses.replace(metrics, **changes))


# --- Opening --------------------------------------------------------------------------------


class Opening:
    """Opens a run's parts; keeps model and retriever open while the next runs have the same.

    Args:
        limits: Budget and prices.
    """

    def __init__(self, limits: budgets.Budgets) -> None:
        self._limits = limits
        self._model: tuple[config.Model, LanguageModel] | None = None
        self._retriever: tuple[object, BatchedRetriever | None] | None = None
        self._closing = {"model": AsyncExitStack(), "retriever": AsyncExitStack()}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stack in self._closing.values():
            await stack.aclose()

    async def open(self, laid_out: Plan, cell: Cell) -> running.Ready:
        """Make a run's strategy over opened parts."""
        chosen = self._parts(laid_out, cell)
        model, data = laid_out.model(cell.entry), laid_out.dataset(cell.entry)
        if self._model is None or self._model[0] != model:
            await self._close("model")
            lm = await self._closing["model"].enter_async_context(chosen.opened_model())
            self._model = (model, lm)
        lm = self._model[1]
        retriever = None
        if data.search is not None:
            wanted = (data.search, dict(data.retriever_options), chosen.preset == "official")
            if self._retriever is None or self._retriever[0] != wanted:
                await self._close("retriever")
                stack = self._closing["retriever"]
                opened = await stack.enter_async_context(chosen.opened_retriever())
                self._retriever = (wanted, opened)
            retriever = self._retriever[1]
        over = chosen.over(retriever, lm)
        [strategy] = over.strategies.values()
        return running.Ready(
            strategy,
            {**over.record, "model": dict(identity(lm))},
            questions_at_work(lm, model.calls),
        )

    async def _close(self, what: str) -> None:
        await self._closing[what].aclose()
        self._closing[what] = AsyncExitStack()
        if what == "model":
            self._model = None
        else:
            self._retriever = None

    def _parts(self, laid_out: Plan, cell: Cell) -> parts.Parts:
        """What the options of `multihop eval` would give."""
        entry = cell.entry
        system, model = laid_out.system(entry), laid_out.model(entry)
        data = laid_out.dataset(entry)
        options = {**model.strategy_options, **system.options}
        if model.family != "codex":
            options["family"] = model.family
        return parts.Parts(
            strategies=(system.strategy,),
            preset=laid_out.preset(entry),
            retriever=data.search,
            retriever_options=dict(data.retriever_options),
            model=model.model,
            model_options=dict(model.options),
            adapter=adapter_of(model),
            reader=system.reader or None,
            k=cell.setting.k,
            max_steps=system.max_steps or None,
            max_passages=system.max_passages or None,
            demonstrations=demonstrations(laid_out, cell),
            train=None,  # its file stands among the options
            strategy_options=options,
            calls=model.calls,
            fuse=model.fuse,
            cache=model.cache,
            reproducible=model.reproducible,
            budgets=self._limits,
        )


@contextmanager
def _telling(cell: Cell) -> Generator[Callable[[evaluation.Progress], None], None, None]:
    click.echo(visible(cell.title), err=True)
    with progress() as tell:
        yield tell


# --- Showing --------------------------------------------------------------------------------


def _show(found: results.Results, form: str) -> None:
    if form == "json":
        click.echo(json.dumps(tables.as_json(found), indent=1))
    elif form == "csv":
        click.echo(tables.csv_text(found), nl=False)
    elif form == "markdown":
        click.echo(visible(tables.markdown(found), lines=True))
    else:
        _draw(tables.tables(found))
        for note in found.notes:
            click.echo(f"Note: {visible(note)}.")


def _write(found: results.Results, where: Path) -> None:
    files.write(where / MARKDOWN, tables.markdown(found) + "\n")
    files.write(where / CSV, tables.csv_text(found))
    files.write(where / JSON, json.dumps(tables.as_json(found), indent=1) + "\n")


def _draw(shown: Sequence[tables.Table]) -> None:
    from rich.console import Console  # noqa: PLC0415 - takes time, and help needs none of it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:  # a file or a pipe has room
        console.width = 200
    for number, each in enumerate(shown):
        if number:
            console.print()
        console.print(Text(visible(each.title) + ".", style="bold"))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place, name in enumerate(each.head):
            table.add_column(Text(visible(name)), justify="left" if place < each.names else "right")
        for row in each.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        console.print(table)


def _tell_missing(found: results.Results) -> None:
    """What the same command would still run, and why."""
    for figure in found.figures:
        entry = figure.entry
        name = f"{entry.dataset}: {entry.system} with {entry.model}"
        if figure.choice.setting is None:
            done = sum(value is not None for value in figure.choice.grid)
            click.echo(
                f"{visible(name)}: {len(figure.choice.grid) - done} of {len(figure.choice.grid)} "
                "runs on dev are missing.",
                err=True,
            )
        elif figure.missing:
            by = f", the best by {figure.choice.by}," if figure.choice.by else ""
            click.echo(
                f"{visible(name)}: {len(figure.missing)} of {len(figure.cells)} runs on test at "
                f"{figure.choice.setting}{by} are missing.",
                err=True,
            )
    if not found.complete:
        click.echo("`multihop experiment run` makes what is missing.", err=True)


def _plan_table(estimates: Sequence[estimate.Estimate]) -> tables.Table:
    rows = []
    for each in estimates:
        entry = each.entry
        test = f"{each.tests} x {each.test}"
        most = "?" if each.most is None else f"{each.most:,}"
        rows.append(
            (
                *(entry.model, entry.dataset, entry.system),
                f"{each.grid} x {each.dev}" if each.grid else "-",
                test,
                str(each.done),
                f"{each.calls:,}",
                most,
            )
        )
    head = ("model", "data set", "system", "dev", "test", "done", "LM calls, about", "at most")
    return tables.Table("Runs x questions", head, tuple(rows), 3)
