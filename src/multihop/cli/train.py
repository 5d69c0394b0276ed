"""`multihop train`: teach a model the loop."""

import time
from collections.abc import Callable
from pathlib import Path

import click

from multihop.cli import train_adapters
from multihop.cli.render import visible
from multihop.training import claim, config, curves, finish, recipe, sft

EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


@click.group()
def train() -> None:
    """Teach a model the loop."""


train.add_command(train_adapters.check)
train.add_command(train_adapters.export)
train.add_command(train_adapters.scores)


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
    click.echo(
        f"{len(learned)} lessons to learn from, {len(kept_back)} to validate with.", err=True
    )
    result = sft.train(chosen, learned, kept_back, folder, tell=_lines(chosen))
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


def _lines(chosen: config.Config) -> Callable[[sft.Progress], None]:
    last = -EVERY

    def tell(progress: sft.Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if progress.loss is None:
            losses = ", ".join(f"{k or 'all'} {v:.3f}" for k, v in progress.valid.items())
            curves.write(Path(chosen.output.folder), chosen.output.name)
            click.echo(f"step {progress.step}: validation loss {losses}", err=True)
        elif now - last >= EVERY or progress.step == progress.steps:
            last = now
            left = "" if progress.left is None else f", {progress.left / 60:.0f} min to go"
            click.echo(
                f"step {progress.step} of {progress.steps}: loss {progress.loss:.3f}, "
                f"{progress.tokens_per_second:.0f} tokens/s{left}",
                err=True,
            )

    return tell
