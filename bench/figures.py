"""What a part of the bench returns, and how much it measures.

A part is a module with `measure(size)`, and ends with `if __name__ == "__main__": run(measure)`.
Each runs in a process of its own, so that none contains what another has loaded. It writes its
figures to stdout, one line of JSON each, and messages to stderr.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TextIO

OURS = "airflow-kftrain"


class Size(NamedTuple):
    repetitions: int
    jobs: tuple[int, ...]
    seconds: float
    """Over which a rate is counted, each time."""


FULL = Size(repetitions=5, jobs=(1, 100, 1_000, 10_000), seconds=12.0)
QUICK = Size(repetitions=1, jobs=(1, 100), seconds=2.0)
"""Only checks that it still works: its figures mean nothing."""


class Figure(NamedTuple):
    name: str
    unit: str
    values: tuple[float, ...]
    """One value per repetition."""
    who: str = OURS
    """Ours, or a peer with its setting: "KubernetesJobTrigger, every 10 s"."""
    jobs: int = 0
    """The number of jobs; 0 if it does not matter."""
    goal: float | None = None
    """The most that is acceptable."""
    note: str = ""
    """Why there is no value, or what a reader has to know."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_missed(self) -> bool:
        return self.goal is not None and bool(self.values) and self.median > self.goal


Measure = Callable[[Size], Iterable[Figure]]


def run(measure: Measure) -> None:
    size = QUICK if "--quick" in sys.argv else FULL
    with results() as found:
        for figure in measure(size):
            print(json.dumps(figure._asdict()), file=found, flush=True)


def results() -> TextIO:
    """Reserves stdout for the results: what libraries print goes to stderr from now on."""
    found = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return found


def read(line: str) -> Figure:
    said: dict[str, Any] = json.loads(line)
    return Figure(**{**said, "values": tuple(said["values"])})


_BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.1f} s  {text}", file=sys.stderr, flush=True)


def share(values: Iterable[float], percent: float) -> float:
    """The percentile; 100 is the maximum."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]
