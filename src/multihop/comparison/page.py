"""A comparison as one HTML page that needs nothing but itself.

No network, no library: style and script stand in page.css and page.js beside this file and are
written into the page, the plots are SVG made here, and the page forbids itself everything else
(its content security policy names the hash of its one script). All text is escaped by
`plots.text`. Without its script the page lacks sorting and filters and nothing else.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from multihop import files
from multihop.comparison import figures, sections, told
from multihop.comparison.choice import chosen
from multihop.comparison.paired import Comparison
from multihop.comparison.plots import text
from multihop.comparison.told import verdict
from multihop.comparison.wording import count
from multihop.evaluation import finished


def write(comparison: Comparison, path: Path, *, traces: int = 60) -> int:
    """Write the page.

    Args:
        comparison: What it shows.
        path: The file; replaced when it exists.
        traces: Most questions whose traces are shown in full, one a run; first the examples and
            the wins and losses, then the others in their order.

    Returns:
        How many questions are shown with their traces.

    Raises:
        BadInput: A run was changed since it was compared.
    """
    shown = chosen(comparison, traces)
    files.write(path, page(comparison, shown, _told(comparison, shown)))
    return len(shown)


def page(comparison: Comparison, shown: Sequence[str], folds: str) -> str:
    """The page; `folds` are the traces of the questions that are `shown`, in order."""
    names = ", ".join(run.name for run in comparison.runs)
    title = f"{names} on {count(len(comparison.shared), 'question')}"
    links = {name: f"q{n}" for n, name in enumerate(shown)}
    parts = [
        ("summary", "Summary", sections.summary(comparison)),
        ("counted", "What was counted", sections.counted(comparison)),
        ("plots", "Plots", figures.drawn(comparison)),
        ("why", "Why wrong answers are wrong", sections.why(comparison, links)),
        ("wins", "Where one wins and another loses", sections.wins(comparison, links)),
        ("questions", "All questions", sections.questions(comparison, links)),
        ("traces", "Traces", sections.traces(comparison, shown, folds)),
        ("settings", "Settings", sections.settings(comparison)),
        ("method", "How to read this", sections.method(comparison)),
    ]
    style, script = _asset("page.css"), _asset("page.js")
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    nav = "".join(f'<li><a href="#{name}">{head}</a></li>' for name, head, _ in parts)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{head}</h2>\n'
        f"{inside}</section>\n"
        for name, head, inside in parts
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        f"<header><h1>{text(title)}</h1>\n"
        f'<p class="quiet">Compared with <b>{text(comparison.reference.name)}</b> on the same '
        "questions. Made by multihop from traces on disk; no model was run.</p>"
        f'<nav aria-label="Sections"><ul>{nav}</ul></nav></header>\n<main>\n{body}</main>\n'
        f"<script>{script}</script>\n</body></html>\n"
    )


def _told(comparison: Comparison, shown: Sequence[str]) -> str:
    """The traces of the chosen questions; the folders are read once more, a trace at a time."""
    wanted = set(shown)
    parts: dict[tuple[str, int], str] = {}
    for place, run in enumerate(comparison.runs):
        for trace in finished(run.folder):
            name = trace.question.id
            if name in wanted and name in run.rows:
                parts[name, place] = told.run(run.name, place, run.rows[name], trace)
    folds = []
    for number, name in enumerate(shown):
        question = comparison.reference.rows[name].question
        badges = "".join(
            f"<span>{text(run.name)} {verdict(run.rows[name])}</span>" for run in comparison.runs
        )
        inside = "".join(parts[name, place] for place in range(len(comparison.runs)))
        folds.append(
            f'<details class="question" id="q{number}"><summary>{text(question.text)}'
            f'<span class="badges">{badges}</span></summary><div class="inside">'
            f'{told.question(question)}<div class="runs">{inside}</div></div></details>\n'
        )
    return "".join(folds)


def _asset(name: str) -> str:
    return resources.files("multihop.comparison").joinpath(name).read_text("utf-8")
