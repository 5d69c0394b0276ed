"""A comparison as one HTML page that needs nothing but itself.

No network, no library: style and script stand in page.css and page.js beside this file and are
written into the page, the plots are SVG made here, and the page forbids itself everything else
(its content security policy names the hash of its one script). All text is escaped by
`plots.text`. Without its script the page lacks sorting and filters and nothing else.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from multihop import runs
from multihop.comparison import plots, told
from multihop.comparison.diagnosis import CLASSES
from multihop.comparison.paired import CURVE, Comparison, Measured, Row, Run
from multihop.comparison.plots import Bar, Line, Point, text
from multihop.comparison.told import slug, verdict
from multihop.comparison.wording import (
    SIGNIFICANT,
    bounds,
    count,
    figure,
    label,
    probability,
    signed,
)
from multihop.evaluation import finished
from multihop.metrics import mean
from multihop.shown import STOPS
from multihop.text import Json

EXAMPLES = 3
"""Example traces of each diagnosis of each run."""

WINS = 10
"""Questions listed where one run is ahead of the reference, and as many where it is behind."""

KINDS = 12
"""Types of questions with a line of their own, the most frequent ones."""

ANSWER = 80
"""Characters of an answer in the table of all questions."""


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
    chosen = _chosen(comparison, traces)
    runs.write(path, page(comparison, chosen, _told(comparison, chosen)))
    return len(chosen)


def page(comparison: Comparison, chosen: Sequence[str], folds: str) -> str:
    """The page; `folds` are the traces of the questions that were `chosen`, in order."""
    names = ", ".join(run.name for run in comparison.runs)
    title = f"{names} on {count(len(comparison.shared), 'question')}"
    links = {name: f"q{n}" for n, name in enumerate(chosen)}
    sections = [
        ("summary", "Summary", _summary(comparison)),
        ("counted", "What was counted", _counted(comparison)),
        ("plots", "Plots", _plots(comparison)),
        ("why", "Why wrong answers are wrong", _why(comparison, links)),
        ("wins", "Where one wins and another loses", _wins(comparison, links)),
        ("questions", "All questions", _questions(comparison, links)),
        ("traces", "Traces", _traces(comparison, chosen, folds)),
        ("settings", "Settings", _settings(comparison)),
        ("method", "How to read this", _method(comparison)),
    ]
    style, script = _asset("page.css"), _asset("page.js")
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    nav = "".join(f'<li><a href="#{name}">{head}</a></li>' for name, head, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{head}</h2>\n'
        f"{inside}</section>\n"
        for name, head, inside in sections
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


def _asset(name: str) -> str:
    return resources.files("multihop.comparison").joinpath(name).read_text("utf-8")


# --- Which traces ---------------------------------------------------------------------------


def _chosen(comparison: Comparison, most: int) -> list[str]:
    found: dict[str, None] = {}
    for run in comparison.runs:
        for name in CLASSES:
            found.update(dict.fromkeys(_examples(comparison, run, name)))
    for run in comparison.runs:
        for names in _ahead(comparison, run):
            found.update(dict.fromkeys(names[:WINS]))
    found.update(dict.fromkeys(comparison.shared))
    return list(found)[:most]


def _examples(comparison: Comparison, run: Run, name: str) -> list[str]:
    """The first questions that a run's wrong answer to is sorted so."""
    of = [
        each
        for each in comparison.shared
        if (diagnosis := run.rows[each].diagnosis) and diagnosis.name == name
    ]
    return of[:EXAMPLES]


def _told(comparison: Comparison, chosen: Sequence[str]) -> str:
    """The traces of the chosen questions; the folders are read once more, a trace at a time."""
    wanted = set(chosen)
    parts: dict[tuple[str, int], str] = {}
    for place, run in enumerate(comparison.runs):
        for trace in finished(run.folder):
            name = trace.question.id
            if name in wanted and name in run.rows:
                parts[name, place] = told.run(run.name, place, run.rows[name], trace)
    folds = []
    for number, name in enumerate(chosen):
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


def _link(name: str, words: str, links: dict[str, str]) -> str:
    shown = text(words)
    return f'<a href="#{links[name]}">{shown}</a>' if name in links else shown


