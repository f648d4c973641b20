"""Draws figures as SVG: lines over the number of jobs, or bars. The same figures give the same
file.

Each picture has a background of its own, and follows the reader's choice between light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from bench.figures import Figure

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 52, 46
PLAIN = 260
"""The height of the area in which lines are drawn."""
LINE = 20
"""The height of a line of text."""
BAR = 14
DASHES = ("", "7 4", "2 4", "9 3 2 3")
"""Dashes, for readers who cannot distinguish the colours."""


class _Colours(NamedTuple):
    ground: str
    ink: str
    grid: str
    series: tuple[str, ...]


_LIGHT = _Colours("#ffffff", "#24292f", "#d0d7de", ("#0969da", "#bc4c00", "#1a7f37", "#8250df"))
_DARK = _Colours("#161b22", "#e6edf3", "#3d444d", ("#58a6ff", "#f0883e", "#56d364", "#bc8cff"))


def _style() -> str:
    dark = "\n".join(f"  {rule}" for rule in _rules(_DARK))
    return "\n".join(
        [
            "text { font: 13px system-ui, sans-serif; }",
            ".title { font-size: 15px; font-weight: 600; }",
            ".line { fill: none; stroke-width: 2; }",
            *_rules(_LIGHT),
            f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}",
        ]
    )


def _rules(colours: _Colours) -> Iterator[str]:
    yield f"text {{ fill: {colours.ink}; }}"
    yield f".ground {{ fill: {colours.ground}; }}"
    yield f".grid {{ stroke: {colours.grid}; }}"
    for number, colour in enumerate(colours.series):
        yield f".c{number} {{ stroke: {colour}; }} .f{number} {{ fill: {colour}; }}"


class Plot(NamedTuple):
    file: str
    title: str
    names: tuple[str, ...]
    """The names of the figures: one over the number of jobs, or several as bars."""

    def figures(self, figures: Sequence[Figure]) -> list[Figure]:
        return [each for each in figures if each.name in self.names and each.values]


PLOTS = (
    Plot(
        "performance-requests.svg",
        "API requests a minute, all jobs idle",
        ("API requests a minute, idle",),
    ),
    Plot("performance-cpu.svg", "CPU seconds a minute, all jobs idle", ("CPU a minute, idle",)),
    Plot("performance-memory.svg", "Memory of a trigger", ("memory of a trigger",)),
    Plot(
        "performance-ends.svg",
        "From the end of a job to its event",
        ("write to event, p50", "write to event, p99", "write to event, max"),
    ),
    Plot(
        "performance-import.svg",
        "Import of operators over airflow.sdk",
        (
            "import of operators: time",
            "import of operators: memory",
            "import of operators: modules",
        ),
    ),
)


def draw(title: str, figures: Sequence[Figure]) -> str:
    """Figures with several numbers of jobs become lines, others bars."""
    about = list(dict.fromkeys(each.who for each in figures))
    if len({(each.name, each.who, each.jobs) for each in figures}) > len(
        {(each.name, each.who) for each in figures}
    ):
        height, body = _lines(figures, about)
    else:
        height, body = _bars(figures, about)
    return "\n".join(_document(title, figures, about, height, body))


def _document(
    title: str, figures: Sequence[Figure], about: Sequence[str], height: float, body: list[str]
) -> Iterator[str]:
    whole = height + LINE * len(about) + 12
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole:.0f}" '
        f'width="{WIDTH}" height="{whole:.0f}" role="img" aria-labelledby="title desc">'
    )
    yield f'<title id="title">{escape(title)}</title>'
    yield f'<desc id="desc">{escape(_description(figures))}</desc>'
    yield f"<style>\n{_style()}\n</style>"
    yield f'<rect class="ground" width="{WIDTH}" height="{whole:.0f}" rx="6"/>'
    yield _text(LEFT, 26, title, style="title")
    yield from body
    for number, who in enumerate(about):
        y = height + LINE * number
        yield (
            f'<line class="line c{number % 4}" x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + 30}" '
            f'y2="{y:.1f}"{_dashes(number)}/>'
        )
        yield _text(LEFT + 38, y + 4, who)
    yield "</svg>\n"


def _description(figures: Sequence[Figure]) -> str:
    """Describes the whole picture in words, for readers who cannot see it."""
    return "; ".join(
        f"{each.name}, {each.who}{f', {each.jobs:,} jobs' if each.jobs else ''}: "
        f"{_short(each.median)} {each.unit}".rstrip()
        for each in figures
    )


# Lines


class _Axis(NamedTuple):
    """Whole decades, from `low` to `high`, over the pixels from `start` to `end`."""

    low: int
    high: int
    start: float
    end: float

    def place(self, value: float) -> float:
        # Zero has no place on the axis: it is at the edge.
        exponent = math.log10(value) if value > 0 else self.low
        share = (max(exponent, self.low) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        return [10.0**exponent for exponent in range(self.low, self.high + 1)]


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(math.ceil(math.log10(max(positive))), low + 1)
    return _Axis(low, high, start, end)


def _lines(figures: Sequence[Figure], about: Sequence[str]) -> tuple[float, list[str]]:
    """Returns where the lines end, and the drawing."""
    bottom = TOP + PLAIN
    across = _axis([each.jobs for each in figures], LEFT, WIDTH - RIGHT)
    upward = _axis([value for each in figures for value in each.values], bottom, TOP)
    body = [*_grid(across, upward, figures[0].unit)]
    for number, who in enumerate(about):
        series = sorted((each for each in figures if each.who == who), key=lambda each: each.jobs)
        body += _series(series, number, across, upward)
    return bottom + BOTTOM + 14, body


def _grid(across: _Axis, upward: _Axis, unit: str) -> Iterator[str]:
    for value in upward.ticks:
        y = upward.place(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield _text(LEFT - 8, y + 4, _short(value), anchor="end")
    for value in across.ticks:
        x = across.place(value)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{TOP + PLAIN}"/>'
        yield _text(x, TOP + PLAIN + 18, _short(value), anchor="middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, TOP + PLAIN + 36, "jobs", anchor="middle")
    if unit:
        yield _text(LEFT - 8, TOP - 10, unit, anchor="end")


def _series(series: Sequence[Figure], number: int, across: _Axis, upward: _Axis) -> Iterator[str]:
    points = [(across.place(each.jobs), upward.place(each.median)) for each in series]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield f'<path class="line c{number % 4}" d="M{path}"{_dashes(number)}/>'
    for (x, y), each in zip(points, series, strict=True):
        least, most = upward.place(min(each.values)), upward.place(max(each.values))
        yield f'<path class="line c{number % 4}" d="M{x:.1f} {least:.1f}V{most:.1f}"/>'
        yield f'<circle class="f{number % 4}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


# Bars


def _bars(figures: Sequence[Figure], about: Sequence[str]) -> tuple[float, list[str]]:
    """One group per figure. Figures with the same unit have the same scale."""
    y = float(TOP)
    body: list[str] = []
    for name in dict.fromkeys(each.name for each in figures):
        group = [each for each in figures if each.name == name]
        alike = [each.median for each in figures if each.unit == group[0].unit]
        longest = max(alike) or 1.0
        unit = f" ({group[0].unit})" if group[0].unit else ""
        body.append(_text(LEFT, y + 8, f"{name}{unit}"))
        y += LINE - 4
        for each in group:
            length = max((WIDTH - RIGHT - LEFT - 90) * each.median / longest, 1.0)
            body.append(
                f'<rect class="f{about.index(each.who) % 4}" x="{LEFT}" y="{y:.1f}" '
                f'width="{length:.1f}" height="{BAR}"/>'
            )
            body.append(_text(LEFT + length + 6, y + BAR - 3, _short(each.median)))
            y += BAR + 3
        y += 14
    return y + 8, body


# Words


def _text(x: float, y: float, words: str, *, anchor: str = "start", style: str = "") -> str:
    chosen = f' class="{style}"' if style else ""
    return f'<text{chosen} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _dashes(number: int) -> str:
    dashes = DASHES[number % len(DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
