"""The curves of a training run as one HTML page that needs nothing but itself."""

import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multihop import files
from multihop.errors import BadInput

CURVES, PAGE = "curves.jsonl", "curves.html"

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 10, 28
SMOOTH = 0.9
"""Weight of what was before in the mean that is drawn for the training loss."""

STYLE = """\
:root { color-scheme: light dark; --ink: #222; --faint: #ccc; --page: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --faint: #444; --page: #181818 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 760px; margin: 2rem auto; padding: 0 1rem }
svg { width: 100%; height: auto } text { fill: var(--ink); font-size: 12px }
.grid { stroke: var(--faint) } polyline { fill: none; stroke-width: 1.8 }
.valid { stroke-dasharray: 5 3 } table { border-collapse: collapse }
td, th { padding: .1rem .8rem .1rem 0; text-align: right } th:first-child { text-align: left }
.c0 { stroke: #2f6fb0; color: #2f6fb0 } .c1 { stroke: #d9730d; color: #d9730d }
.c2 { stroke: #2a9d5c; color: #2a9d5c } .c3 { stroke: #b0449a; color: #b0449a }
.c4 { stroke: #8a6d1d; color: #8a6d1d }
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart.

    Attributes:
        name: In the legend.
        points: (step, value) in order of steps; values that are no numbers leave a gap.
        colour: 0 to 4.
        dashed: For what was measured in validation; each point is marked.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False


Records = Sequence[Mapping[str, Any]]
"""Lines of a run's curves."""


def write(folder: Path, title: str, draw: Callable[[Records, str], str] | None = None) -> Path:
    """Make `curves.html` of a run folder's `curves.jsonl`.

    Args:
        folder: The run's.
        title: Of the page.
        draw: Makes the page of records and title; None is `page`, for supervised training.

    Raises:
        BadInput: There are no curves, or they are damaged.
    """
    path = folder / CURVES
    try:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        text = (draw or page)(records, title)
    except OSError as failure:
        raise BadInput(f"{path}: {failure.strerror}.") from failure
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise BadInput(f"{path}: not the curves of a run ({broken}).") from None
    files.write(folder / PAGE, text)
    return folder / PAGE


def page(records: Records, title: str) -> str:
    """The page of a supervised training.

    Args:
        records: Lines of the curves: of a step with "loss", "skills", "lr" and
            "tokens_per_second", or of a validation with "valid".
        title: Of the page.
    """
    steps = [each for each in records if "loss" in each]
    checks = [each for each in records if "valid" in each]
    charts = [
        chart("Loss by skill, nats a token", _losses(steps, checks), zero=True),
        chart("Learning rate", [Line("learning rate", _of(steps, "lr"), 0)], zero=True),
        chart("Tokens a second", [Line("tokens", _of(steps, "tokens_per_second"), 0)], zero=True),
    ]
    about = (
        f"{len(steps)} steps, {len(checks)} validations. Training (solid) is a running mean; "
        "validation is dashed."
    )
    return document(title, about, "".join(charts) + _table(checks))


def document(title: str, about: str, body: str) -> str:
    """A page that needs nothing but itself.

    Args:
        title: Is escaped.
        about: A line of plain text under it.
        body: HTML.
    """
    shown = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{shown}</title>\n'
        f"<style>\n{STYLE}</style></head><body>\n<h1>{shown}</h1>\n"
        f"<p>{html.escape(about)}</p>\n{body}</body></html>\n"
    )


def chart(title: str, lines: Iterable[Line], *, zero: bool = False) -> str:
    """One chart with its heading and legend; "" when there is nothing to draw.

    Args:
        title: Its heading, and what a screen reader says.
        lines: What is drawn.
        zero: Begin the axis at 0.
    """
    drawn = [
        Line(line.name, points, line.colour, line.dashed)
        for line in lines
        if (points := [p for p in line.points if math.isfinite(p[1])])
    ]
    if not drawn:
        return ""
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    low, high = (min(0.0, *ys, 0.0) if zero else min(ys)), max(ys)
    first, last = min(xs), max(xs)
    high = high if high > low else low + 1.0
    last = last if last > first else first + 1.0

    def at(x: float, y: float) -> str:
        across = LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        down = TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    parts = []
    for tick in range(5):
        value = low + (high - low) * tick / 4
        down = at(first, value).partition(",")[2]
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down}" y2="{down}"/>'
            f'<text x="{LEFT - 6}" y="{float(down) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    for x, anchor in ((first, "start"), (last, "end")):
        across = at(x, low).partition(",")[0]
        parts.append(
            f'<text x="{across}" y="{HEIGHT - 8}" text-anchor="{anchor}">step {x:g}</text>'
        )
    for line in drawn:
        places = [at(x, y) for x, y in line.points]
        kind = f"c{line.colour}" + (" valid" if line.dashed else "")
        parts.append(f'<polyline class="{kind}" points="{" ".join(places)}"/>')
        if line.dashed or len(places) == 1:
            parts += [
                f'<circle class="c{line.colour}" fill="currentColor" r="2.5" '
                f'cx="{place.partition(",")[0]}" cy="{place.partition(",")[2]}"/>'
                for place in places
            ]
    legend = " &nbsp; ".join(
        f'<span class="c{line.colour}">{"&#9476;" if line.dashed else "&#9473;"}</span> '
        f"{html.escape(line.name)}"
        for line in drawn
    )
    said = html.escape(title)
    return (
        f"<h2>{said}</h2>\n<p>{legend}</p>\n"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">'
        f"<title>{said}</title>{''.join(parts)}</svg>\n"
    )


def _losses(
    steps: Sequence[Mapping[str, Any]], checks: Sequence[Mapping[str, Any]]
) -> Iterable[Line]:
    skills = sorted({skill for each in steps for skill in each.get("skills", {})})
    skills += sorted({s for each in checks for s in each["valid"] if s} - set(skills))
    for number, skill in enumerate(skills):
        learned = [(e["step"], e["skills"][skill]) for e in steps if skill in e.get("skills", {})]
        yield Line(skill, _smooth(learned), number % 5)
        checked = [(e["step"], e["valid"][skill]) for e in checks if skill in e["valid"]]
        yield Line(f"{skill}, validation", checked, number % 5, dashed=True)


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A running mean that begins unbiased."""
    found = []
    total = weight = 0.0
    for step, value in points:
        if math.isfinite(value):
            total, weight = total * SMOOTH + value, weight * SMOOTH + 1
        found.append((step, total / weight if weight else math.nan))
    return found


def _of(steps: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(each["step"], each[key]) for each in steps if each.get(key) is not None]


def _table(checks: Sequence[Mapping[str, Any]]) -> str:
    """Validation losses as numbers."""
    if not checks:
        return ""
    names = list(dict.fromkeys(name for each in checks for name in each["valid"]))
    head = "".join(f'<th scope="col">{html.escape(name or "all")}</th>' for name in names)
    rows = "".join(
        f'<tr><th scope="row">{each["step"]}</th>'
        + "".join(
            f"<td>{each['valid'][name]:.4f}</td>" if name in each["valid"] else "<td></td>"
            for name in names
        )
        + "</tr>\n"
        for each in checks
    )
    return (
        f'<h2>Validation losses</h2>\n<table><thead><tr><th scope="col">step</th>{head}</tr>'
        f"</thead><tbody>\n{rows}</tbody></table>\n"
    )
