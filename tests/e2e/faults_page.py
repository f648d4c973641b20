"""Writes docs/faults.md: every row of the fault matrix, and its result on each target.

A column is written when a run has played every row on its target, so that a partial run does not
spoil the page. The results on the other targets stay. The rows on PostgreSQL have their own table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.e2e.counts import Result
from tests.e2e.play import Row
from tests.e2e.postgres_rows import POSTGRES_ROWS
from tests.e2e.rows import CANNOT_HOLD, ROWS

FILE = Path(__file__).parents[2] / "docs" / "faults.md"

_HEAD = """\
# Faults

What happens to a task and its training when something around them fails. Each line is a row of
`tests/e2e/rows.py`: a DAG, a namespace and a PyTorchJob, on a real Airflow (scheduler, API server,
dag-processor, triggerers; SQLite, LocalExecutor), with [fault proxies](fault-proxy.md) in front of
the cluster. Each row is played on two clusters: **local** is the [embedded
cluster](local-cluster.md), by `make test-e2e`; **real** is a [real control plane](control-plane.md)
with the real training-operator and the project's [node agent](local-agent.md), by `make test-real`.
The suite writes this page.

The counts come from the trainings themselves: each one records its start and its end in a file, and
holds a lock in between. The seconds depend on the other load of the machine. The four numbers count
trainings and jobs that were

* **lost**: the training did not run, or its task did not end as it should;
* **doubled**: the training ran at the same time as another one of its task, or too often;
* **killed**: the training was ended by mistake;
* **leaked**: the job was unfinished, or its training still running, after the end of its task. If
  only the sweeper can end the job, the check comes after the next job in the namespace has started,
  and the sweeper's grace period is reduced to 5 seconds.
"""

_POSTGRES = """
## On PostgreSQL

Two schedulers and two triggerers share a PostgreSQL database. The cluster is the embedded one, and
connections are stored in the database. `make test-postgres` plays these rows; it is not part of
`.ci/run`."""

_TABLES: tuple[tuple[str, ...], ...] = (("local", "real"), ("postgres",))
"""The targets of each table, which are its last columns."""
_COLUMNS = ("row", "what is done", "task", "trainings")
NOT_PLAYED = "not played"
_HOLDS = re.compile(r"0/0/0/0, \d+ s")

Words = dict[tuple[str, str], str]
"""(row, target) -> its result"""


def write(target: str, results: Mapping[str, Result]) -> None:
    before = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    now = {(row, target): _word(result) for row, result in results.items()}
    FILE.write_text(written_page(read_page(before) | now), encoding="utf-8")


def holds(word: str) -> bool:
    return bool(_HOLDS.fullmatch(word))


def read_page(page: str) -> Words:
    words: Words = {}
    for line in page.splitlines():
        row, *cells = line.strip("| ").split(" | ")
        for targets in _TABLES:
            if len(cells) == len(_COLUMNS) - 1 + len(targets):
                last = cells[-len(targets) :]
                words |= {(row, target): word for target, word in zip(targets, last, strict=True)}
    return words


def written_page(words: Words) -> str:
    return "\n".join(_lines(words))


def _lines(words: Words) -> Iterator[str]:
    targets, on_postgres = _TABLES
    local, real = (_count(words, ROWS, target) for target in targets)
    yield _HEAD
    yield (
        f"{len(ROWS)} rows, of which {local} hold on the embedded cluster and {real} on the real "
        "control plane."
    )
    yield ""
    yield from _table(words, ROWS, targets)
    yield _POSTGRES
    held = _count(words, POSTGRES_ROWS, *on_postgres)
    yield from ("", f"{len(POSTGRES_ROWS)} rows, of which {held} hold.", "")
    yield from _table(words, POSTGRES_ROWS, on_postgres)
    yield from ("", "## What cannot hold", "")
    for what, why in CANNOT_HOLD:
        yield f"* **{what}**: {why}"
    yield ""


def _table(words: Words, rows: Sequence[Row], targets: Sequence[str]) -> Iterator[str]:
    yield _line(*_COLUMNS, *targets)
    yield _line(*("---" for _ in (*_COLUMNS, *targets)))
    for row in rows:
        said = [_said(words, row, target) for target in targets]
        yield _line(row.name, row.done, row.state, str(row.trainings), *said)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _count(words: Words, rows: Sequence[Row], target: str) -> int:
    return sum(holds(_said(words, row, target)) for row in rows)


def _said(words: Words, row: Row, target: str) -> str:
    return words.get((row.name, target), NOT_PLAYED)


def _word(result: Result) -> str:
    counts = f"{result.lost}/{result.doubled}/{result.killed}/{result.leaked}"
    word = f"{counts}, {result.seconds:.0f} s"
    return word if result.is_good else f"FAILED: {word}, the task {result.state}"
