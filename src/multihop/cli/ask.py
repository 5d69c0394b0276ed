"""`multihop ask`: the default verb."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from multihop import runs
from multihop.cli import parts
from multihop.cli.render import Drawing, about, terminal, visible
from multihop.datasets.questions import read_question
from multihop.errors import BadInput, MultihopError
from multihop.text import Json, Passage, Question, json_object
from multihop.trace import Strategy, Trace, trace


@click.command()
@click.argument("question", required=False)
@parts.options
@click.option("--json", "as_json", is_flag=True, help="Print whole traces as JSON.")
@click.option("--prompts", is_flag=True, help="Show each prompt and raw output too.")
@click.option("-q", "--quiet", is_flag=True, help="Show no steps, only the answer.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    metavar="N",
    help="Questions from standard input at work at once.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder that the trace is kept in; by default one a day, see `multihop show`.",
)
def ask(
    *,
    question: str | None,
    as_json: bool,
    prompts: bool,
    quiet: bool,
    concurrency: int,
    into: Path | None,
    **chosen: Any,
) -> int:
    """Answer QUESTION; the answer goes to stdout, the steps to stderr.

    Without QUESTION, questions are read from standard input, one a line, as plain text or as
    JSON objects with the field "question"; one line of JSON per question is printed, in order.

    Every trace is kept; `multihop show` replays the latest.
    """
    chosen_parts = parts.Parts.read(chosen)
    kept = into / runs.TRACES if into else runs.asks()
    if question is not None:
        prices = chosen_parts.budgets.prices
        drawing = None if quiet else Drawing(terminal(), prompts=prompts, prices=prices)
        return asyncio.run(_one(_typed(question), chosen_parts, kept, drawing, as_json=as_json))
    if sys.stdin.isatty():
        raise click.UsageError("Ask something: multihop ask QUESTION --index DIR")
    # A file object of its own: Python may end while the thread still waits in a read.
    lines = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    return asyncio.run(_many(lines, chosen_parts, kept, concurrency, as_json=as_json))


async def _one(
    question: Question,
    chosen: parts.Parts,
    kept: Path,
    drawing: Drawing | None,
    *,
    as_json: bool,
) -> int:
    async with chosen.opened() as opened:
        [strategy] = opened.strategies.values()
        if drawing:
            drawing.question(question, about(strategy.name, strategy.settings))
        result = await trace(
            strategy, question, drawing.step if drawing else None, keep_errors=True
        )
    where = _keep(kept, result)
    if result.error:  # the steps before it are kept, so it is raised only now
        raise MultihopError(f"{result.error.partition(': ')[2]}{where and f' Trace: {where}'}")
    answer = result.answer
    if as_json:
        click.echo(result.to_json())
    elif answer and answer.text:
        click.echo(visible(answer.text))
    if drawing:
        if answer:
            drawing.evidence(answer)
        drawing.cost(result)
        if where:
            click.echo(f"  multihop show {where}", err=True)
    elif answer and not answer.text:
        click.echo(f"multihop: no answer: {visible(answer.reason)}", err=True)
    return 0 if answer and answer.text else 1


async def _many(
    lines: Iterable[bytes], chosen: parts.Parts, kept: Path, concurrency: int, *, as_json: bool
) -> int:
    asked = failed = unanswered = 0
    last = ""
    async with chosen.opened() as opened:
        [strategy] = opened.strategies.values()
        questions = _questions(lines, concurrency)
        async with aclosing(_in_order(strategy, questions, concurrency)) as results:
            async for result in results:
                _keep(kept, result)
                asked += 1
                if result.error:
                    failed, last = failed + 1, result.error
                    click.echo(f"multihop: question {asked}: {visible(last)}", err=True)
                elif not (result.answer and result.answer.text):
                    unanswered += 1
                click.echo(result.to_json() if as_json else json.dumps(_short(result)))
    if asked and failed == asked:
        raise MultihopError(f"All {asked} questions failed; the last: {last.partition(': ')[2]}")
    return 1 if failed or unanswered else 0


async def _questions(lines: Iterable[bytes], ahead: int) -> AsyncGenerator[Question, None]:
    """The questions of standard input, read in a thread so that a slow writer blocks nobody."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Question | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(ahead)

    def put(item: Question | BaseException | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def read() -> None:
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    put(_line(line, number))
        except (MultihopError, OSError) as failure:
            put(failure)
        else:
            put(None)

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while (item := await queue.get()) is not None:
        room.release()
        if isinstance(item, BaseException):
            raise item
        yield item


async def _in_order(
    strategy: Strategy, questions: AsyncGenerator[Question, None], concurrency: int
) -> AsyncGenerator[Trace, None]:
    """Traces in the order of their questions; at most `concurrency` run, a few more wait."""
    working = asyncio.Semaphore(concurrency)
    room = asyncio.Semaphore(4 * concurrency)
    waiting: asyncio.Queue[asyncio.Task[Trace] | None] = asyncio.Queue()
    unfinished: set[asyncio.Task[Trace]] = set()

    async def work(question: Question) -> Trace:
        async with working:
            return await trace(strategy, question, keep_errors=True)

    async def feed() -> None:
        try:
            async for question in questions:
                await room.acquire()
                task = asyncio.create_task(work(question))
                unfinished.add(task)
                waiting.put_nowait(task)
        finally:
            waiting.put_nowait(None)

    feeder = asyncio.create_task(feed())
    try:
        while (task := await waiting.get()) is not None:
            result = await task
            unfinished.discard(task)
            room.release()
            yield result
        await feeder  # raises what reading raised, after the questions before it
    finally:
        for left in (feeder, *unfinished):
            left.cancel()
        await asyncio.gather(feeder, *unfinished, return_exceptions=True)


def _line(content: bytes, number: int) -> Question:
    """One line of standard input: a JSON object, or the question itself."""
    where = f"<stdin>:{number}"
    try:
        line = content.decode()
    except UnicodeDecodeError as broken:
        raise BadInput(f"{where}: not UTF-8 ({broken}).") from None
    if not line.lstrip().startswith("{"):
        return _typed(line.strip(), where)
    return read_question(json_object(line, where), where)


def _typed(text: str, where: str = "The question") -> Question:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{where}: is not valid UTF-8.") from None
    if not text.strip():
        raise BadInput(f"{where}: is empty. Ask something.")
    return Question(text)


def _short(result: Trace) -> dict[str, Json]:
    answer = result.answer
    return {
        "id": result.question.id,
        "question": result.question.text,
        "answer": answer.text if answer else "",
        "answers": list(answer.answers) if answer else [],
        "stop": answer.stop if answer else None,
        "reason": answer.reason if answer else "",
        "error": result.error,
        "passages": [_evidence(p) for p in answer.passages] if answer else [],
        "seconds": round(result.seconds, 3),
    }


def _evidence(passage: Passage) -> dict[str, Json]:
    """A passage, and where its source can be opened."""
    told: dict[str, Json] = {"id": passage.id, "title": passage.title}
    return {**told, "place": passage.place} if passage.place else told


def _keep(path: Path, result: Trace) -> str:
    """Keep a trace. That it cannot be kept is said, but takes nobody's answer away."""
    try:
        offset = runs.append(path, result)
    except OSError as failure:
        click.echo(f"multihop: the trace was not kept: {path}: {failure.strerror}.", err=True)
        return ""
    return f"{path}:{runs.line_at(path, offset)}"
