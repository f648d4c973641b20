"""Figures as tables in Markdown, with the compared ones side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.figures import OURS, Figure

MOST_COLUMNS = 4
"""If more of them are compared, each gets a row."""


def number(value: float) -> str:
    """Three significant digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 - math.floor(math.log10(abs(value)))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell(figure: Figure) -> str:
    if not figure.values:
        return "–"
    low, high = number(min(figure.values)), number(max(figure.values))
    middle = number(figure.median)
    text = middle if low == high else f"{middle} ({low}–{high})"
    return f"**{text}, MISSED**" if figure.is_missed else text


def named(figure: Figure) -> str:
    unit = f" ({figure.unit})" if figure.unit else ""
    return f"{figure.name}{unit}"


def in_full(figure: Figure) -> str:
    who = "" if figure.who == OURS else f", {figure.who}"
    return f"{figure.name}{who}{f' at {figure.jobs:,} jobs' if figure.jobs else ''}"


class _Notes:
    """The notes of a part: numbers in the cells, and the text below its tables."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._texts = list(dict.fromkeys(each.note for each in figures if each.note))

    def cell(self, figure: Figure | None) -> str:
        if figure is None:
            return "–"
        if not figure.note:
            return cell(figure)
        return f"{cell(figure)} <sup>{self._texts.index(figure.note) + 1}</sup>"

    def lines(self) -> Iterator[str]:
        if self._texts:
            yield ""
        for place, text in enumerate(self._texts, start=1):
            yield f"{place}. {text}"


def tables(figures: Sequence[Figure]) -> Iterator[str]:
    """One table for all figures that compare the same things."""
    notes = _Notes(figures)
    names: dict[str, dict[str, None]] = {}
    for figure in figures:
        names.setdefault(named(figure), {})[figure.who] = None
    for about in dict.fromkeys(map(tuple, names.values())):
        shown = [figure for figure in figures if tuple(names[named(figure)]) == about]
        yield ""
        yield from (_wide if len(about) <= MOST_COLUMNS else _long)(shown, about, notes)
    yield from notes.lines()


def _wide(figures: Sequence[Figure], about: Sequence[str], notes: _Notes) -> Iterator[str]:
    """One row per figure, compared side by side."""
    found = {(named(each), each.jobs, each.who): each for each in figures}
    goals = {(named(each), each.jobs): each.goal for each in figures if each.goal is not None}
    jobs = any(each.jobs for each in figures)
    yield from header(["figure", *(["jobs"] if jobs else []), *about, *(["goal"] if goals else [])])
    names = list(dict.fromkeys(named(each) for each in figures))
    places = {(named(each), each.jobs) for each in figures}
    for name, count in sorted(places, key=lambda place: (names.index(place[0]), place[1])):
        words = [name]
        if jobs:
            words.append(f"{count:,}" if count else "")
        words += [notes.cell(found.get((name, count, who))) for who in about]
        if goals:
            goal = goals.get((name, count))
            words.append("" if goal is None else number(goal))
        yield row(words)


def _long(figures: Sequence[Figure], about: Sequence[str], notes: _Notes) -> Iterator[str]:
    """Too many to compare side by side: one row each, with the figures side by side."""
    found = {(named(each), each.who, each.jobs): each for each in figures}
    names = list(dict.fromkeys(named(each) for each in figures))
    yield from header(["", *names])
    for who in about:
        for count in sorted({each.jobs for each in figures if each.who == who}):
            place = f"{who} at {count:,}" if count else who
            yield row([place, *(notes.cell(found.get((name, who, count))) for name in names)])


def header(words: Sequence[str]) -> Iterator[str]:
    yield row(words)
    yield row(["---"] * len(words))


def row(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"
