"""Writes docs/faults.md: every row of the fault matrix, and how it went on each target.

A column is written when a run has played every row on its target, so that a partial one does not
spoil the page; what it says of the other target stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.e2e.counts import Result
from tests.e2e.rows import CANNOT_HOLD, ROWS

FILE = Path(__file__).parents[2] / "docs" / "faults.md"

_HEAD = """\
# Faults

What becomes of a task and its training when something breaks around them. Each line is a row of
`tests/e2e/rows.py`: a DAG, a namespace and a PyTorchJob, on a real Airflow (scheduler, API server,
dag-processor, triggerers; SQLite, LocalExecutor), with [fault proxies](fault-proxy.md) before the
cluster. It is played on two: **local**, the [embedded cluster](local-cluster.md), by
`make test-e2e`; **real**, a [real control plane](control-plane.md) with the real training-operator
and the project's [node agent](local-agent.md), by `make test-real`. The suite writes this page.

Nothing is taken on trust: each training says in a file when it begins and when it ends, and holds a
lock meanwhile. The seconds say as much about what else the machine had to do. The four numbers are
how many are

* **lost**: a training that should have been and was not, or whose task did not end as it should;
* **doubled**: trained beside another one of the same task, or more often than it should have;
* **killed**: ended although nobody wanted that;
* **leaked**: a job that lives, or a training that goes on, after the end of its task. Where only
  the sweeper can end it, it is looked for when the next job of the namespace has been started, and
  the sweeper's grace is cut to 5 seconds.
"""

_TARGETS = ("local", "real")
_HEADER = "| row | what is done | task | trainings | local | real |"
_RULE = "| --- | --- | --- | --- | --- | --- |"
_HOLDS = re.compile(r"0/0/0/0, \d+ s")

Words = dict[tuple[str, str], str]
"""(row, target) -> how it went"""


def write(target: str, results: Mapping[str, Result]) -> None:
    before = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    now = {(row, target): _word(result) for row, result in results.items()}
    FILE.write_text(written_page(read_page(before) | now), encoding="utf-8")


def holds(word: str) -> bool:
    return bool(_HOLDS.fullmatch(word))


def read_page(page: str) -> Words:
    words: Words = {}
    for line in page.splitlines():
        cells = line.strip("| ").split(" | ")
        if len(cells) == _HEADER.count(" | ") + 1:
            row, *_, local, real = cells
            words |= {(row, "local"): local, (row, "real"): real}
    return words


def written_page(words: Words) -> str:
    return "\n".join(_lines(words))


def _lines(words: Words) -> Iterator[str]:
    def said(row: str, target: str) -> str:
        return words.get((row, target), "not played")

    yield _HEAD
    local, real = (sum(holds(said(row.name, target)) for row in ROWS) for target in _TARGETS)
    yield (
        f"{len(ROWS)} rows, of which {local} hold on the embedded cluster and {real} on the real "
        "control plane."
    )
    yield from ("", _HEADER, _RULE)
    for row in ROWS:
        cells = [row.name, row.done, row.state, str(row.trainings)]
        cells += [said(row.name, target) for target in _TARGETS]
        yield f"| {' | '.join(cells)} |"
    yield from ("", "## What cannot hold", "")
    for what, why in CANNOT_HOLD:
        yield f"* **{what}**: {why}"
    yield ""


def _word(result: Result) -> str:
    counts = f"{result.lost}/{result.doubled}/{result.killed}/{result.leaked}"
    word = f"{counts}, {result.seconds:.0f} s"
    return word if result.is_good else f"FAILED: {word}, the task {result.state}"
