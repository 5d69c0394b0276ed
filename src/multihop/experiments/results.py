"""From an experiment's runs to its figures: settings chosen on dev, means and spreads on test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multihop import runs
from multihop.cost import Prices
from multihop.errors import BadInput
from multihop.experiments.config import Kind
from multihop.experiments.folder import Status, status
from multihop.experiments.plan import Cell, Entry, Plan, Setting
from multihop.experiments.scores import Scores, criterion, over_questions, reported, score
from multihop.metrics import Mean, OverSets, best, mean, over_sets


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting that dev chose.

    Attributes:
        setting: K and M; None while dev is unfinished.
        by: The criterion's name; empty where there was nothing to choose.
        value: Its value on dev in percent; None where nothing was chosen.
        grid: All its values in percent, in grid order; None where a run is unfinished.
    """

    setting: Setting | None
    by: str = ""
    value: float | None = None
    grid: tuple[float | None, ...] = ()


_NOT_RUN = OverSets((), None, None)


@dataclass(frozen=True, slots=True)
class Figure:
    """A field of a table.

    Attributes:
        entry: Whose.
        kind: What is scored.
        measure: The name of the number.
        choice: The setting.
        cells: The runs on test at this setting, one a set; none while nothing is chosen.
        statuses: How far they are.
        over: Percent over the sets; a value is None where the run is unfinished.
        error: Standard error over questions in percent, each with its mean over the sets.
        questions: How many were scored in every set together.
        costs: Means a question, over all sets.
        failed: Questions that ended in an error, over all sets; they are in no mean.
    """

    entry: Entry
    kind: Kind
    measure: str
    choice: Choice
    cells: tuple[Cell, ...] = ()
    statuses: tuple[Status, ...] = ()
    over: OverSets = _NOT_RUN
    error: float | None = None
    questions: int = 0
    costs: Mapping[str, float] = field(default_factory=dict, hash=False)
    failed: int = 0

    @property
    def missing(self) -> tuple[Cell, ...]:
        """The runs on test that are not finished."""
        pairs = zip(self.cells, self.statuses, strict=True)
        return tuple(cell for cell, state in pairs if not state.done)


@dataclass(frozen=True)
class Results:
    """All figures of an experiment.

    Attributes:
        plan: What was run.
        figures: In the order of the plan, for each entry one a kind.
        notes: What a reader of the tables must know.
    """

    plan: Plan
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether no run is missing."""
        return all(f.choice.setting is not None and not f.missing for f in self.figures)

    @property
    def failed(self) -> int:
        """Questions that ended in an error in the runs of the tables."""
        return sum(figure.failed for figure in self.figures)


def choose(plan: Plan, entry: Entry, kind: Kind, folder: Path) -> Choice:
    """The best setting on dev, by the plan's criterion; scored anew each time it is asked for."""
    if not entry.chooses:
        return Choice(entry.grid[0])
    measure = criterion(kind, plan.experiment.metrics)
    rule = plan.experiment.metrics.rule
    shares: list[float | None] = []
    for cell in entry.dev():
        if not status(folder / cell.name).done:
            shares.append(None)
            continue
        share = score(folder / cell.name, [measure]).shares[measure.name]
        if share is None:
            raise BadInput(
                f"{folder / cell.name}: {measure.name} applies to none of its finished questions, "
                "so the best setting cannot be told. Give the questions gold answers or passages, "
                f"or name another metric by choose_{kind}."
            )
        shares.append(share)
    grid = tuple(None if share is None else 100 * share for share in shares)
    if None in shares:
        return Choice(None, measure.name, None, grid)
    setting, value = best(entry.grid, shares, rule)
    return Choice(setting, measure.name, value, grid)


def results(plan: Plan, folder: Path, *, prices: Prices | None = None) -> Results:
    """Read all figures out of an experiment's folder.

    Args:
        plan: Its plan; with other metrics than it was run with, if so wanted.
        folder: The folder.
        prices: For costs in money.
    """
    figures = tuple(
        _figure(plan, entry, kind, folder, prices) for entry in plan.entries for kind in entry.kinds
    )
    notes = (*plan.notes, *_mixtures(figures, folder))
    return Results(plan, figures, tuple(dict.fromkeys(notes)))


def _figure(plan: Plan, entry: Entry, kind: Kind, folder: Path, prices: Prices | None) -> Figure:
    measure = reported(kind, plan.experiment.metrics)
    choice = choose(plan, entry, kind, folder)
    if choice.setting is None:
        return Figure(entry, kind, measure.name, choice)
    cells = tuple(entry.test(choice.setting))
    statuses = tuple(status(folder / cell.name) for cell in cells)
    scored = [
        score(folder / cell.name, [measure], plan.experiment.metrics.more, prices)
        for cell, state in zip(cells, statuses, strict=True)
        if state.done
    ]
    left = iter(scored)
    shares = [next(left).shares[measure.name] if state.done else None for state in statuses]
    over = over_questions(scored, measure.name)
    return Figure(
        entry,
        kind,
        measure.name,
        choice,
        cells,
        statuses,
        over_sets(shares),
        None if over.error is None else 100 * over.error,
        over.n,
        _costs(scored),
        sum(state.failed for state in statuses),
    )


def _costs(scored: Sequence[Scores]) -> dict[str, float]:
    """Means a question over all runs, of what applies in every run."""
    if not scored:
        return {}
    found = {}
    for name in scored[0].means:
        means: list[Mean] = [run.means[name] for run in scored if name in run.means]
        if len(means) == len(scored):
            value = mean(m.value for m in means).value
            if value is not None:
                found[name] = value
    return found


def _mixtures(figures: Sequence[Figure], folder: Path) -> list[str]:
    """What differs between runs that stand side by side, though it should not."""
    versions: set[str] = set()
    corpora: dict[str, set[str]] = {}
    for figure in figures:
        for cell in figure.cells:
            if not (folder / cell.name / runs.RUN).exists():
                continue
            manifest = runs.manifest(folder / cell.name)
            versions.add(str(manifest.get("multihop")))
            parts = manifest.get("parts")
            corpus = parts.get("corpus") if isinstance(parts, dict) else None
            if isinstance(corpus, str):
                corpora.setdefault(figure.entry.dataset, set()).add(corpus)
    notes = []
    if len(versions) > 1:
        notes.append(f"runs are of several versions of multihop: {', '.join(sorted(versions))}")
    notes += [
        f"{name}: runs searched {len(hashes)} different corpora"
        for name, hashes in corpora.items()
        if len(hashes) > 1
    ]
    return notes
