"""The progress of an evaluation as a person sees it."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import click

from multihop import evaluation
from multihop.cli.render import terminal, visible

EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


@contextmanager
def progress() -> Generator[Callable[[evaluation.Progress], None], None, None]:
    """A bar on a terminal; else a line at the start, now and then, and at the end."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import (  # noqa: PLC0415 - takes time, and only a terminal needs it
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal()) as bar:
        task = bar.add_task("asking")

        def tell(state: evaluation.Progress) -> None:
            failed = f", {state.failed} failed" if state.failed else ""
            bar.update(
                task,
                total=state.total,
                completed=state.done,
                description=f"asking{failed}",
            )

        yield tell


def _lines() -> Callable[[evaluation.Progress], None]:
    last = -EVERY

    def tell(state: evaluation.Progress) -> None:
        nonlocal last
        latest = state.latest
        if latest and latest.error:
            click.echo(visible(f"{latest.question.id}: {latest.error}"), err=True)
        now = time.monotonic()
        if now - last >= EVERY or state.done == state.total:
            last = now
            failed = f", {state.failed} failed" if state.failed else ""
            click.echo(f"{state.done} of {state.total} done{failed}", err=True)

    return tell