# --- Sections -------------------------------------------------------------------------------


def _summary(comparison: Comparison) -> str:
    said = "".join(f"<li>{line}</li>" for line in headlines(comparison))
    head = "".join(
        f'<th scope="col"><i class="r{n % 6}"></i>{text(run.name)}'
        f"{' (reference)' if run is comparison.reference else ''}</th>"
        for n, run in enumerate(comparison.runs)
    )
    rows = "".join(
        f'<tr><th scope="row">{text(label(name))}</th>'
        + "".join(_cell(comparison, comparison.of(run, name)) for run in comparison.runs)
        + "</tr>\n"
        for name in comparison.metrics
    )
    percent = f"{comparison.level:.0%}"
    return (
        f'<ul class="lead">{said}</ul>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Summary table"><table>'
        f"<caption>Means with {percent} intervals; below, the difference from the reference on the "
        f"same questions with its interval, and p after Holm over {comparison.comparisons} "
        f"comparisons. In bold where p is at most {SIGNIFICANT:g}.</caption>"
        f'<thead><tr><th scope="col">metric</th>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
        "</div>\n"
    )


def _cell(comparison: Comparison, measured: Measured) -> str:
    name, found = measured.metric, measured.mean
    if found.value is None:
        return "<td>–</td>"
    around = bounds(name, found, comparison.level)
    reach = around and f" <small>{figure(name, around[0])} to {figure(name, around[1])}</small>"
    few = f" <small>of {found.n:,} questions</small>" if found.unscored else ""
    shown = f"{figure(name, found.value)}{reach or ''}{few}"
    difference, p = measured.difference, measured.adjusted
    if difference is None or p is None:
        return f"<td>{shown}</td>"
    kind = ' class="holds"' if p <= SIGNIFICANT else ""
    return (
        f"<td>{shown}<small{kind}>{signed(name, difference.mean)} "
        f"({signed(name, difference.low)} to {signed(name, difference.high)})</small>"
        f"<small{kind}>p {_equals(p)}</small></td>"
    )


def _equals(p: float) -> str:
    shown = probability(p)
    return text(shown if shown.startswith("<") else f"= {shown}")


def headlines(comparison: Comparison) -> list[str]:
    """What the table says, in sentences (HTML)."""
    total, used = comparison.questions, len(comparison.shared)
    of = "all" if used == total else f"{used:,} of {total:,}"
    lines = [f"All figures are over the {of} questions that every run has finished."]
    main = next((m for m in ("f1", "em", *comparison.metrics) if m in comparison.metrics), None)
    if main is None:
        return lines
    means = {run.name: comparison.of(run, main).mean.value for run in comparison.runs}
    known = {name: value for name, value in means.items() if value is not None}
    if known:
        best = max(known, key=lambda name: known[name])
        lines.append(
            f"<b>{text(best)}</b> has the highest {text(label(main))}: {figure(main, known[best])}."
        )
    for run in comparison.runs:
        measured = comparison.of(run, main)
        found, p = measured.difference, measured.adjusted
        if found is None or p is None:
            continue
        ahead = "above" if found.mean > 0 else "below"
        size = signed(main, abs(found.mean)).lstrip("+")
        holds = (
            f"is {size} points {ahead} <b>{text(comparison.reference.name)}</b>"
            if p <= SIGNIFICANT
            else f"cannot be told from <b>{text(comparison.reference.name)}</b> "
            f"({signed(main, found.mean)} points)"
        )
        lines.append(f"<b>{text(run.name)}</b> {holds}, p {_equals(p)} after Holm.")
    return lines


