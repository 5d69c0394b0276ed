"""Plots as SVG text: narrow enough for a phone, named by CSS classes, readable without colour.

Every plot has a title and a description for screen readers; whatever text it is given is escaped
here. Colours stand in page.css: `r0` to `r5` are runs, the others name what a segment is.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from multihop.shown import visible

WIDTH = 460
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 28, 40
COLOURS = 6


@dataclass(frozen=True, slots=True)
class Point:
    """A mean in two dimensions.

    Attributes:
        name: Written beside it.
        colour: Its run's place.
        x, y: Where it lies.
        wide, high: Its intervals; None where there are none.
    """

    name: str
    colour: int
    x: float
    y: float
    wide: tuple[float, float] | None = None
    high: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A run's line.

    Attributes:
        name: In the legend.
        colour: Its run's place.
        points: (x, y), in order of x. Where others go on, the last value is held, faintly.
    """

    name: str
    colour: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of segments.

    Attributes:
        name: Written above it.
        segments: CSS class, name, count; those of count 0 are left out.
    """

    name: str
    segments: Sequence[tuple[str, str, int]]


def text(words: str) -> str:
    """Somebody else's text for HTML or SVG, in content or attributes."""
    return html.escape(visible(words))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers that cover a range, at most so many and one more."""
    span = high - low
    if not span > 0:
        return [low]
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def short(value: float) -> str:
    """A number for an axis: 1.2k, 3M."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def scatter(title: str, about: str, across: str, up: str, points: Sequence[Point]) -> str:
    """Means with their intervals, each named in place; across is logarithmic over a decade."""
    xs = [v for p in points for v in (p.x, *(p.wide or ()))]
    ys = [v for p in points for v in (p.y, *(p.high or ()))]
    log = min(xs) > 0 and max(xs) / min(xs) > 10
    marks = _decades(min(xs), max(xs)) if log else ticks(0.0, max(xs) or 1.0)
    axes = _Axes(marks, ticks(0.0, max(ys) or 1.0), 260, log=log)
    parts = [axes.draw(across + (" (logarithmic)" if log else ""), up)]
    taken: list[tuple[float, float]] = []
    for p in sorted(points, key=lambda point: -point.y):
        x, y = axes.at(p.x, p.y)
        if p.high:
            parts.append(
                _whisker(p.colour, x, x, axes.at(p.x, p.high[0])[1], axes.at(p.x, p.high[1])[1])
            )
        if p.wide:
            parts.append(
                _whisker(p.colour, axes.at(p.wide[0], p.y)[0], axes.at(p.wide[1], p.y)[0], y, y)
            )
        parts.append(_marker(p.colour, x, y))
        down = y - 9
        while any(abs(down - other) < 14 and abs(x - there) < 110 for there, other in taken):
            down += 15
        taken.append((x, down))
        end = x > WIDTH - 110
        parts.append(
            f'<text x="{x + (-9 if end else 9):.1f}" y="{down:.1f}" class="name"'
            f"{' text-anchor=' + chr(34) + 'end' + chr(34) if end else ''}>{text(p.name)}</text>"
        )
    return _figure(title, about, 260, parts)


def lines(title: str, about: str, across: str, up: str, drawn: Sequence[Line]) -> str:
    """Lines over whole numbers from 0, y from 0, with a legend."""
    last = max((x for line in drawn for x, _ in line.points), default=1.0)
    top = max((y for line in drawn for _, y in line.points), default=1.0)
    steps = [t for t in ticks(0.0, max(1.0, last), 6) if t == int(t)]
    axes = _Axes(steps, ticks(0.0, top or 1.0), 250)
    parts = [axes.draw(across, up)]
    for line in sorted(drawn, key=lambda each: -len(each.points)):  # the short ones on top
        places = [axes.at(x, y) for x, y in line.points]
        (x, y), end = places[-1], axes.at(last, 0)[0]
        if x < end:
            held = f'x1="{x:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
            parts.append(f'<line class="held r{line.colour % COLOURS}" {held}/>')
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = line.colour % COLOURS
        parts.append(f'<polyline class="line r{colour} dash{line.colour % 4}" points="{path}"/>')
        parts += [_marker(line.colour, x, y, small=True) for x, y in places]
    legend = _legend([(line.name, line.colour) for line in drawn])
    return _figure(title, about, 250, parts, legend=legend)


def bars(title: str, about: str, numbers: str, drawn: Sequence[Bar]) -> str:
    """Stacked bars of equal length, one a run, each with its counts; and a legend.

    `about` is shown; `numbers` is read aloud with it.
    """
    row, parts = 46, []
    for place, bar in enumerate(drawn):
        top = 4 + place * row
        total = sum(number for *_, number in bar.segments)
        parts.append(
            f'<text x="0" y="{top + 12}" class="name">{text(bar.name)}</text>'
            f'<text x="{WIDTH}" y="{top + 12}" text-anchor="end">{total:,}</text>'
        )
        x = 0.0
        for kind, name, number in bar.segments:
            if not number:
                continue
            wide = number / total * WIDTH
            parts.append(
                f'<rect class="seg {kind}" x="{x:.1f}" y="{top + 18}" height="22" '
                f'width="{max(wide - 1, 0.6):.1f}"><title>{text(bar.name)}: {text(name)} '
                f"{number:,} of {total:,}</title></rect>"
            )
            if wide > 9 * len(f"{number:,}") + 4:
                parts.append(
                    f'<text class="on" x="{x + wide / 2:.1f}" y="{top + 33}" '
                    f'text-anchor="middle">{number:,}</text>'
                )
            x += wide
    kinds = dict.fromkeys((k, n) for bar in drawn for k, n, number in bar.segments if number)
    names = "".join(f'<li><i class="{kind}"></i>{text(name)}</li>' for kind, name in kinds)
    legend = f'<ul class="legend">{names}</ul>'
    tall = 4 + row * len(drawn)
    return _figure(title, about, tall, parts, legend=legend, numbers=numbers)


