"""The tables of an experiment, in the layout of the paper: systems in rows, data sets in columns.

`tables` makes them of results as plain text cells; `markdown`, `csv_lines` and `as_json` are its
written forms, and the command line draws it.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from multihop.experiments.config import Kind
from multihop.experiments.plan import Setting
from multihop.experiments.results import Figure, Results
from multihop.text import Json

BAR = 20
"""Width of a bar of 100 percent."""

_COSTS: tuple[tuple[str, str, int], ...] = (
    ("lm_calls", "LM calls", 1),
    ("prompt_tokens", "prompt tokens", 0),
    ("evaluated_tokens", "evaluated", 0),
    ("generated_tokens", "generated", 0),
    ("seconds", "seconds", 1),
    ("money", "money", 4),
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        title: What it shows, in a sentence.
        head: Names of the columns; the first `names` of them hold names.
        rows: The cells.
        names: How many columns hold names and stand to the left.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1


def tables(results: Results) -> list[Table]:
    """All tables that there is something for."""
    found = []
    kinds = dict.fromkeys(figure.kind for figure in results.figures)
    for kind in kinds:
        found.append(_main(results, kind))
        if kind == "passages":
            found += _bars(results)
    if any(figure.entry.chooses for figure in results.figures):
        found.append(_choices(results))
    if any(figure.costs for figure in results.figures):
        found.append(_costs(results))
    return found


def _figures(results: Results, kind: Kind) -> list[Figure]:
    return [figure for figure in results.figures if figure.kind == kind]


def _sets(figures: Iterable[Figure]) -> int:
    return max((len(figure.entry.sets) for figure in figures), default=1)


def _several(figures: Sequence[Figure], what: Callable[[Figure], str]) -> bool:
    return len({what(figure) for figure in figures}) > 1


def _main(results: Results, kind: Kind) -> Table:
    """The layout of the paper's table 4; the same for recall."""
    figures = _figures(results, kind)
    models = list(dict.fromkeys(f.entry.model for f in figures))
    columns = list(dict.fromkeys(f.entry.dataset for f in figures))
    by_place = {(f.entry.model, f.entry.system, f.entry.dataset): f for f in figures}
    rows = []
    for model in models:
        for system in dict.fromkeys(f.entry.system for f in figures):
            fields = (by_place.get((model, system, column)) for column in columns)
            rows.append((model, system, *(field(each) if each else "" for each in fields)))
    measure = ", ".join(dict.fromkeys(f.measure for f in figures))
    sets = _sets(figures)
    spread = f"mean ± standard deviation over {sets} sets of demonstrations" if sets > 1 else "mean"
    what = "Answers" if kind == "answer" else "Retrieval"
    title = f"{what}: {measure} in percent on test, {spread} [standard error over questions]"
    return Table(title, ("model", "system", *columns), tuple(rows), 2)


def field(figure: Figure) -> str:
    """A figure as its table has it; how far its runs are, while they are unfinished."""
    if figure.choice.setting is None:
        done = sum(value is not None for value in figure.choice.grid)
        return f"(dev: {done} of {len(figure.choice.grid)} runs)"
    if figure.missing:
        asked = sum(state.finished + state.failed for state in figure.statuses)
        if not any(state.questions for state in figure.statuses):
            return f"(test not run at {figure.choice.setting})"
        return f"(test: {asked} asked, {len(figure.missing)} of {len(figure.cells)} runs missing)"
    if figure.over.mean is None:
        return "-"
    text = f"{figure.over.mean:.1f}"
    if figure.over.std is not None:
        text += f" ± {figure.over.std:.1f}"
    if figure.error is not None:
        text += f" [{figure.error:.1f}]"
    return text + (f" ({figure.failed} failed)" if figure.failed else "")


def _bars(results: Results) -> list[Table]:
    """The layout of the paper's figure 3: recall of the systems side by side on each data set."""
    figures = _figures(results, "passages")
    if not any(figure.over.mean is not None for figure in figures):
        return []
    several = _several(figures, lambda figure: figure.entry.model)
    rows = []
    for (model, dataset), group in _groups(figures).items():
        first = group[0].over.mean
        for figure in group:
            value = figure.over.mean
            if value is None:
                continue
            gain = "" if figure is group[0] or first is None else f"{value - first:+.1f}"
            bar = "█" * round(BAR * value / 100)
            names = (model, dataset) if several else (dataset,)
            rows.append((*names, figure.entry.system, f"{value:.1f}", gain, bar))
    head = ("data set", "system", "recall", "gain", "")
    title = f"Recall side by side: {figures[0].measure} in percent; gain over the first system"
    return [Table(title, ("model", *head) if several else head, tuple(rows), 3 if several else 2)]