def _counted(comparison: Comparison) -> str:
    rows = "".join(
        f'<tr><th scope="row">{text(run.name)}</th><td>{run.asked:,}</td>'
        f"<td>{len(run.rows) - run.failed:,}</td><td>{run.failed:,}</td><td>{run.missing:,}</td>"
        f"<td>{sum(not row.answer for row in comparison.rows(run)):,}</td>"
        f"<td>{len(comparison.shared):,}</td></tr>\n"
        for run in comparison.runs
    )
    failures = [
        (run, name, row.error)
        for run in comparison.runs
        for name, row in run.rows.items()
        if row.error
    ]
    listed = "".join(
        f"<li>{text(run.name)}, {text(name)}: {text(error)}</li>"
        for run, name, error in failures[:10]
    )
    more = f"<li>and {len(failures) - 10:,} more</li>" if len(failures) > 10 else ""
    heads = ("run", "asked", "finished", "failed", "not yet", "empty answers", "compared on")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        "<p>A question that failed in a run, or that a run has not asked yet, is in no figure of "
        "any run. An empty answer is a finished one and scores 0.</p>\n"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
        f"</div>\n{f'<p>Failures:</p><ul>{listed}{more}</ul>' if failures else ''}"
    )


def _plots(comparison: Comparison) -> str:
    drawn = [
        _cost(comparison),
        _recall(comparison, by_searches=False),
        _recall(comparison, by_searches=True),
        _stops(comparison),
        _kinds(comparison),
    ]
    shown = "".join(each for each in drawn if each)
    return f'<div class="plots">{shown}</div>\n' if shown else "<p>There is nothing to draw.</p>"


def _cost(comparison: Comparison) -> str:
    points = []
    for place, run in enumerate(comparison.runs):
        score = _mean_of(comparison, run, "f1")
        tokens = mean(row.tokens for row in comparison.rows(run))
        if score is None or tokens.value is None or tokens.unscored:
            continue
        middle, high = score
        points.append(
            Point(
                run.name,
                place,
                tokens.value,
                100 * middle,
                bounds("prompt_tokens", tokens, comparison.level),
                high and (100 * high[0], 100 * high[1]),
            )
        )
    if not points:
        return ""
    about = "; ".join(f"{p.name}: F1 {p.y:.1f} at {p.x:,.0f} tokens" for p in points)
    return plots.scatter(
        "F1 against tokens", f"{about}.", "tokens a question, prompt and generated", "F1 %", points
    )


def _mean_of(
    comparison: Comparison, run: Run, name: str
) -> tuple[float, tuple[float, float] | None] | None:
    if name not in comparison.metrics:
        return None
    found = comparison.of(run, name).mean
    if found.value is None:
        return None
    return found.value, bounds(name, found, comparison.level)


def _recall(comparison: Comparison, *, by_searches: bool) -> str:
    lines = []
    for place, run in enumerate(comparison.runs):
        curves = [
            row.by_searches if by_searches else row.by_passages for row in comparison.rows(run)
        ]
        curves = [curve for curve in curves if curve]
        if not curves:
            continue
        longest = min(max(map(len, curves)), CURVE + 1)
        points = [  # a curve that has ended stays where it was
            (float(x), 100 * sum(c[min(x, len(c) - 1)] for c in curves) / len(curves))
            for x in range(longest)
        ]
        lines.append(Line(run.name, place, points))
    if not lines:
        return ""
    about = "; ".join(f"{line.name} ends at {line.points[-1][1]:.1f} %" for line in lines)
    if by_searches:
        title, across = "Recall against searches", "searches made"
    else:
        title, across = "Recall against passages", "passages, in the order collected"
    return plots.lines(
        title, f"Mean share of gold passages collected; {about}.", across, "recall %", lines
    )


def _stops(comparison: Comparison) -> str:
    counts = [Counter(row.stop for row in comparison.rows(run)) for run in comparison.runs]
    reasons = [r for r in STOPS if any(r in each for each in counts)]
    drawn = [
        Bar(run.name, [(slug(r), f"{r}: {STOPS[r]}", each[r]) for r in reasons])
        for run, each in zip(comparison.runs, counts, strict=True)
    ]
    about = "; ".join(
        f"{run.name}: "
        + ", ".join(f"{reason} {each[reason]}" for reason in reasons if each[reason])
        for run, each in zip(comparison.runs, counts, strict=True)
    )
    return plots.bars("Why runs stopped", f"{about}.", drawn)


