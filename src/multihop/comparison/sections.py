"""The parts of a report between its plots and its traces: tables and lists, as HTML."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from multihop.comparison import plots, told
from multihop.comparison.choice import WINS, ahead, examples
from multihop.comparison.diagnosis import CLASSES
from multihop.comparison.paired import Comparison, Measured, Row, Run
from multihop.comparison.plots import Bar, text
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
from multihop.text import Json

ANSWER = 80
"""Characters of an answer in lists and in the table of all questions."""


def summary(comparison: Comparison) -> str:
    """Headlines and the table of means and differences."""
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
        f'<p class="quiet" id="about">Means with {percent} intervals; below, the difference from '
        "the reference on the same questions with its interval, and p after Holm over "
        f"{comparison.comparisons} comparisons. In bold where p is at most {SIGNIFICANT:g}.</p>\n"
        '<div class="scroll" tabindex="0" role="region" aria-label="Summary table">'
        '<table aria-describedby="about">'
        f'<thead><tr><th scope="col">metric</th>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
        "</div>\n"
    )


def _cell(comparison: Comparison, measured: Measured) -> str:
    name, found = measured.metric, measured.mean
    if found.value is None:
        return "<td>–</td>"
    around = bounds(name, found, comparison.level)
    reach = (
        around
        and f' <small class="near">{figure(name, around[0])} to {figure(name, around[1])}</small>'
    )
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
    lines = [
        f"All figures are over all {used:,} questions, which all runs have finished."
        if used == total
        else f"All figures are over {used:,} of {total:,} questions: those all runs have finished."
    ]
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


def counted(comparison: Comparison) -> str:
    """How many questions each run has, and what became of those in no figure."""
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


def why(comparison: Comparison, links: Mapping[str, str]) -> str:
    """Diagnoses: bars, counts, which gold passages are missing, and examples."""
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
    shown = []
    for name, meaning in CLASSES.items():
        inner = "".join(
            f"<li>{text(run.name)}: {link(each, row.question.text, links)} "
            f'<span class="quiet">{text(row.diagnosis.why if row.diagnosis else "")}</span></li>'
            for run in comparison.runs
            for each in examples(comparison, run, name)
            for row in [run.rows[each]]
        )
        if inner:
            shown.append(
                f'<details class="ex"><summary><span class="badge {slug(name)}">{name}</span> '
                f'examples: {meaning}</summary><ul class="examples">{inner}</ul></details>'
            )
    return (
        f'<div class="why">{plots.bars("Diagnoses", about, "", drawn)}'
        f'<div class="scroll"><table><thead><tr><th scope="col">diagnosis</th>{head}'
        f'<th scope="col" class="left">meaning</th></tr></thead><tbody>\n{rows}</tbody></table>'
        f"</div>\n{_places(comparison)}{''.join(shown)}"
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
        '<p class="quiet" id="places">Gold passages that never came back, by their place in the '
        "question's list (the order of hops where the data set keeps it, as MuSiQue does):</p>\n"
        '<div class="scroll"><table aria-describedby="places">'
        f'<thead><tr><th scope="col">run</th>{head}</tr></thead><tbody>{rows}</tbody>'
        "</table></div>\n"
    )


def wins(comparison: Comparison, links: Mapping[str, str]) -> str:
    """Questions that one run has right and the reference wrong, and the other way about."""
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
            ahead(comparison, run),
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


def _duel(comparison: Comparison, run: Run, each: str, links: Mapping[str, str]) -> str:
    rows = [(r, r.rows[each]) for r in (run, comparison.reference)]
    said = "; ".join(f"{text(r.name)}: {_answer(row)}" for r, row in rows)
    gold = " | ".join(rows[0][1].question.answers)
    question = link(each, rows[0][1].question.text, links)
    return f'<li>{question} <span class="quiet">gold: {text(_cut(gold))}; {said}</span></li>'


def _answer(row: Row) -> str:
    return text(_cut(row.answer)) if row.answer else "<em>no answer</em>"


def _cut(words: str) -> str:
    return words if len(words) <= ANSWER else words[:ANSWER] + " …"


def questions(comparison: Comparison, links: Mapping[str, str]) -> str:
    """A line a question, for sorting and filtering."""
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
            f'<th scope="row">{link(name, question.text, links)}<small> gold: {gold}</small></th>'
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


def traces(comparison: Comparison, chosen: Sequence[str], folds: str) -> str:
    """The folds of the chosen questions, and how many were left out."""
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


def settings(comparison: Comparison) -> str:
    """What decided each run, side by side."""

    def shown(value: Json) -> str:
        return (
            "–" if value is None else text(value if isinstance(value, str) else json.dumps(value))
        )

    def line(key: str) -> str:
        values = [run.settings.get(key) for run in comparison.runs]
        kind = ' class="differs"' if any(value != values[0] for value in values) else ""
        cells = "".join(f'<td class="left">{shown(value)}</td>' for value in values)
        return f'<tr><th scope="row"{kind}>{text(key)}</th>{cells}</tr>\n'

    keys = dict.fromkeys(key for run in comparison.runs for key in run.settings)
    head = "".join(f'<th scope="col" class="left">{text(r.name)}</th>' for r in comparison.runs)
    rows = "".join(map(line, keys))
    return (
        '<p class="quiet">In bold where runs differ.</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Settings"><table>'
        f'<thead><tr><th scope="col">setting</th>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
        "</div>\n"
    )


def method(comparison: Comparison) -> str:
    """How the figures were made."""
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


def link(name: str, words: str, links: Mapping[str, str]) -> str:
    """A question's words, leading to its traces where they are shown."""
    shown = text(words)
    return f'<a href="#{links[name]}">{shown}</a>' if name in links else shown
