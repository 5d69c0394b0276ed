"""`multihop data`: published data sets, fetched, indexed, sampled and converted."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from multihop import names
from multihop.cli import data_demonstrations
from multihop.cli.render import terminal, visible
from multihop.datasets import sampling
from multihop.datasets.base import Dataset
from multihop.datasets.download import Progress
from multihop.datasets.fetch import Fetched, fetch, wanted
from multihop.datasets.questions import question_line
from multihop.errors import BadInput
from multihop.text import Json, Question

EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""

SPLITS = 6
"""Most splits that are listed by name."""

INDEX = "index"
"""The index's folder in that of its data set."""


@click.group()
def data() -> None:
    """Fetch published data sets, build their corpora, draw the paper's samples.

    Files go to MULTIHOP_DATA, else to multihop/data in the user's data folder, a folder a data
    set; `multihop eval` finds them there as hotpotqa:dev.
    """


@data.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a data set.")
def list_(*, as_json: bool) -> int:
    """List the data sets: splits, size, licence, and what is here."""
    found = [names.open_dataset(name) for name in names.dataset_names()]
    if as_json:
        for dataset in found:
            click.echo(json.dumps(_record(dataset)))
        return 0
    width = max(map(len, names.dataset_names()))
    for dataset in found:
        for number, line in enumerate(_lines_about(dataset)):
            head = "" if number else dataset.name
            click.echo(f"{visible(head):<{width}}  {visible(line)}")
    return 0


@data.command()
@click.argument("name", metavar="NAME")
@click.option("--split", "splits", multiple=True, metavar="SPLIT", help="Only this; may repeat.")
@click.option("--corpus", is_flag=True, help="Only what the corpus is made of.")
@click.option(
    "--mirror",
    metavar="ADDRESS|DIR",
    default="",
    help="Where the files are instead: the http or file address of a folder, or a folder.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the files; by default that of the data set.",
)
def get(*, name: str, splits: Sequence[str], corpus: bool, mirror: str, into: Path | None) -> int:
    """Fetch the published files of the data set NAME.

    What is there already is only checked. After a broken connection or a kill the same command
    goes on where it was; several at once do not harm each other. A file that you have downloaded
    by hand is taken when it lies in the folder under its published name.
    """
    dataset = names.open_dataset(name)
    folder = into or dataset.folder
    files = wanted(dataset, splits, corpus=corpus)
    for file in files:
        with _transfer(file.name) as progress:
            found = fetch(file, folder, mirror=mirror, progress=progress, waiting=_waiting)
        _tell(found)
    return 0


@data.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--files",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the published files; by default that of the data set.",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"The index's folder; by default {INDEX} in that of the data set.",
)
def index(*, name: str, files: Path | None, into: Path | None) -> int:
    """Build the corpus of the data set NAME, as the paper did, and its BM25 index.

    The files are read as a stream. An index that is there already is replaced when all is done.
    """
    from multihop.retrievers.bm25_index import build_index  # noqa: PLC0415 - loads the engine

    dataset = names.open_dataset(name)
    corpus = dataset.corpus
    if corpus is None:
        raise BadInput(f"{dataset.title} has no corpus of its own: index one with multihop index.")
    folder = files or dataset.folder
    paths = [folder / file for file in corpus.files]
    if missing := [path for path in paths if not path.is_file()]:
        raise BadInput(
            f"{', '.join(map(str, missing))}: not there. Run: multihop data get {name} --corpus"
        )
    target = into or dataset.folder / INDEX
    source: dict[str, Json] = {"dataset": name, "files": [path.name for path in paths]}
    with _passages(corpus.passages) as progress:
        manifest = build_index(corpus.read(paths), target, source=source, progress=progress)
    click.echo(f"{target}: {manifest.passages:,} passages.", err=True)
    if corpus.passages is not None and manifest.passages != corpus.passages:
        click.echo(
            f"multihop: the published corpus has {corpus.passages:,} passages. These are other "
            "files, or a part of them: figures on this index do not compare with published ones.",
            err=True,
        )
    return 0


@data.command()
@click.argument("questions", metavar="NAME|KIND:PATH")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for dev_sample.jsonl and test_sample.jsonl; by default that of the data set.",
)
@click.option(
    "--dev",
    type=click.IntRange(0),
    default=sampling.DEV,
    show_default=True,
    metavar="N",
    help="Questions to choose hyper-parameters with.",
)
@click.option(
    "--test",
    type=click.IntRange(0),
    default=sampling.TEST,
    show_default=True,
    metavar="N",
    help="Questions to report on.",
)
@click.option(
    "--seed", type=int, default=sampling.SEED, show_default=True, help="Of Python's random.sample."
)
def sample(*, questions: str, into: Path | None, dev: int, test: int, seed: int) -> int:
    """Draw the paper's samples, 100 dev and 500 test questions, as question files of ours.

    NAME draws from the data set's dev split. Both samples are of that one split and do not
    overlap; the same file and seed give the same samples.
    """
    kind, colon, _ = questions.partition(":")
    source = questions if colon or kind not in names.dataset_names() else f"{questions}:dev"
    drawn = sampling.sample(names.open_questions(source), dev, test, seed)
    folder = into or _folder_of(source)
    if drawn.without_answer:
        click.echo(f"Left out {drawn.without_answer} questions without an answer.", err=True)
    for name, sampled in [("dev", drawn.dev), ("test", drawn.test)]:
        path = folder / f"{name}_sample.jsonl"
        _write(path, sampled)
        click.echo(f"{path}: {len(sampled)} of {drawn.drawn_from:,} questions.", err=True)
    return 0


