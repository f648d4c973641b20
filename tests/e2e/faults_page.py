"""Writes docs/faults.md: every row of the fault matrix, and how it went. Only a run of all rows
does, so that a partial one does not spoil the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.e2e.counts import Result
from tests.e2e.play import Row
from tests.e2e.rows import CANNOT_HOLD

FILE = Path(__file__).parents[2] / "docs" / "faults.md"

_HEAD = """\
# Faults

What becomes of a task and its training when something breaks around them. Each line is a row of
`tests/e2e/rows.py`, played by `make test-e2e` on a real Airflow (scheduler, API server,
dag-processor, triggerers; SQLite, LocalExecutor) and the embedded cluster behind
[fault proxies](fault-proxy.md): a DAG, a namespace and a PyTorchJob a row. The suite writes this
page.

Nothing is taken on trust: each training says in a file when it begins and when it ends, and holds a
lock meanwhile.

* **lost**: a training that should have been and was not, or whose task did not end as it should;
* **doubled**: trained beside another one of the same task, or more often than it should have;
* **killed**: ended although nobody wanted that;
* **leaked**: a job that lives, or a training that goes on, after the end of its task. Where only
  the sweeper can end it, it is looked for when the next job of the namespace has been started, and
  the sweeper's grace is cut to 5 seconds.
"""

_HEADER = "| row | what is done | task | trainings | lost | doubled | killed | leaked | seconds |"
_RULE = "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"


def write(rows: Sequence[Row], results: Mapping[str, Result]) -> None:
    FILE.write_text("\n".join(_lines(rows, results)), encoding="utf-8")


def _lines(rows: Sequence[Row], results: Mapping[str, Result]) -> Iterator[str]:
    good = sum(results[row.name].is_good for row in rows)
    yield _HEAD
    yield f"{len(rows)} rows; {good} of them hold."
    yield from ("", _HEADER, _RULE)
    for row in rows:
        result = results[row.name]
        counts = (result.lost, result.doubled, result.killed, result.leaked)
        words = [row.name, row.done, result.state, str(row.trainings), *map(str, counts)]
        yield f"| {' | '.join(words)} | {result.seconds:.0f} |"
    yield from ("", "## What cannot hold", "")
    for what, why in CANNOT_HOLD:
        yield f"* **{what}**: {why}"
    yield ""
