"""How far a training is: by the lines that its program prints, or by the status of its resource.

A line contains `{"kftrain": {"step": 120, "total": 1000, "metrics": {"loss": 0.42}}}`, of which all
fields are optional. Whatever a program prints, nothing here raises an error or grows without bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from airflow_kftrain.job_state import Reported, read_mapping, read_number

LONGEST_LINE = 16 * 1024
MOST_METRICS = 6
MOST_POINTS = 120
_LONGEST_NAME = 64
_LONGEST = timedelta(days=3650)
_MARK = '"kftrain"'
_DECODER = json.JSONDecoder()


class Report(NamedTuple):
    """What one line says."""

    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = {}


def read_line(text: str) -> Report | None:
    """What a line of a log reports; None for all others. The report may have text around it, such
    as that of a logger."""
    mark = text.find(_MARK)
    start = text.rfind("{", 0, mark) if mark >= 0 and len(text) <= LONGEST_LINE else -1
    if start < 0:
        return None
    try:
        found, _ = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    said = read_mapping(found.get("kftrain"))
    step, total = (_count(said.get(name)) for name in ("step", "total"))
    listed = read_mapping(said.get("metrics")).items()
    metrics = {name: float(value) for name, value in listed if _is_number(value) and _is_name(name)}
    return Report(step, total, metrics) if metrics or step is not None else None


def _count(value: object) -> int | None:
    number = read_number(value)
    return number if number is not None and number >= 0 else None


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


class Progress:
    """The progress of one job, with a curve of each metric."""

    __slots__ = ("_first", "_spacing", "curves", "ends", "percent", "step", "total")

    def __init__(self) -> None:
        self.step: int | None = None
        self.total: int | None = None
        self.percent: float | None = None
        self.ends: datetime | None = None
        """When it will probably be done, if it continues at the speed so far."""
        self.curves: dict[str, list[tuple[datetime, float]]] = {}
        self._first: tuple[datetime, int] | None = None
        self._spacing = timedelta(seconds=1)
        """Points are kept at least so far apart; doubled whenever a curve is full."""

    @property
    def is_known(self) -> bool:
        return self.step is not None or self.percent is not None or bool(self.curves)

    def take(self, reports: Iterable[tuple[datetime, Report]]) -> bool:
        """Reports in the order of their times. Returns whether there was one."""
        took, stepped = False, None
        for at, report in reports:
            took = True
            if report.step is not None:
                self._advance(at, report.step, report.total)
                stepped = at
            for name, value in report.metrics.items():
                self._add(name, at, value)
        if stepped is not None:
            self._estimate(stepped)
        return took

    def take_status(self, said: Reported, now: datetime) -> None:
        """What the status of a TrainJob says."""
        self.percent = None if said.percent is None else float(said.percent)
        left = said.remaining
        known = left is not None and left < _LONGEST.total_seconds()
        self.ends = now + timedelta(seconds=left) if left is not None and known else None
        for name, text in said.metrics:
            if (value := _value(text)) is not None and _is_name(name):
                self._add(name, now, value)

    def _advance(self, at: datetime, step: int, total: int | None) -> None:
        if self._first is None or step < (self.step or 0):
            self._first = (at, step)  # after a restart it continues from an earlier checkpoint
        self.step, self.total = step, total if total is not None else self.total

    def _estimate(self, at: datetime) -> None:
        """By the last step, which was at that time."""
        self.percent = self.ends = None
        step = self.step
        if not self.total or step is None or self._first is None:
            return
        self.percent = round(min(100.0 * step / self.total, 100.0), 1)
        began, first = self._first
        if step > first and self.total >= step and at > began:
            left = (self.total - step) / (step - first) * (at - began).total_seconds()
            if left < _LONGEST.total_seconds():
                self.ends = (at + timedelta(seconds=left)).replace(microsecond=0)

    def _add(self, name: str, at: datetime, value: float) -> None:
        if name not in self.curves and len(self.curves) >= MOST_METRICS:
            return
        points = self.curves.setdefault(name, [])
        # The latest point may be closer: it is the current value.
        if len(points) > 1 and points[-1][0] - points[-2][0] < self._spacing:
            points.pop()
        points.append((at, value))
        while len(points) > MOST_POINTS:
            self._spacing *= 2
            del points[1:-1:2]

    def words(self) -> str:
        """For the log: `step 120 of 1000 (12 %), loss 0.42, done at about 13:00`."""
        parts = []
        percent = f"{self.percent:g} %" if self.percent is not None else ""
        if self.step is not None:
            of = f" of {self.total}" if self.total else ""
            parts.append(f"step {self.step}{of}" + (f" ({percent})" if percent else ""))
        elif percent:
            parts.append(f"{percent} done")
        parts += [f"{name} {points[-1][1]:.6g}" for name, points in self.curves.items()]
        if self.ends is not None:
            parts.append(f"done at about {self.ends:%Y-%m-%d %H:%M} UTC")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """For the XCom."""
        said: dict[str, Any] = {"step": self.step, "total": self.total, "percent": self.percent}
        said["ends"] = self.ends.isoformat() if self.ends else None
        said["latest"] = {name: points[-1][1] for name, points in self.curves.items()}
        said["metrics"] = {
            name: [[at.isoformat(timespec="seconds"), value] for at, value in points]
            for name, points in self.curves.items()
        }
        return {name: value for name, value in said.items() if value not in (None, {})}