def _kinds(comparison: Comparison) -> str:
    if "f1" not in comparison.metrics:
        return ""
    place = comparison.metrics.index("f1")
    kinds = Counter(row.question.kind for row in comparison.rows(comparison.reference))
    if len(kinds) < 2:
        return ""
    groups = []
    for kind, number in kinds.most_common(KINDS):
        points = []
        for colour, run in enumerate(comparison.runs):
            found = mean(
                row.values[place] for row in comparison.rows(run) if row.question.kind == kind
            )
            around = bounds("f1", found, comparison.level)
            if found.value is not None:
                wide = around and (100 * around[0], 100 * around[1])
                points.append(Point(run.name, colour, 100 * found.value, 0.0, wide))
        if points:
            groups.append((f"{kind or 'no type'} ({number:,})", points))
    about = "; ".join(
        f"{kind}: " + ", ".join(f"{p.name} {p.x:.1f}" for p in points) for kind, points in groups
    )
    left = len(kinds) - KINDS
    rest = f" {count(left, 'rarer type')} left out." if left > 0 else ""
    return plots.dots("F1 by type of question", f"{about}.{rest}", "F1 %", groups)


def _why(comparison: Comparison, links: dict[str, str]) -> str:
    tallies = [diagnoses(comparison, run) for run in comparison.runs]
    drawn = [
        Bar(run.name, [(slug(kind), kind, number) for kind, number in tally.items()])
        for run, tally in zip(comparison.runs, tallies, strict=True)
    ]
    about = "Every question once: right, or the first rule that fits its trace."
    head = "".join(f'<th scope="col">{text(run.name)}</th>' for run in comparison.runs)
    meanings = {"right": "the answer matches a gold one", **CLASSES, "not scored": "no gold answer"}
    rows = "".join(
        f'<tr><th scope="row"><span class="badge {slug(kind)}">{kind}</span></th>'
        + "".join(f"<td>{tally[kind]:,}</td>" for tally in tallies)
        + f'<td class="left quiet">{meaning}</td></tr>\n'
        for kind, meaning in meanings.items()
        if any(tally[kind] for tally in tallies)
    )
    examples = []
    for name, meaning in CLASSES.items():
        inner = "".join(
            f"<li>{text(run.name)}: {_link(each, row.question.text, links)} "
            f'<span class="quiet">{text(row.diagnosis.why if row.diagnosis else "")}</span></li>'
            for run in comparison.runs
            for each in _examples(comparison, run, name)
            for row in [run.rows[each]]
        )
        if inner:
            examples.append(
                f'<details class="ex"><summary><span class="badge {slug(name)}">{name}</span> '
                f'examples: {meaning}</summary><ul class="examples">{inner}</ul></details>'
            )
    return (
        f'<div class="why">{plots.bars("Diagnoses", about, drawn)}'
        f'<div class="scroll"><table><thead><tr><th scope="col">diagnosis</th>{head}'
        f'<th scope="col" class="left">meaning</th></tr></thead><tbody>\n{rows}</tbody></table>'
        f"</div>\n{_places(comparison)}{''.join(examples)}"
        '<p class="quiet">Sorted by rules over trace and gold passages, without a model: read it '
        "as where to look, not as a verdict.</p></div>\n"
    )


def diagnoses(comparison: Comparison, run: Run) -> dict[str, int]:
    """How often each diagnosis occurs among the shared questions, right answers first."""
    tally = dict.fromkeys(("right", *CLASSES, "not scored"), 0)
    for row in comparison.rows(run):
        kind = row.diagnosis.name if row.diagnosis else "right" if row.right else "not scored"
        tally[kind] += 1
    return tally


def _places(comparison: Comparison) -> str:
    """Which of the gold passages never came back, by place."""
    tallies = [
        Counter(
            place
            for row in comparison.rows(run)
            if row.diagnosis and row.diagnosis.name in ("hop miss", "stop miss")
            for place, _ in row.diagnosis.missing
        )
        for run in comparison.runs
    ]
    last = max((max(each) for each in tallies if each), default=0)
    if last < 2:
        return ""
    head = "".join(f'<th scope="col">gold passage {n}</th>' for n in range(1, last + 1))
    rows = "".join(
        f'<tr><th scope="row">{text(run.name)}</th>'
        + "".join(f"<td>{each[n]:,}</td>" for n in range(1, last + 1))
        + "</tr>"
        for run, each in zip(comparison.runs, tallies, strict=True)
    )
    return (
        '<div class="scroll"><table><caption>Gold passages that never came back, by their place in '
        "the question's list (the order of hops where the data set keeps it, as MuSiQue does)"
        f'</caption><thead><tr><th scope="col">run</th>{head}</tr></thead><tbody>{rows}</tbody>'
        "</table></div>\n"
    )


