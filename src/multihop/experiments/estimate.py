"""What an experiment will take, before it is run."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from multihop import strategies
from multihop.experiments.asked import Asked
from multihop.experiments.folder import status
from multihop.experiments.plan import Cell, Entry, Plan
from multihop.experiments.scores import score
from multihop.strategies.rules import preset
from multihop.text import Question

SENTENCES = 3
"""Taken for the length of a chain as long as nothing was measured."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one entry takes.

    Attributes:
        entry: Whose.
        dev, test: Questions of a run.
        grid: Runs on dev.
        tests: Runs on test; at most so many where two kinds may choose two settings.
        done: Runs that are finished.
        calls: LM calls of all runs together, about.
        most: The most there can be; None for a strategy of another package.
        measured: Whether the calls of a question are those of finished runs.
    """

    entry: Entry
    dev: int
    test: int
    grid: int
    tests: int
    done: int
    calls: int
    most: int | None
    measured: bool

    @property
    def questions(self) -> int:
        """Questions of all runs together."""
        return self.grid * self.dev + self.tests * self.test


def estimate(plan: Plan, asked: Asked, folder: Path) -> list[Estimate]:
    """What each entry takes.

    Args:
        plan: What is to be run.
        asked: Its questions.
        folder: Where runs may be that tell how many calls a question takes.
    """
    found = []
    for entry in plan.entries:
        cells = [*entry.dev(), *(c for s in entry.grid for c in entry.test(s))]
        done = [cell for cell in cells if status(folder / cell.name).done]
        grid = len(entry.dev())
        tests = len(entry.sets) * (len(entry.kinds) if entry.chooses else 1)
        dev = asked.fingerprints[entry.dataset, "dev"].count if entry.chooses else 0
        test = asked.fingerprints[entry.dataset, "test"].count
        usual, most = _calls(plan, entry, asked.questions[entry.dataset, "test"])
        measured = _measured(done, folder)
        each = usual if measured is None else measured
        count = grid * dev + tests * test
        found.append(
            Estimate(
                entry,
                dev,
                test,
                grid,
                tests,
                len(done),
                round(each * count),
                None if most is None else most * count,
                measured is not None,
            )
        )
    return found


def _measured(done: Iterable[Cell], folder: Path) -> float | None:
    for cell in done:
        if calls := score(folder / cell.name, []).means.get("lm_calls"):
            return calls.value
    return None


def _calls(plan: Plan, entry: Entry, questions: Iterable[Question]) -> tuple[float, int | None]:
    """LM calls of a question: about, and at most."""
    system, model = plan.system(entry), plan.model(entry)
    if system.strategy not in ("ircot", *strategies.WITHOUT_LOOP):
        return 1 + SENTENCES, None
    rules = preset(plan.preset(entry) or ("trained" if entry.bare else "default"), model.family)
    reader = (system.reader or rules.reader) != "none"
    titles = system.strategy != "nor" and next(iter(questions)).pinned is not None
    asked_for = rules.mended  # an answer that the text does not state is asked for
    steps = system.max_steps or rules.max_steps
    if system.strategy == "ircot":
        return SENTENCES + reader + titles, steps + reader + titles + asked_for
    return reader + titles, reader + titles + (reader and asked_for)
