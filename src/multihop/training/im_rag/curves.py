"""The curves of a reinforcement run as one HTML page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multihop.training import curves
from multihop.training.curves import Line, Records, chart

CHARTS = (
    ("Reward and its parts", ("reward", "f1", "progress", "recall", "usable")),
    ("Turns of a rollout", ("turns",)),
    ("Tokens of a query", ("query_tokens",)),
    ("Share of groups without spread; of tokens held back", ("idle", "clipped")),
    ("Entropy, nats a token", ("entropy",)),
    ("KL towards the start, nats a token", ("kl",)),
    ("Norm of the gradient", ("norm",)),
    ("Difference of log-probabilities between writing and learning", ("mismatch",)),
    ("Seconds of a step", ("writing", "learning")),
)
"""Each chart's title, and what of a step it shows."""


def write(folder: Path, title: str) -> Path:
    """Make `curves.html` of a run folder's `curves.jsonl`; see `training.curves.write`."""
    return curves.write(folder, title, page)


def page(records: Records, title: str) -> str:
    """The page: training solid, validation dashed."""
    steps = [each for each in records if "valid" not in each]
    checks = [each for each in records if "valid" in each]
    charts = []
    for heading, names in CHARTS:
        lines = []
        for colour, name in enumerate(names):
            lines.append(Line(name, _of(steps, name), colour))
            if heading == CHARTS[0][0]:
                lines.append(Line(f"{name}, validation", _of(checks, name), colour, dashed=True))
        charts.append(chart(heading, lines, zero=True))
    about = f"{len(steps)} steps, {len(checks)} validations (dashed)."
    return curves.document(title, about, "".join(charts))


def _of(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(float(each["step"]), float(each[name])) for each in records if name in each]
