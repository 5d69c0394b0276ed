"""The plots of a report, out of a comparison."""

from collections import Counter

from multihop.comparison import plots
from multihop.comparison.paired import CURVE, Comparison, Run
from multihop.comparison.plots import Bar, Line, Point
from multihop.comparison.told import slug
from multihop.comparison.wording import bounds, count
from multihop.metrics import mean
from multihop.shown import STOPS

KINDS = 12
"""Types of questions with a line of their own, the most frequent ones."""


def drawn(comparison: Comparison) -> str:
    """All plots for which there is something to draw."""
    every = [
        _against_tokens(comparison),
        _recall(comparison, by_searches=False),
        _recall(comparison, by_searches=True),
        _stops(comparison),
        _kinds(comparison),
    ]
    shown = "".join(each for each in every if each)
    return f'<div class="plots">{shown}</div>\n' if shown else "<p>There is nothing to draw.</p>"


def _against_tokens(comparison: Comparison) -> str:
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
    return plots.bars("Why runs stopped", "Questions by the reason to stop.", f"{about}.", drawn)


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
    shown = f"Means with intervals; in brackets, how many questions.{rest}"
    return plots.dots("F1 by type of question", shown, f"{about}.", "F1 %", groups)
