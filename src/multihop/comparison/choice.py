"""Which questions a report shows: examples of each diagnosis, wins and losses, then the others."""

from multihop.comparison.diagnosis import CLASSES
from multihop.comparison.paired import Comparison, Run

EXAMPLES = 3
"""Example traces of each diagnosis of each run."""

WINS = 10
"""Questions listed where one run is ahead of the reference, and as many where it is behind."""


def chosen(comparison: Comparison, most: int) -> list[str]:
    """Ids of at most so many shared questions, the most telling first."""
    found: dict[str, None] = {}
    for run in comparison.runs:
        for name in CLASSES:
            found.update(dict.fromkeys(examples(comparison, run, name)))
    for run in comparison.runs:
        for names in ahead(comparison, run):
            found.update(dict.fromkeys(names[:WINS]))
    found.update(dict.fromkeys(comparison.shared))
    return list(found)[:most]


def examples(comparison: Comparison, run: Run, name: str) -> list[str]:
    """The first questions that a run's wrong answer to is sorted so."""
    of = [
        each
        for each in comparison.shared
        if (diagnosis := run.rows[each].diagnosis) and diagnosis.name == name
    ]
    return of[:EXAMPLES]


def ahead(comparison: Comparison, run: Run) -> tuple[list[str], list[str]]:
    """Questions where a run is ahead of the reference, most first, and where it is behind."""
    if run is comparison.reference or not comparison.metrics:
        return [], []
    name = next((m for m in ("f1", "em") if m in comparison.metrics), comparison.metrics[0])
    pairs = zip(
        comparison.shared,
        comparison.values(run, name),
        comparison.values(comparison.reference, name),
        strict=True,
    )
    by = {each: a - b for each, a, b in pairs if a is not None and b is not None and a != b}
    order = sorted(by, key=lambda each: -by[each])
    return [e for e in order if by[e] > 0], [e for e in reversed(order) if by[e] < 0]
