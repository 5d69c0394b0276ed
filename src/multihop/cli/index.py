"""`multihop index`: build an index, add to it, delete from it."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from multihop import names
from multihop.cli import parts
from multihop.cli.render import terminal, visible
from multihop.corpus import SUFFIXES, Reader, Splitting
from multihop.errors import BadInput
from multihop.retrievers.base import Built
from multihop.retrievers.bm25_index import Manifest, build_index, change_index
from multihop.text import Passage

SHOWN = 20
"""Rejections that are listed; further ones are only counted."""


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="PATH...")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="The folder of a BM25 index.",
    metavar="DIR",
)
@click.option(
    "--to",
    metavar="KIND:TARGET",
    help="A store instead, as elastic:http://localhost:9200/NAME.",
)
@click.option(
    "--to-option",
    "to_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the store's kind, as shards=3. May repeat.",
)
@click.option("--skip-bad", is_flag=True, help="Leave bad lines and documents out, and list them.")
@click.option(
    "--passage-words",
    default=Splitting().words,
    show_default=True,
    metavar="N",
    help="Length at which a passage of a document is closed, in words or tokens.",
)
@click.option(
    "--most-words",
    type=int,
    metavar="N",
    help="Length that no passage of a document exceeds; by default half as much again.",
)
@click.option(
    "--overlap",
    default=0,
    show_default=True,
    metavar="N",
    help="Words or tokens at a passage's end that the next one begins with again.",
)
@click.option(
    "--tokenizer",
    default="",
    metavar="FILE",
    help="A tokenizer.json: lengths are counted in its tokens, not in words.",
)
@click.option(
    "--near-duplicates",
    type=float,
    metavar="SHARE",
    help="Leave out passages whose text is so similar to that of one before, as 0.9.",
)
@click.option("--add", is_flag=True, help="Add to the index that is there.")
@click.option("--delete", multiple=True, metavar="ID", help="Delete this passage; may be repeated.")
def index(
    *,
    paths: Sequence[Path],
    into: Path | None,
    to: str | None,
    to_options: tuple[str, ...],
    skip_bad: bool,
    passage_words: int,
    most_words: int | None,
    overlap: int,
    tokenizer: str,
    near_duplicates: float | None,
    add: bool,
    delete: Sequence[str],
) -> int:
    """Build an index over files and folders: BM25 in a folder, or in a store.

    JSONL files hold a passage a line (id, title, text). Other documents are split into titled
    passages: .txt, .md, .html, .pdf, .docx. The index that is there already is replaced when
    all is done; a build that was interrupted leaves it as it was. In a store, the next build
    goes on with what the interrupted one has sent.

    With --add passages are added, with --delete passages are deleted; both together replace
    some.
    """
    if (into is None) == (to is None):
        raise BadInput("Say where the index goes: --into DIR, or --to KIND:TARGET.")
    if to_options and not to:
        raise BadInput("--to-option is for a store that --to names.")
    if not paths and not delete:
        raise BadInput(
            f"Name files or folders to index ({', '.join(SUFFIXES)}), or passages to --delete."
        )
    if add and not paths:
        raise BadInput("--add needs files or folders to add.")
    if delete and paths and not add:
        raise BadInput("--delete with files or folders needs --add: say whether to add them.")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # its repairs are nobody's business
    most = passage_words * 3 // 2 if most_words is None else most_words
    splitting = Splitting(passage_words, most, overlap, tokenizer)
    reader = (
        Reader(paths, skip_bad=skip_bad, splitting=splitting, near_duplicates=near_duplicates)
        if paths
        else None
    )

    build: Callable[..., Built]
    change: Callable[..., Built]
    if to is not None:
        store = names.open_store(to, parts.pairs("--to-option", to_options))
        where, build, change = store.name, store.build, store.change
    else:
        assert into is not None
        where, build, change = str(into), partial(_build, into), partial(change_index, into)

    with _bar(reader) as progress:
        if reader and not add:
            built = build(
                reader, source=reader.source, progress=progress, on_duplicate=_reject(reader)
            )
        else:
            built = change(
                reader or (),
                delete=delete,
                source=reader.source if reader else None,
                progress=progress,
                on_duplicate=_reject(reader) if reader else None,
            )
    _report(built, reader, where)
    return 0


def _build(into: Path, passages: Iterable[Passage], **settings: Any) -> Manifest:
    return build_index(passages, into, **settings)


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


def _report(built: Built, reader: Reader | None, where: str) -> None:
    if reader:
        if reader.rejections:
            click.echo(f"Left out {reader.rejections} that could not be read:", err=True)
            for rejected in reader.rejected[:SHOWN]:
                click.echo(f"  {visible(str(rejected))}", err=True)
            if reader.rejections > SHOWN:
                click.echo(f"  and {reader.rejections - SHOWN} more.", err=True)
        for path in reader.without_text[:SHOWN]:
            click.echo(f"  {visible(path)}: holds no text.", err=True)
        if reader.left_out:
            click.echo(f"Left out {reader.left_out:,} near-duplicates.", err=True)
    click.echo(f"{where}: {built.passages:,} passages.", err=True)
