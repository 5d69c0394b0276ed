"""`multihop show`: replay what was kept."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import click

from multihop import runs
from multihop.cli.render import Drawing, snippet, terminal, visible
from multihop.errors import BadInput
from multihop.trace import Trace


@click.command()
@click.argument("what", required=False, metavar="[TRACE]")
@click.option("--json", "as_json", is_flag=True, help="Print traces as JSON, one a line.")
@click.option("--prompts", is_flag=True, help="Show each prompt and raw output too.")
@click.option("--failed", is_flag=True, help="Only questions that failed.")
def show(*, what: str | None, as_json: bool, prompts: bool, failed: bool) -> None:
    """Replay a trace, or list the traces of a run.

    TRACE is a run folder or a traces.jsonl, with `:N` for its Nth trace or `:ID` for a
    question's id. Without TRACE, the latest question asked is shown.
    """
    path, selected = _parse(what) if what else (_latest(), "-1")
    traces = runs.read_folder(path) if path.is_dir() else runs.read(path)
    if failed:
        traces = ((number, trace) for number, trace in traces if trace.error)
    if selected:
        traces = iter([_find(path, traces, selected)])
    if as_json:
        for _, trace in traces:
            click.echo(trace.to_json())
        return
    first = list(islice(traces, 2))
    if len(first) == 1:
        Drawing(terminal(stderr=False), prompts=prompts).trace(first[0][1])
        return
    for number, trace in chain(first, traces):
        click.echo(_line(number, trace))
    hint = f"Replay one with: multihop show {path}:N" if first else f"{path}: no such trace."
    click.echo(visible(hint), err=True)


def _latest() -> Path:
    """The trace file that was written to last by `ask`."""
    files = sorted(runs.home().glob(f"asks-*/{runs.TRACES}"))
    if not files:
        raise BadInput(f"{runs.home()}: no question was asked yet. Name a run folder.")
    return files[-1]


def _parse(what: str) -> tuple[Path, str]:
    """A trace file, or a folder of several, and what is wanted of it; both may hold colons."""
    end = len(what)
    while end > 0:
        path, selected = Path(what[:end]), what[end + 1 :]
        if path.is_dir():
            folders = [path] if runs.trace_files(path) else runs.folders(path)
            if len(folders) > 1:
                names = ", ".join(str(folder) for folder in folders)
                raise BadInput(f"{path}: holds several runs; name one: {names}.")
            files = runs.trace_files(folders[0])
            if not files:
                raise BadInput(f"{folders[0]}: no question of this run is finished yet.")
            return files[0] if len(files) == 1 else folders[0], selected
        if path.exists():
            return path, selected
        end = what.rfind(":", 0, end)
    raise BadInput(f"{what}: there is no such run folder or trace file.")


def _find(path: Path, traces: Iterator[tuple[int, Trace]], selected: str) -> tuple[int, Trace]:
    """The trace of a question id, the last if it was asked twice; else that of a line."""
    found: tuple[int, Trace] | None = None
    by_line: tuple[int, Trace] | None = None
    for number, trace in traces:
        if trace.question.id == selected:
            found = number, trace
        if selected in (str(number), "-1"):
            by_line = number, trace
    if chosen := found or by_line:
        return chosen
    raise BadInput(f"{path}: has no line {selected} and no question with this id.")


def _line(number: int, trace: Trace) -> str:
    answer = trace.answer
    said = f"failed: {trace.error}" if trace.error else answer.text if answer else ""
    name = trace.question.id and f"{visible(trace.question.id)}  "
    stop = f" [{answer.stop}]" if answer else ""
    asked = snippet(trace.question.text, 70)
    return f"{number:>6}  {name}{asked}  ->  {snippet(said, 60) or '(no answer)'}{stop}"
