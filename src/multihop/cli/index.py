"""`multihop index`: build a BM25 index, add to it, delete from it."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from multihop.cli.render import terminal, visible
from multihop.corpus import SUFFIXES, Reader
from multihop.errors import BadInput
from multihop.retrievers.bm25_index import Manifest, build_index, change_index
from multihop.text import Passage

SHOWN = 20
"""Rejections that are listed; further ones are only counted."""


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="PATH...")
@click.option(
    "--into",
    required=True,
    type=click.Path(path_type=Path),
    help="The index's folder.",
    metavar="DIR",
)
@click.option("--skip-bad", is_flag=True, help="Leave bad lines and documents out, and list them.")
@click.option("--add", is_flag=True, help="Add to the index that is there.")
@click.option("--delete", multiple=True, metavar="ID", help="Delete this passage; may be repeated.")
def index(
    *, paths: Sequence[Path], into: Path, skip_bad: bool, add: bool, delete: Sequence[str]
) -> int:
    """Build a BM25 index over files and folders.

    JSONL files hold a passage a line (id, title, text). Other documents are split into titled
    passages: .txt, .md, .html, .pdf, .docx. The index that is there already is replaced when
    all is done; one that was interrupted leaves it as it was.

    With --add passages are added, with --delete passages are deleted; both together replace
    some.
    """
    if not paths and not delete:
        raise BadInput(
            f"Name files or folders to index ({', '.join(SUFFIXES)}), or passages to --delete."
        )
    if add and not paths:
        raise BadInput("--add needs files or folders to add.")
    if delete and paths and not add:
        raise BadInput("--delete with files or folders needs --add: say whether to add them.")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # its repairs are nobody's business
    reader = Reader(paths, skip_bad=skip_bad) if paths else None

    with _bar(reader) as progress:
        if reader and not add:
            manifest = build_index(
                reader,
                into,
                source=reader.source,
                progress=progress,
                on_duplicate=_reject(reader),
            )
        else:
            manifest = change_index(
                into,
                reader or (),
                delete=delete,
                source=reader.source if reader else None,
                progress=progress,
                on_duplicate=_reject(reader) if reader else None,
            )
    _report(manifest, reader, into)
    return 0


def _reject(reader: Reader) -> Callable[[Passage], None]:
    def reject(passage: Passage) -> None:
        reader.reject(f"the id {passage.id!r} is taken. Each passage needs one of its own.")

    return reject


@contextmanager
def _bar(reader: Reader | None) -> Iterator[Callable[[int], None] | None]:
    """A progress bar, where somebody can see it."""
    if not reader or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.fields[count]} passages"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal(), transient=True) as bar:
        task = bar.add_task("", total=reader.size, count="0")

        def progress(count: int) -> None:
            bar.update(task, completed=reader.done, count=f"{count:,}")

        yield progress


def _report(manifest: Manifest, reader: Reader | None, into: Path) -> None:
    if reader:
        if reader.rejections:
            click.echo(f"Left out {reader.rejections} that could not be read:", err=True)
            for rejected in reader.rejected[:SHOWN]:
                click.echo(f"  {visible(str(rejected))}", err=True)
            if reader.rejections > SHOWN:
                click.echo(f"  and {reader.rejections - SHOWN} more.", err=True)
        for path in reader.without_text[:SHOWN]:
            click.echo(f"  {visible(path)}: holds no text.", err=True)
    click.echo(f"{into}: {manifest.passages:,} passages.", err=True)