def _groups(figures: Iterable[Figure]) -> dict[tuple[str, str], list[Figure]]:
    groups: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.entry.model, figure.entry.dataset), []).append(figure)
    return groups


def _choices(results: Results) -> Table:
    rows = []
    for figure in results.figures:
        choice, entry = figure.choice, figure.entry
        if not entry.chooses:
            continue
        known = [value for value in choice.grid if value is not None]
        span = f"{min(known):.1f} to {max(known):.1f}" if known else ""
        setting = "(unfinished)" if choice.setting is None else str(choice.setting)
        names = (entry.model, entry.dataset, entry.system)
        rows.append((*names, choice.by, setting, _value(choice.value), span, str(len(entry.grid))))
    rule = results.plan.experiment.metrics.rule
    return Table(
        f"Settings chosen on dev with the first set of demonstrations; rule: {rule}, the first of "
        "equals",
        ("model", "data set", "system", "chosen by", "setting", "on dev", "grid", "settings"),
        tuple(rows),
        5,
    )


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _costs(results: Results) -> Table:
    seen: dict[tuple[str, str, str, Setting | None], Figure] = {}
    for figure in results.figures:
        entry = figure.entry
        if figure.costs:
            key = (entry.model, entry.dataset, entry.system, figure.choice.setting)
            seen.setdefault(key, figure)
    columns = [c for c in _COSTS if any(c[0] in f.costs for f in seen.values())]
    rows = [
        (
            *(model, dataset, system, str(setting)),
            *(_cost(figure, name, digits) for name, _, digits in columns),
        )
        for (model, dataset, system, setting), figure in seen.items()
    ]
    head = ("model", "data set", "system", "setting", *(label for _, label, _ in columns))
    return Table("Cost of a question on test, means over all sets", head, tuple(rows), 4)


def _cost(figure: Figure, name: str, digits: int) -> str:
    value = figure.costs.get(name)
    return "-" if value is None else f"{value:.{digits}f}"


# --- Written forms --------------------------------------------------------------------------


def markdown(results: Results) -> str:
    """All tables, and the notes, as Markdown."""
    parts = []
    for table in tables(results):
        left = ["---"] * table.names
        right = ["---:"] * (len(table.head) - table.names)
        lines = [table.head, tuple(left + right), *table.rows]
        text = "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)
        parts.append(f"{table.title}.\n\n{text}")
    if results.notes:
        parts.append("\n".join(f"- {_plain(note)}" for note in results.notes))
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


_HEAD = (
    *("model", "dataset", "system", "kind", "measure", "mean", "std", "standard_error"),
    *("questions", "failed", "sets", "values", "k", "m", "chosen_by", "on_dev", "complete"),
)


def records(results: Results) -> list[dict[str, Json]]:
    """A record for each figure, costs and further metrics in it."""
    found: list[dict[str, Json]] = []
    for figure in results.figures:
        entry, choice = figure.entry, figure.choice
        setting = choice.setting or Setting()
        done = choice.setting is not None and not figure.missing
        found.append(
            {
                "model": entry.model,
                "dataset": entry.dataset,
                "system": entry.system,
                "kind": figure.kind,
                "measure": figure.measure,
                "mean": figure.over.mean,
                "std": figure.over.std,
                "standard_error": figure.error,
                "questions": figure.questions,
                "failed": figure.failed,
                "sets": list(entry.sets),
                "values": list(figure.over.values),
                "k": setting.k,
                "m": setting.m,
                "chosen_by": choice.by,
                "on_dev": choice.value,
                "complete": done,
                "grid": [
                    {"k": s.k, "m": s.m, "on_dev": value}
                    for s, value in zip(entry.grid, choice.grid, strict=False)
                ],
                "runs": [cell.name for cell in figure.cells],
                "costs": dict(figure.costs),
            }
        )
    return found


def as_json(results: Results) -> dict[str, Json]:
    """All figures as JSON data."""
    experiment = results.plan.experiment
    return {
        "experiment": experiment.name,
        "rule": experiment.metrics.rule,
        "complete": results.complete,
        "figures": list(records(results)),
        "notes": list(results.notes),
    }


def csv_text(results: Results) -> str:
    """A line for each figure; numbers unrounded but for those that the paper rounds."""
    rows = records(results)
    costs = list(dict.fromkeys(name for figure in results.figures for name in figure.costs))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_HEAD, *costs])
    for row, figure in zip(rows, results.figures, strict=True):
        cells = [_text(row[name]) for name in _HEAD]
        writer.writerow([*cells, *(_text(figure.costs.get(name)) for name in costs)])
    return out.getvalue()


def _text(value: Json) -> str:
    if isinstance(value, list):
        return " ".join("-" if each is None else str(each) for each in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