def dots(
    title: str, about: str, numbers: str, up: str, groups: Sequence[tuple[str, Sequence[Point]]]
) -> str:
    """Means in groups, one below the other, along one axis; see `bars`."""
    high = max((v for _, ps in groups for p in ps for v in (p.x, *(p.wide or ()))), default=1.0)
    marks = ticks(0.0, high or 1.0)
    tops, y = [], 10.0
    for _, points in groups:
        tops.append(y)
        y += 22 + 15 * len(points) + 8
    tall = y + 30

    def at(value: float) -> float:
        return 8 + value / marks[-1] * (WIDTH - 24)

    parts = [
        f'<line class="grid" x1="{at(m):.1f}" x2="{at(m):.1f}" y1="4" y2="{y:.1f}"/>'
        f'<text x="{at(m):.1f}" y="{y + 14:.1f}" text-anchor="middle">{short(m)}</text>'
        for m in marks
    ]
    parts.append(f'<text x="{WIDTH / 2}" y="{tall - 2:.1f}" text-anchor="middle">{text(up)}</text>')
    for top, (name, points) in zip(tops, groups, strict=True):
        parts.append(f'<text x="0" y="{top + 10:.1f}" class="name halo">{text(name)}</text>')
        for n, p in enumerate(points):
            down = top + 24 + 15 * n
            if p.wide:
                parts.append(_whisker(p.colour, at(p.wide[0]), at(p.wide[1]), down, down))
            parts.append(_marker(p.colour, at(p.x), down))
    names = dict.fromkeys((p.colour, p.name) for _, ps in groups for p in ps)
    legend = _legend([(name, colour) for colour, name in sorted(names)])
    return _figure(title, about, tall, parts, legend=legend, numbers=numbers)


class _Axes:
    """Two axes with a grid."""

    def __init__(
        self, across: Sequence[float], up: Sequence[float], tall: int, *, log: bool = False
    ) -> None:
        self.across, self.up, self.tall, self.log = across, up, tall, log

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lies in the picture."""
        first, last = self._scale(self.across[0]), self._scale(self.across[-1])
        share = (self._scale(x) - first) / ((last - first) or 1.0)
        low, high = self.up[0], self.up[-1]
        height = (y - low) / ((high - low) or 1.0)
        return (
            LEFT + share * (WIDTH - LEFT - RIGHT),
            self.tall - BOTTOM - height * (self.tall - TOP - BOTTOM),
        )

    def _scale(self, x: float) -> float:
        return math.log10(max(x, 1e-12)) if self.log else x

    def draw(self, across: str, up: str) -> str:
        """Grid, numbers and what they are of."""
        parts = []
        for value in self.up:
            y = self.at(self.across[0], value)[1]
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
            )
        for value in self.across:
            x = self.at(value, self.up[0])[0]
            parts.append(
                f'<text x="{x:.1f}" y="{self.tall - BOTTOM + 17}" text-anchor="middle">'
                f"{short(value)}</text>"
            )
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(
            f'<text x="{middle:.0f}" y="{self.tall - 5}" text-anchor="middle">{text(across)}</text>'
            f'<text x="2" y="{TOP - 14}">{text(up)}</text>'
        )
        return "".join(parts)


def _decades(low: float, high: float) -> list[float]:
    """1, 2, 5 and 10 times the powers of ten around a range."""
    every = [
        m * 10.0**n
        for n in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        for m in (1, 2, 5)
    ]
    first = max(v for v in every if v <= low)
    last = min(v for v in every if v >= high)
    return [v for v in every if first <= v <= last]


def _whisker(colour: int, x1: float, x2: float, y1: float, y2: float) -> str:
    return (
        f'<line class="whisker r{colour % COLOURS}" x1="{x1:.1f}" x2="{x2:.1f}" '
        f'y1="{y1:.1f}" y2="{y2:.1f}"/>'
    )


def _marker(colour: int, x: float, y: float, *, small: bool = False) -> str:
    """A circle, square, triangle or diamond: runs are told apart without colour."""
    r = 2.6 if small else 5.0
    kind = f'class="mark r{colour % COLOURS}"'
    shape = colour % 4
    if shape == 0:
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    corners = {
        1: ((-r, -r), (r, -r), (r, r), (-r, r)),
        2: ((0, -r * 1.2), (r * 1.2, r), (-r * 1.2, r)),
        3: ((0, -r * 1.35), (r * 1.35, 0), (0, r * 1.35), (-r * 1.35, 0)),
    }[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon {kind} points="{path}"/>'


def _legend(names: Sequence[tuple[str, int]]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 14 14" aria-hidden="true">{_marker(colour, 7, 7)}</svg>'
        f"{text(name)}</li>"
        for name, colour in names
    )
    return f'<ul class="legend">{items}</ul>'


def _figure(
    title: str,
    about: str,
    tall: float,
    parts: Sequence[str],
    *,
    legend: str = "",
    numbers: str = "",
) -> str:
    """A figure with a heading; title and description are tied to the picture for readers."""
    name = "p" + "".join(c for c in title.lower() if c.isascii() and c.isalnum())
    told = text(f"{about} {numbers}".strip())
    return (
        f"<figure><figcaption><h3>{text(title)}</h3><p>{text(about)}</p></figcaption>{legend}"
        f'<svg viewBox="0 0 {WIDTH} {tall:.0f}" role="img" aria-labelledby="{name}t {name}d">'
        f'<title id="{name}t">{text(title)}</title><desc id="{name}d">{told}</desc>'
        f"{''.join(parts)}</svg></figure>\n"
    )