def _ahead(comparison: Comparison, run: Run) -> tuple[list[str], list[str]]:
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


def _wins(comparison: Comparison, links: dict[str, str]) -> str:
    parts = []
    reference = comparison.reference
    for run in comparison.runs:
        if run is reference:
            continue
        pairs = [(run.rows[e].right, reference.rows[e].right) for e in comparison.shared]
        one, other = text(run.name), text(reference.name)
        parts.append(
            f"<h3>{one} and {other}</h3><p>Both right {pairs.count((True, True)):,} · only {one} "
            f"{pairs.count((True, False)):,} · only {other} {pairs.count((False, True)):,} · "
            f"neither {pairs.count((False, False)):,}</p>"
        )
        for names, words in zip(
            _ahead(comparison, run),
            (f"{one} ahead of {other}", f"{other} ahead of {one}"),
            strict=True,
        ):
            if not names:
                continue
            items = "".join(_duel(comparison, run, each, links) for each in names[:WINS])
            most = f", the {WINS} with the largest difference" if len(names) > WINS else ""
            parts.append(
                f"<details><summary>{words} by F1: {count(len(names), 'question')}{most}</summary>"
                f'<ul class="examples">{items}</ul></details>'
            )
    return "".join(parts) or "<p>They never differ.</p>"


def _duel(comparison: Comparison, run: Run, each: str, links: dict[str, str]) -> str:
    rows = [(r, r.rows[each]) for r in (run, comparison.reference)]
    said = "; ".join(f"{text(r.name)}: {_answer(row)}" for r, row in rows)
    gold = " | ".join(rows[0][1].question.answers)
    question = _link(each, rows[0][1].question.text, links)
    return f'<li>{question} <span class="quiet">gold: {text(_cut(gold))}; {said}</span></li>'


def _answer(row: Row) -> str:
    return text(_cut(row.answer)) if row.answer else "<em>no answer</em>"


def _cut(words: str) -> str:
    return words if len(words) <= ANSWER else words[:ANSWER] + " …"


def _questions(comparison: Comparison, links: dict[str, str]) -> str:
    kinds = sorted({row.question.kind for row in comparison.rows(comparison.reference)} - {""})
    numbers = {kind: n for n, kind in enumerate(kinds)}
    place = next((comparison.metrics.index(m) for m in ("f1", "em") if m in comparison.metrics), 0)
    rows = []
    for name in comparison.shared:
        question = comparison.reference.rows[name].question
        cells, outcomes = [], []
        for n, run in enumerate(comparison.runs):
            row = run.rows[name]
            value = row.values[place] if row.values else None
            outcomes.append(f"{n}-{'right' if row.right else 'wrong'}")
            if row.diagnosis:
                outcomes.append(slug(row.diagnosis.name))
                outcomes.append(f"{n}-{slug(row.diagnosis.name)}")
            key = -1 if value is None else round(value, 4)
            cells.append(f'<td data-v="{key}">{verdict(row)}<small>{_answer(row)}</small></td>')
        gold = text(_cut(" | ".join(question.answers)))
        rights = {run.rows[name].right for run in comparison.runs}
        if len(rights) > 1:
            outcomes.append("differ")
        rows.append(
            f'<tr data-kind="{numbers.get(question.kind, "")}" '
            f'data-outcome="{" ".join(dict.fromkeys(outcomes))}">'
            f'<th scope="row">{_link(name, question.text, links)}<small> gold: {gold}</small></th>'
            f"{''.join(cells)}</tr>\n"
        )
    heads = "".join(
        f'<th scope="col"><button type="button">{text(run.name)}</button></th>'
        for run in comparison.runs
    )
    kind_choice = "".join(
        f'<option value="{n}">{text(kind)}</option>' for kind, n in numbers.items()
    )
    by_kind = (
        f'<label>Type<select id="f-kind"><option value="">every type</option>{kind_choice}'
        "</select></label>"
    )
    return (
        '<div class="controls js-only">'
        '<label>Find<input id="f-words" type="search" placeholder="words or answer"></label>'
        f"{by_kind if len(kinds) > 1 else ''}"
        f'<label>Outcome<select id="f-outcome">{_outcomes(comparison)}</select></label>'
        '<span id="f-said" class="quiet" role="status"></span></div>\n'
        '<div class="all" tabindex="0" role="region" aria-label="All questions"><table id="all">'
        '<thead><tr><th scope="col"><button type="button">question</button></th>'
        f"{heads}</tr></thead><tbody>\n{''.join(rows)}</tbody></table></div>\n"
    )


