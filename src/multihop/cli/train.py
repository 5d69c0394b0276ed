"""`multihop train`: teach a model the loop."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from multihop.cli import train_adapters, train_im_rag, train_router
from multihop.cli.render import terminal, visible
from multihop.training import claim, config, curves, finish, recipe, sft

EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


@click.group()
def train() -> None:
    """Teach a model the loop."""


train.add_command(train_adapters.check)
train.add_command(train_adapters.export)
train.add_command(train_adapters.scores)
train.add_command(train_router.router)
for verb in (
    train_im_rag.coldstart,
    train_im_rag.questioner,
    train_im_rag.answerer,
    train_im_rag.critic,
):
    train.add_command(verb)


@train.command(name="sft")
@click.argument("recipe_file", type=click.Path(path_type=Path), metavar="CONFIG.toml")
def run(*, recipe_file: Path) -> int:
    """Make lessons and fine-tune a model on them, as CONFIG.toml says.

    After any interruption the same command goes on where it was.
    """
    chosen = config.read(recipe_file)
    sft.need()
    folder = Path(chosen.output.folder)
    claim.check(chosen, folder)
    made = recipe.make_lessons(chosen)
    learned, kept_back = sft.split(made.lessons, chosen.data.valid)
    rank = os.environ.get("RANK", "0")  # torchrun starts several processes; one speaks
    if rank == "0":
        click.echo(
            f"{len(learned)} lessons to learn from, {len(kept_back)} to validate with.", err=True
        )
    with _progress() as tell:

        def told(progress: sft.Progress) -> None:
            if progress.loss is None:
                curves.write(folder, chosen.output.name)
            tell(progress)

        sizes = _sizes if rank == "0" else None
        result = sft.train(chosen, learned, kept_back, folder, tell=told, tell_sizes=sizes)
    if rank != "0":
        return 0 if result.finished else 130
    if (folder / curves.CURVES).exists():
        page = curves.write(folder, chosen.output.name)
        click.echo(f"Curves: {visible(str(page))}", err=True)
    if not result.finished:
        click.echo(
            f"Interrupted after step {result.steps}; saved. The same command goes on.", err=True
        )
        return 130
    best = f"best after step {result.step} of {result.steps}"
    if chosen.model.method == "full":
        click.echo(f"{visible(str(result.best))}: {best}")
        return 0
    adapter = finish.finish(chosen, made.parts, result)
    click.echo(f"{visible(str(adapter.folder))}: {adapter.name}, {best}")
    return 0


def _sizes(sizes: sft.Sizes) -> None:
    left = (
        f"; {sizes.too_long:,} are longer than train.max_tokens and left out"
        if sizes.too_long
        else ""
    )
    click.echo(
        f"{sizes.examples:,} examples in {sizes.packs:,} packs{left}. A pass evaluates "
        f"{sizes.tokens:,} tokens instead of {sizes.plain:,} and predicts {sizes.targets:,}. "
        f"{sizes.parameters:,} numbers are trained.",
        err=True,
    )


def _losses(progress: sft.Progress) -> str:
    return ", ".join(f"{skill or 'all'} {loss:.3f}" for skill, loss in progress.valid.items())


@contextmanager
def _progress() -> Iterator[Callable[[sft.Progress], None]]:
    """A bar on a terminal; else a line now and then, and one for each validation."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import (  # noqa: PLC0415 - takes time, and only a terminal needs it
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=terminal()) as bar:
        task = bar.add_task("training", left="")

        def tell(progress: sft.Progress) -> None:
            if progress.loss is None:
                bar.console.print(f"step {progress.step}: validation loss {_losses(progress)}")
                return
            bar.update(
                task,
                total=progress.steps,
                completed=progress.step,
                description=f"loss {progress.loss:.3f}, {_speed(progress)}",
                left=_left(progress),
            )

        yield tell


def _speed(progress: sft.Progress) -> str:
    return (
        f"{progress.tokens_per_second:.0f} tokens/s evaluated, "
        f"{progress.targets_per_second:.0f} learned"
    )


def _left(progress: sft.Progress) -> str:
    if progress.left is None:
        return ""
    minutes, seconds = divmod(round(progress.left), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} to go"


def _lines() -> Callable[[sft.Progress], None]:
    last = -EVERY

    def tell(progress: sft.Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if progress.loss is None:
            click.echo(f"step {progress.step}: validation loss {_losses(progress)}", err=True)
        elif now - last >= EVERY or progress.step == progress.steps:
            last = now
            click.echo(
                f"step {progress.step} of {progress.steps}: loss {progress.loss:.3f}, "
                f"{_speed(progress)}, {_left(progress)}",
                err=True,
            )

    return tell
