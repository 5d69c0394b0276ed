"""A comparison as rows: for the terminal, Markdown, CSV and JSON."""

import csv
import io
from collections.abc import Iterable, Sequence

from multihop.comparison.paired import Comparison, Measured
from multihop.comparison.sections import diagnoses
from multihop.comparison.wording import figure, label, probability, signed
from multihop.shown import visible
from multihop.text import Json

HEADS = ("metric", "run", "mean", "difference", "interval", "p (Holm)")
"""Means are given with their standard error, differences with an interval."""


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A line for each metric of each run, under `HEADS`; text is as found."""
    found = []
    for name in comparison.metrics:
        for run in comparison.runs:
            measured = comparison.of(run, name)
            first = label(name) if run is comparison.runs[0] else ""
            found.append((first, run.name, *_cells(comparison, measured)))
    return found


def _cells(comparison: Comparison, measured: Measured) -> tuple[str, ...]:
    name, found = measured.metric, measured.mean
    if found.value is None:
        return ("-", "", "", "")
    few = f" (n={found.n})" if found.unscored else ""
    error = "" if found.error is None else f" ± {figure(name, found.error)}"
    mean = f"{figure(name, found.value)}{error}{few}"
    difference, p = measured.difference, measured.adjusted
    if difference is None or p is None:
        return (mean, "reference" if measured.run == comparison.reference.name else "-", "", "")
    span = f"{signed(name, difference.low)} to {signed(name, difference.high)}"
    return (mean, signed(name, difference.mean), span, probability(p))


def wrong(comparison: Comparison) -> list[tuple[str, ...]]:
    """A line for each diagnosis that occurs: its name, and how often in each run."""
    tallies = [diagnoses(comparison, run) for run in comparison.runs]
    return [
        (kind, *(f"{tally[kind]:,}" for tally in tallies))
        for kind in tallies[0]
        if any(tally[kind] for tally in tallies)
    ]


def counted(comparison: Comparison) -> str:
    """Over which questions the figures are, in a sentence or two."""
    total, used = comparison.questions, len(comparison.shared)
    of = f"all {used:,}" if used == total else f"{used:,} of {total:,}"
    said = (
        f"Compared on {of} questions, those that all runs have finished. p is corrected by Holm "
        f"over {comparison.comparisons} comparisons; intervals cover {comparison.level:.0%}."
    )
    left = [
        f"{run.name} {run.failed:,} failed, {run.missing:,} not asked yet"
        for run in comparison.runs
        if run.failed or run.missing
    ]
    return f"{said} Left out of every figure: {'; '.join(left)}." if left else said


def markdown(comparison: Comparison) -> str:
    """Both tables as Markdown."""
    names = [run.name for run in comparison.runs]
    return "\n".join(
        (
            *_markdown(HEADS, rows(comparison), left=2),
            "",
            *_markdown(("diagnosis", *names), wrong(comparison), left=1),
            "",
            _plain(counted(comparison)),
        )
    )


def _markdown(heads: Sequence[str], lines: Iterable[Sequence[str]], left: int) -> list[str]:
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return ["| " + " | ".join(map(_plain, line)) + " |" for line in (heads, rule, *lines)]


def _plain(words: str) -> str:
    return visible(words).replace("|", "\\|").replace("<", "&lt;")


def to_dict(comparison: Comparison) -> dict[str, Json]:
    """As JSON data."""
    return {
        "reference": comparison.reference.name,
        "questions": comparison.questions,
        "compared": len(comparison.shared),
        "level": comparison.level,
        "samples": comparison.samples,
        "comparisons": comparison.comparisons,
        "runs": [
            {
                "run": run.name,
                "folder": str(run.folder),
                "strategy": run.strategy,
                "asked": run.asked,
                "finished": len(run.rows) - run.failed,
                "failed": run.failed,
                "missing": run.missing,
                "diagnoses": dict(diagnoses(comparison, run)),
            }
            for run in comparison.runs
        ],
        "measured": [dict(each) for each in map(_numbers, comparison.measured)],
    }


def _numbers(measured: Measured) -> dict[str, Json]:
    found = measured.difference
    return {
        "metric": measured.metric,
        "run": measured.run,
        "mean": measured.mean.value,
        "standard_error": measured.mean.error,
        "n": measured.mean.n,
        "unscored": measured.mean.unscored,
        "difference": found.mean if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "pairs": found.n if found else None,
        "above": measured.above if found else None,
        "below": measured.below if found else None,
        "test": measured.test or None,
        "p": measured.p,
        "p_holm": measured.adjusted,
    }


def measured_csv(comparison: Comparison) -> str:
    """The figures as CSV, full digits; shares in [0, 1]."""
    return _csv(list(map(_numbers, comparison.measured)))


def questions_csv(comparison: Comparison) -> str:
    """A line for each question of each run, those that failed too, with every metric's value."""
    lines: list[dict[str, Json]] = []
    shared = set(comparison.shared)
    for run in comparison.runs:
        for name, row in run.rows.items():
            values = row.values or (None,) * len(comparison.metrics)
            diagnosis = row.diagnosis
            kind = diagnosis.name if diagnosis else "right" if row.right else ""
            lines.append(
                {
                    "run": run.name,
                    "id": name,
                    "kind": row.question.kind,
                    "compared": int(name in shared),
                    "answer": row.answer,
                    "gold": " | ".join(row.question.answers),
                    "stop": row.stop,
                    "error": row.error,
                    "diagnosis": kind,
                    "why": diagnosis.why if diagnosis else "",
                    **dict(zip(comparison.metrics, values, strict=True)),
                }
            )
    return _csv(lines)


def _csv(lines: Sequence[dict[str, Json]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in line.items()} for line in lines)
    return text.getvalue()


def _cell(value: Json) -> Json:
    """Text that a spreadsheet would take for a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown
