"""Writes docs/performance.md, and the table for the terminal, from the figures of one run."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from bench.figures import FULL, OURS, Figure
from bench.parts import Ran
from bench.plots import PLOTS, Plot, draw
from bench.tables import cell, header, in_full, named, number, row, tables

PAGE = "performance.md"
PACKAGES = (
    "apache-airflow",
    "apache-airflow-providers-cncf-kubernetes",
    "kubernetes",
    "kubernetes-asyncio",
    "aiohttp",
)

_HEAD = """\
# Performance

What the package costs, compared with `KubernetesJobTrigger` and `KubernetesJobOperator` of
Airflow's own provider. Each of these is measured with its default settings and, if a setting makes
it better, with its best one. `make bench` measures everything in one run on one machine and writes
this page.
"""

_HOW = """\
* A cell is the median of at least {repetitions} repetitions, with the least and the most in
  brackets. A single number is the same in every repetition, or was counted once. What a process
  loads and creates once is done before the first repetition, unless a figure is about that.
* Each part runs in a process of its own. Everything that is compared uses identical servers, the
  same machine and the same run.
* The API server is the [embedded cluster](local-cluster.md) or, for thousands of watches and TLS, a
  minimal stand-in. It answers faster than a real one, to all clients alike.
* Trust ratios between columns, not milliseconds: those differ between machines.
* A goal is what this project wants to reach. Goals apply to its own figures only.
"""

_NOT = """\
## What is not measured

* A real API server and a network: they add time, to all alike.
* The training itself: it does not depend on what has started it.
* Airflow's own database, scheduler and API server under load, except in the part with a real
  Airflow.
* Other kinds of jobs than PyTorchJob: they use the same code.
* Operators of training jobs in other providers.

## To measure it yourself

```
make bench                              # everything; 25 minutes on two otherwise idle cores
make bench QUICK=1                      # only checks that it works; its figures mean nothing
.venv/bin/python -m bench --part imports --part submit
```

The figures are also in `build/bench.json`, each with all its values. Only a full run without errors
writes this page; other runs write it into `build`.
"""


class Machine(NamedTuple):
    cores: int
    python: str
    system: str
    versions: Mapping[str, str]

    @property
    def text(self) -> str:
        found = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.cores} cores, {self.system}, Python {self.python}, {found}."


def this_machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 0,
        python=platform.python_version(),
        system=f"{platform.system()} on {platform.machine()}",
        versions={name: version(name) for name in PACKAGES},
    )


# The worst figure


def ratio(figure: Figure) -> float:
    """How much of the goal a figure has used up; more than 1 is missed."""
    assert figure.goal is not None
    if figure.goal == 0:
        return math.inf if figure.median > 0 else 0.0
    return max(figure.median, 0.0) / figure.goal


def ranked(figures: Iterable[Figure]) -> list[Figure]:
    """The figures with a goal, the worst first."""
    judged = [each for each in figures if each.goal is not None and each.values]
    return sorted(judged, key=ratio, reverse=True)


def surpassed(figures: Sequence[Figure]) -> list[tuple[Figure, Figure]]:
    """Our figures that are higher than a peer's, with the lowest of the peers."""
    found = []
    for ours in figures:
        if ours.who == OURS and ours.values:
            place = (named(ours), ours.jobs)
            theirs = [
                each
                for each in figures
                if each.who != OURS and each.values and (named(each), each.jobs) == place
            ]
            least = min(theirs, key=lambda each: each.median, default=ours)
            if least.median < ours.median:
                found.append((ours, least))
    return found


# The page


def write(folder: Path, parts: Sequence[Ran], machine: Machine) -> None:
    """The page and its plots."""
    folder.joinpath("images").mkdir(parents=True, exist_ok=True)
    figures = [figure for part in parts for figure in part.figures]
    for plot in PLOTS:
        if shown := plot.figures(figures):
            (folder / "images" / plot.file).write_text(draw(plot.title, shown), encoding="utf-8")
    (folder / PAGE).write_text(page(parts, machine), encoding="utf-8")


def page(parts: Sequence[Ran], machine: Machine) -> str:
    return "\n".join(_lines(parts, machine))


def _lines(parts: Sequence[Ran], machine: Machine) -> Iterator[str]:
    figures = [figure for part in parts for figure in part.figures]
    yield _HEAD
    yield from ("## How it was measured", "", machine.text, "")
    yield _HOW.format(repetitions=FULL.repetitions)
    yield from ("## The worst figure first", "")
    yield from _worst_first(ranked(figures))
    yield from ("", "## Figures where others cost less", "")
    yield from _cost_less(surpassed(figures))
    left = list(PLOTS)
    for part in parts:
        yield from ("", f"## {part.title}", "", part.text)
        yield from tables(part.figures)
        for plot in [plot for plot in left if plot.figures(part.figures)]:
            left.remove(plot)
            yield from ("", _image(plot))
    yield from ("", _NOT)


def _image(plot: Plot) -> str:
    return f"![{plot.title}](images/{plot.file})"


def _worst_first(judged: Sequence[Figure]) -> Iterator[str]:
    if not judged:
        yield "No figure of this run has a goal."
        return
    reached = sum(not figure.is_missed for figure in judged)
    yield f"{reached} of {len(judged)} goals are reached. The worst figure is {_worst(judged[0])}."
    yield from ("", "| figure | jobs | measured | goal: at most | of the goal |")
    yield "| --- | ---: | --- | ---: | ---: |"
    for figure in judged:
        goal = number(figure.goal or 0)
        words = (named(figure), _jobs(figure), cell(figure), goal, f"{100 * ratio(figure):,.0f} %")
        yield row(words)


def _cost_less(pairs: Sequence[tuple[Figure, Figure]]) -> Iterator[str]:
    if not pairs:
        yield "Nowhere, in this run."
        return
    yield from header(["figure", "jobs", OURS, "others", "who"])
    for ours, least in pairs:
        yield row([named(ours), _jobs(ours), cell(ours), cell(least), least.who])


def _worst(figure: Figure) -> str:
    verdict = "it is missed" if figure.is_missed else f"{100 * ratio(figure):,.0f} % of its goal"
    unit = f" {figure.unit}" if figure.unit else ""
    goal = number(figure.goal or 0)
    return f"*{in_full(figure)}*: {number(figure.median)}{unit}, goal {goal}{unit}, {verdict}"


def _jobs(figure: Figure) -> str:
    return f"{figure.jobs:,}" if figure.jobs else ""


# The table for the terminal


def printed(figures: Sequence[Figure]) -> Iterator[str]:
    """Figures with goals first, the worst at the top; then the others in their order."""
    judged = ranked(figures)
    yield f"{'median':>10} {'least':>10} {'most':>10} {'unit':<6} {'goal':>8}         figure"
    for figure in [*judged, *(each for each in figures if each not in judged)]:
        values = (figure.median, min(figure.values), max(figure.values)) if figure.values else ()
        words = [f"{number(value):>10}" for value in values] or [f"{'-':>10}"] * 3
        goal = "" if figure.goal is None else number(figure.goal)
        verdict = "MISSED" if figure.is_missed else ""
        note = f" [{figure.note}]" if figure.note else ""
        yield (f"{' '.join(words)} {figure.unit:<6} {goal:>8} {verdict:<7} {in_full(figure)}{note}")
