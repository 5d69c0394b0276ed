"""Run an experiment: what is finished stays, what is missing is run."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from multihop import evaluation, runs
from multihop.experiments.asked import Asked
from multihop.experiments.folder import specification, start, status
from multihop.experiments.plan import Cell, Plan
from multihop.experiments.results import choose
from multihop.strategies import RunBudget
from multihop.text import Json
from multihop.trace import Strategy


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that can begin.

    Attributes:
        strategy: Over its opened parts.
        record: What else decides the result, as `evaluation.evaluate_each` takes it.
        concurrency: Questions at work at once.
    """

    strategy: Strategy
    record: Mapping[str, Json]
    concurrency: int


Telling = Callable[[Cell], AbstractContextManager[Callable[[evaluation.Progress], None] | None]]
"""From a run to what is told of its progress."""


class Opener(Protocol):
    """Opens what runs need, and keeps it for the next ones where it can."""

    async def open(self, plan: Plan, cell: Cell) -> Ready:
        """Make a run's strategy."""
        ...


async def run(
    plan: Plan,
    asked: Asked,
    folder: Path,
    opener: Opener,
    *,
    retry_failed: bool = False,
    give_up_after: int = 10,
    budget: RunBudget | None = None,
    telling: Telling | None = None,
) -> int:
    """Run what is missing, in the order of the plan: a grid on dev, then its choice on test.

    A run that is finished is not opened again, so that a finished experiment needs neither
    model nor corpus. The same call goes on where it was after any interruption, question by
    question.

    Args:
        plan: What to run.
        asked: Its questions, from `asked.look`.
        folder: The experiment's.
        opener: Opens models and corpora.
        retry_failed: Ask again the questions that failed in an earlier sitting.
        give_up_after: Stop after so many failures in a row.
        budget: What the whole experiment may cost, earlier sittings included.
        telling: Entered for each run that is not finished, and told of its progress.

    Returns:
        How many questions were left in the run that a budget ended; 0 when all is done.

    Raises:
        BadInput: The folder holds runs of another experiment; nothing was changed.
        MultihopError: Everything fails. What was finished is kept.
    """
    start(folder, plan, asked)

    async def work(cell: Cell) -> int:
        state = status(folder / cell.name)
        if state.done and not (retry_failed and state.failed):
            if budget:
                _count(budget, folder / cell.name)
            return 0
        with telling(cell) if telling else nullcontext() as tell:
            ready = await opener.open(plan, cell)
            return await evaluation.evaluate_each(
                asked.questions[cell.entry.dataset, cell.part],
                {"": ready.strategy},
                folder / cell.name,
                concurrency=ready.concurrency,
                record={**ready.record, "experiment": specification(plan, cell)},
                retry_failed=retry_failed,
                give_up_after=give_up_after,
                budget=budget,
                on_progress=tell,
            )

    for entry in plan.entries:
        for cell in entry.dev():
            if left := await work(cell):
                return left
        # Two kinds may choose two settings.
        settings = [choose(plan, entry, kind, folder).setting for kind in entry.kinds]
        for setting in dict.fromkeys(settings):
            assert setting is not None, "the grid on dev is finished"
            for cell in entry.test(setting):
                if left := await work(cell):
                    return left
    return 0


def _count(budget: RunBudget, folder: Path) -> None:
    """Count what a finished run has cost, under the key that an evaluation would count it by."""
    steps = (step for _, trace in runs.read_folder(folder) for step in trace.steps)
    budget.count_once((folder / runs.TRACES).resolve(), steps)