@data.command()
@click.argument("questions", metavar="KIND:PATH")
@click.option(
    "--into",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where they go; by default to standard output.",
)
def convert(*, questions: str, into: Path | None) -> int:
    """Write questions in our own format, one JSON object a line.

    KIND:PATH is a file in a published format, as hotpotqa:hotpot_dev_distractor_v1.json, or a
    split that was fetched, as hotpotqa:dev. A file is replaced when all is done.
    """
    found = names.open_questions(questions)
    if into:
        count = _write(into, found)
        click.echo(f"{into}: {count:,} questions.", err=True)
    else:
        for question in found:
            click.echo(question_line(question))
    return 0


data.add_command(data_demonstrations.demonstrations)


# --- What the verbs share ------------------------------------------------------------------------


def _folder_of(source: str) -> Path:
    kind, colon, _ = source.partition(":")
    if colon and kind in names.dataset_names():
        return names.open_dataset(kind).folder
    return Path()


def _write(path: Path, questions: Iterable[Question]) -> int:
    """Write a question file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with part.open("w", encoding="utf-8") as file:
            for question in questions:
                file.write(question_line(question) + "\n")
                count += 1
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return count


def _waiting() -> None:
    click.echo("Another process is fetching this file; waiting for it.", err=True)


def _tell(found: Fetched) -> None:
    for path in found.paths:
        how = "fetched" if found.fresh else "is here"
        size = f"{path.stat().st_size / 1e6:,.1f} MB"
        known = "" if found.checked else ", no checksum to compare" if found.fresh else ""
        click.echo(f"{path}: {size}, {how}{known}.", err=True)


def _here(dataset: Dataset) -> list[str]:
    found = [split.name for split in dataset.splits if (dataset.folder / split.file).is_file()]
    if (dataset.folder / INDEX / "manifest.json").is_file():
        found.append(INDEX)
    return found


def _lines_about(dataset: Dataset) -> Iterator[str]:
    yield " · ".join([dataset.title, dataset.licence, _size(dataset), dataset.home])
    splits = [f"{s.name} {s.questions:,}" if s.questions else s.name for s in dataset.splits]
    more = len(splits) - SPLITS
    yield "questions: " + ", ".join(splits[:SPLITS]) + (f" and {more} more" if more > 0 else "")
    if dataset.corpus:
        passages = dataset.corpus.passages
        yield f"corpus: {passages:,} passages" if passages else "corpus: yes"
    if here := _here(dataset):
        more = len(here) - SPLITS
        yield "here: " + ", ".join(here[:SPLITS]) + (f" and {more} more" if more > 0 else "")


def _size(dataset: Dataset) -> str:
    sizes = [file.size for file in dataset.files]
    known = sum(size for size in sizes if size is not None)
    more = "+" if None in sizes and known else ""
    return f"{known / 1e6:,.0f}{more} MB" if known else "size not known"


def _record(dataset: Dataset) -> dict[str, Json]:
    corpus = dataset.corpus
    return {
        "name": dataset.name,
        "title": dataset.title,
        "home": dataset.home,
        "licence": dataset.licence,
        "citation": dataset.citation,
        "splits": {split.name: split.questions for split in dataset.splits},
        "passages": corpus.passages if corpus else None,
        "files": [
            {"name": file.name, "url": file.url, "size": file.size, "sha256": file.sha256}
            for file in dataset.files
        ],
        "folder": str(dataset.folder),
        "here": [*_here(dataset)],
    }


@contextmanager
def _transfer(name: str) -> Generator[Progress]:
    """A bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _lines(name)
        return
    from rich.progress import (  # noqa: PLC0415 - takes time, and only a terminal needs it
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal(), transient=True) as bar:
        task = bar.add_task(visible(name), total=None)

        def tell(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield tell


def _lines(name: str) -> Progress:
    last = time.monotonic()

    def tell(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            whole = f" of {total / 1e6:,.0f}" if total else ""
            click.echo(f"{visible(name)}: {done / 1e6:,.0f}{whole} MB", err=True)

    return tell


@contextmanager
def _passages(total: int | None) -> Generator[Callable[[int], None]]:
    """Progress in passages."""
    if sys.stderr.isatty():
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("passages"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=terminal(), transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda count: bar.update(task, completed=count)
        return
    last = time.monotonic()

    def tell(count: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            click.echo(f"{count:,} passages", err=True)

    yield tell