def _outcomes(comparison: Comparison) -> str:
    present = {
        row.diagnosis.name
        for run in comparison.runs
        for row in comparison.rows(run)
        if row.diagnosis
    }
    found = ['<option value="">every outcome</option><option value="differ">runs differ</option>']
    for n, run in enumerate(comparison.runs):
        found.append(f'<optgroup label="{text(run.name)}">')
        found += [f'<option value="{n}-{kind}">{kind}</option>' for kind in ("right", "wrong")]
        found += [
            f'<option value="{n}-{slug(kind)}">{kind}</option>'
            for kind in CLASSES
            if kind in present
        ]
        found.append("</optgroup>")
    return "".join(found)


def _traces(comparison: Comparison, chosen: Sequence[str], folds: str) -> str:
    left = len(comparison.shared) - len(chosen)
    rest = (
        f" The traces of {count(left, 'other question')} are left out to keep the page small; "
        "<code>multihop show RUN:ID</code> replays any."
        if left
        else ""
    )
    return (
        f"<p>{count(len(chosen), 'question')} with the trace of each run.{rest} Passages are cut "
        f"at {told.PASSAGE} characters; gold ones are open.</p>"
        '<p class="js-only"><button type="button" data-fold="open">Open all</button> '
        f'<button type="button" data-fold="close">Close all</button></p>\n{folds}'
    )


def _settings(comparison: Comparison) -> str:
    def shown(value: Json) -> str:
        return (
            "–" if value is None else text(value if isinstance(value, str) else json.dumps(value))
        )

    keys = list(dict.fromkeys(key for run in comparison.runs for key in run.settings))
    head = "".join(f'<th scope="col" class="left">{text(r.name)}</th>' for r in comparison.runs)
    rows = "".join(
        f'<tr><th scope="row">{text(key)}</th>'
        + "".join(f'<td class="left">{shown(r.settings.get(key))}</td>' for r in comparison.runs)
        + "</tr>\n"
        for key in keys
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Settings"><table>'
        f'<thead><tr><th scope="col">setting</th>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
        "</div>\n"
    )


def _method(comparison: Comparison) -> str:
    percent = f"{comparison.level:.0%}"
    exact = sorted({m.metric for m in comparison.measured if m.test == "McNemar"})
    mcnemar = f" (of {', '.join(text(label(name)) for name in exact)})" if exact else ""
    said = f"""\
Intervals of means are so many standard errors over questions that they cover {percent} under a \
normal distribution; shares end at 0 and 100 %.
Differences are this run less the reference, question by question; their intervals are \
percentiles of {comparison.samples:,} bootstrap resamples of the questions.
p is two-sided: exact McNemar for scores of 0 and 1{mcnemar}, else the same bootstrap moved to \
no difference; then corrected by Holm over all {comparison.comparisons} comparisons of this page. \
A figure per type has no test.
Recall curves count the gold passages among the first collected; a run that has ended stays \
where it was.
Seconds are as measured, with whatever else the machine did; tokens count what prompts hold, \
cached or not.
The rules of the diagnosis, in their order and with their limits, are in docs/compare.md."""
    return "<ul>" + "".join(f"<li>{line}</li>" for line in said.splitlines()) + "</ul>\n"
