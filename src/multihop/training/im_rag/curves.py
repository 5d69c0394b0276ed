"""The curves of a reinforcement run as one HTML page."""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multihop import files
from multihop.errors import BadInput
from multihop.training.curves import CURVES, PAGE, STYLE, Line, chart

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
    """Make `curves.html` of a run folder's `curves.jsonl`.

    Raises:
        BadInput: There are no curves, or they are damaged.
    """
    path = folder / CURVES
    try:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        text = page(records, title)
    except OSError as failure:
        raise BadInput(f"{path}: {failure.strerror}.") from failure
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise BadInput(f"{path}: not the curves of a run ({broken}).") from None
    files.write(folder / PAGE, text)
    return folder / PAGE


def page(records: Sequence[Mapping[str, Any]], title: str) -> str:
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
    shown = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{shown}</title>\n'
        f"<style>\n{STYLE}</style></head><body>\n<h1>{shown}</h1>\n"
        f"<p>{len(steps)} steps, {len(checks)} validations (dashed).</p>\n"
        f"{''.join(charts)}</body></html>\n"
    )


def _of(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(float(each["step"]), float(each[name])) for each in records if name in each]
