"""`multihop train coldstart|questioner|answerer|critic`: teach a model IM-RAG."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from multihop.cli.render import visible
from multihop.evaluation import Progress as Asked
from multihop.training import sft
from multihop.training.im_rag import config, running
from multihop.training.im_rag.running import Taught

EVERY = 10.0
"""Seconds between two lines of progress."""

_RECIPE = click.argument("recipe_file", type=click.Path(path_type=Path), metavar="CONFIG.toml")


@click.command()
@_RECIPE
def coldstart(*, recipe_file: Path) -> int:
    """Teach IM-RAG's Questioner transcripts, before it is reinforced.

    The adapter is coldstart/adapters/questioner in the configuration's output folder; name it in
    start.questioner. After any interruption the same command goes on where it was.
    """
    return _told(running.cold_start(config.read(recipe_file), _steps(), _sizes), "transcripts")


@click.command()
@_RECIPE
def questioner(*, recipe_file: Path) -> int:
    """Reinforce IM-RAG's Questioner, beginning with a cold start's adapter.

    After any interruption the same command goes on where it was. An alarm stops the run with exit
    code 1; the best adapter by validation F1 is kept in any case.
    """
    chosen = config.read(recipe_file)
    sft.need()
    from multihop.training.im_rag import questioner as training  # noqa: PLC0415 - brings torch

    result = training.train(chosen, chosen.run(running.QUESTIONER), tell=_rollouts())
    adapter = running.questioner_card(chosen, result.best, result.step, result.f1)
    score = "" if result.f1 is None else f", F1 {100 * result.f1:.1f} in validation"
    best = f"best after step {result.step} of {result.steps}{score}"
    if result.alarm:
        click.echo(f"Stopped after step {result.steps}: {result.alarm}.", err=True)
    click.echo(f"{visible(str(adapter.folder))}: {adapter.name}, {best}")
    return 1 if result.alarm else 0


@click.command()
@_RECIPE
def answerer(*, recipe_file: Path) -> int:
    """Teach IM-RAG's Answerer to answer from what the Questioner found.

    The Questioner that start.questioner names is run over the training questions first. After any
    interruption the same command goes on where it was.
    """
    taught = running.answerer(config.read(recipe_file), _steps(), _sizes, _asked())
    return _told(taught, "runs")


@click.command()
@_RECIPE
def critic(*, recipe_file: Path) -> int:
    """Fit IM-RAG's stop models on runs of the Questioner that start.questioner names."""
    chosen = config.read(recipe_file)
    for name, model in running.stop_models(chosen, _asked()).items():
        numbers = ", ".join(
            f"{key} {value:.3f}"
            for key in ("accuracy", "accuracy_always", "auc", "r2")
            if isinstance(value := model.made.get(key), float)
        )
        rows = f"{model.made['rows']} rows of {model.made['questions']} questions"
        click.echo(f"{visible(str(chosen.adapters / name))}: {rows}; {numbers}")
    return 0


def _told(taught: Taught, what: str) -> int:
    made, result = taught.made, taught.result
    click.echo(f"{made.kept} {what} learned from, {made.dropped} left out.", err=True)
    if taught.adapter is None:
        click.echo(
            f"Interrupted after step {result.steps}; saved. The same command goes on.", err=True
        )
        return 130
    best = f"best after step {result.step} of {result.steps}"
    click.echo(f"{visible(str(taught.adapter.folder))}: {taught.adapter.name}, {best}")
    return 0


def _sizes(sizes: sft.Sizes) -> None:
    click.echo(
        f"{sizes.examples:,} examples in {sizes.packs:,} packs, {sizes.too_long:,} too long; "
        f"{sizes.tokens:,} tokens a pass, {sizes.parameters:,} numbers are trained.",
        err=True,
    )


def _seldom() -> Callable[[], bool]:
    last = -EVERY

    def due() -> bool:
        nonlocal last
        now = time.monotonic()
        if now - last < EVERY:
            return False
        last = now
        return True

    return due


def _steps() -> Callable[[sft.Progress], None]:
    due = _seldom()

    def tell(progress: sft.Progress) -> None:
        if progress.loss is None:
            click.echo(
                f"step {progress.step}: validation loss {progress.valid.get('', 0.0):.3f}", err=True
            )
        elif due() or progress.step == progress.steps:
            click.echo(
                f"step {progress.step} of {progress.steps}: loss {progress.loss:.3f}", err=True
            )

    return tell


def _asked() -> Callable[[Asked], None]:
    due = _seldom()

    def tell(progress: Asked) -> None:
        if due() or progress.done == progress.total:
            click.echo(f"{progress.done} of {progress.total} questions run", err=True)

    return tell


def _rollouts() -> Callable[[Mapping[str, float]], None]:
    def tell(line: Mapping[str, float]) -> None:
        if "valid" in line:
            if "f1" in line:
                click.echo(
                    f"step {line['step']:.0f}: validation F1 {line['f1']:.3f}, recall "
                    f"{line['recall']:.3f}, usable {line['usable']:.3f}",
                    err=True,
                )
            return
        click.echo(
            f"step {line['step']:.0f}: reward {line['reward']:.3f}, F1 {line['f1']:.3f}, recall "
            f"{line['recall']:.3f}, usable {line['usable']:.3f}, entropy {line['entropy']:.3f}, "
            f"no spread {100 * line['idle']:.0f} %, {line['writing']:.0f} + "
            f"{line['learning']:.0f} s",
            err=True,
        )

    return tell
