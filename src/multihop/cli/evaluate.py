"""`multihop eval`: run strategies on a question file, resumably, and score them."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click

from multihop import evaluation, names, runs
from multihop.cli import budgets, parts, report
from multihop.cli.progress import progress
from multihop.cli.render import visible
from multihop.cluster import Cluster, ray_cluster
from multihop.errors import BadInput
from multihop.lms.cache import CachedLM
from multihop.lms.layers import questions_at_work
from multihop.lms.wrapper import identity
from multihop.text import Json, Question
from multihop.trace import Strategy


@click.command(name="eval")
@click.argument("questions")
@parts.options
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Run folder. By default one named by questions and settings, so that the same command "
    "goes on where it was.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Ask only the first N.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Questions at work at once. By default a quarter more than --calls, so that a server "
    "is busy while others search; with the embedded model as many as it has slots.",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Ask on the workers of a Ray cluster: HOST:PORT, auto for the one that this machine is "
    "part of, or local for one that is started here. --calls and --concurrency are a worker's.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processes of --ray; by default one a node.",
)
@click.option("--retry-failed", is_flag=True, help="Ask again what failed in an earlier sitting.")
@click.option(
    "--give-up-after",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Stop after N failures in a row.",
)
@budgets.run_options
@report.options
def evaluate(
    *,
    questions: str,
    into: Path | None,
    limit: int | None,
    concurrency: int | None,
    ray: str | None,
    workers: int | None,
    retry_failed: bool,
    give_up_after: int,
    form: report.Form,
    more: tuple[str, ...],
    **chosen: Any,
) -> int:
    """Run strategies on QUESTIONS and score them.

    QUESTIONS is a file of JSON lines (id, question, answers, ...), or KIND:PATH with a file in a
    data set's own format, as hotpotqa:hotpot_dev_distractor_v1.json, or KIND:SPLIT with one that
    was downloaded, as hotpotqa:dev.

    Each finished question is on disk at once: after a kill, the same command goes on where it
    was, and run at the same time elsewhere over the same run folder it takes a share of the
    questions. Several strategies take turns on each question. Questions that fail are reported and
    are in no mean. A run that ends by its budget keeps what it has and tells what is left.
    """
    if workers and not ray:
        raise BadInput("--workers N is for --ray. Without Ray run the same command N times.")
    chosen_parts = parts.Parts.read(chosen, several=True)
    rows = {name: names.open_metric(name) for name in more}
    asked = First(names.open_questions(questions), limit)
    fingerprint = evaluation.fingerprint(asked)

    async def run() -> tuple[list[Path], int]:
        async with chosen_parts.opened() as opened:
            # What a name stands for may change: weights, a script, a server's settings.
            record = {**opened.record, "model": dict(identity(opened.lm))}
            folder = into or _default(questions, opened.strategies, record, fingerprint)
            several = len(opened.strategies) > 1
            named = {name if several else "": s for name, s in opened.strategies.items()}
            at_once = concurrency or questions_at_work(opened.lm, chosen_parts.calls)
            async with AsyncExitStack() as around:
                cluster: Cluster | None = None
                if ray:
                    cluster = await around.enter_async_context(
                        ray_cluster(
                            ray,
                            chosen_parts.elsewhere().opened,
                            opened.record,
                            opened.strategies,
                            workers=workers,
                            at_once=at_once,
                        )
                    )
                tell = around.enter_context(progress())
                left = await evaluation.evaluate_each(
                    asked,
                    named,
                    folder,
                    concurrency=at_once * (cluster.workers if cluster else 1),
                    record=record,
                    retry_failed=retry_failed,
                    give_up_after=give_up_after,
                    budget=chosen_parts.budgets.run,
                    on_progress=tell,
                    ask=_asking(cluster, chosen_parts.strategies) if cluster else None,
                )
            click.echo(f"Run folder: {visible(str(folder))}", err=True)
            if isinstance(opened.lm, CachedLM):
                given = opened.lm.hits + opened.lm.joined
                asked_for = given + opened.lm.misses
                click.echo(f"Cache: {given} of {asked_for} LM calls were replayed.", err=True)
            return [folder / name for name in named], left

    folders, left = asyncio.run(run())
    limits = chosen_parts.budgets
    reports = [evaluation.score(folder, rows, prices=limits.prices) for folder in folders]
    report.show(reports, form)
    if left and limits.run:
        click.echo(
            f"The run's budget is used up ({limits.run.reached}): {left} of "
            f"{sum(r.questions for r in reports)} questions were left. The same command with a "
            "larger budget goes on.",
            err=True,
        )
    return 1 if left or any(r.failed for r in reports) else 0


def _asking(cluster: Cluster, strategies: Sequence[str]) -> evaluation.Ask:
    """Asks a cluster; a lone strategy has no name in a run."""
    return lambda name, question: cluster.ask(name or strategies[0], question)


@dataclass(frozen=True, slots=True)
class First:
    """The first questions of a file, or all; may be read again and again."""

    questions: Iterable[Question]
    count: int | None

    def __iter__(self) -> Iterator[Question]:
        """From the beginning."""
        return islice(self.questions, self.count)


def _default(
    questions: str,
    strategies: Mapping[str, Strategy],
    record: Mapping[str, Json],
    fingerprint: evaluation.Fingerprint,
) -> Path:
    """A folder that the same questions and settings lead to again."""
    content = [
        evaluation.identity(strategy, fingerprint, record) for strategy in strategies.values()
    ]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    kind, colon, target = questions.rpartition(":")
    asked = f"{kind}{colon and '-'}{Path(target).stem}"
    return runs.home() / f"{Path(asked).name}-{'+'.join(strategies)}-{digest}"
