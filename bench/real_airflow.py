"""What a task costs in a real Airflow, and how much memory its triggerer needs, next to the peer.

Tasks run one after the other, so none waits for a core. Airflow has its default settings, with
SQLite.
"""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.airflow_stage import (
    OUR_OWN,
    PEER_BEST,
    PEER_DEFAULT,
    Object,
    Stage,
    Task,
    until,
)
from bench.figures import QUICK, Figure, Size, run, say

_MANY = 500
_MANY_QUICK = 5
_WORKER_ENDS = 1.0
"""In seconds."""
_SETTLE = 6.0
"""Seconds until new triggers have read their jobs."""


async def _measured(size: Size) -> list[Figure]:
    this = asyncio.current_task()
    assert this is not None
    # As Ctrl-C does, so that nothing is left behind.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    async with AsyncExitStack() as ending:
        folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="kftrain-bench-"))
        stage = Stage()
        if size == QUICK:
            await stage.open(Path(folder), ending)
            tasks = await _all_at_once(stage)
        else:
            await stage.open(Path(folder), ending)
            await _warm_up(stage)
            tasks = [
                task
                for repetition in range(size.repetitions)
                for task in await _one_by_one(stage, repetition, size.repetitions)
            ]
        figures = [*_figures(tasks), *await _short(stage, size.repetitions)]
        for operator in (OUR_OWN, PEER_DEFAULT):
            model = next(task for task in stage.tasks if task.operator == operator)
            figures += await _fleet(stage, model, size)
        return figures


# ----- one task


async def _warm_up(stage: Stage) -> None:
    """The first runs find nothing in memory. These tasks stay deferred."""
    await asyncio.gather(stage.submit(OUR_OWN, 0), stage.submit(PEER_DEFAULT, 0))
    await asyncio.sleep(_WORKER_ENDS)


async def _all_at_once(stage: Stage) -> list[Task]:
    """Only shows that everything works."""
    operators = (OUR_OWN, PEER_DEFAULT, PEER_BEST)
    tasks = await asyncio.gather(*(stage.submit(operator, 0) for operator in operators))
    ends = [task for task in tasks if task.operator != PEER_DEFAULT]
    await asyncio.gather(*(stage.end(task, task.deferred + 3) for task in ends))
    return ends


async def _one_by_one(stage: Stage, repetition: int, of: int) -> list[Task]:
    operators = (PEER_DEFAULT, PEER_BEST, OUR_OWN)
    turn = repetition % len(operators)
    tasks = []
    for operator in (*operators[turn:], *operators[:turn]):
        tasks.append(await stage.submit(operator, repetition + 1))
        await asyncio.sleep(_WORKER_ENDS)
    # Ours comes last: its event may be held back meanwhile.
    for task in sorted(tasks, key=lambda task: operators.index(task.operator)):
        share = (repetition + 0.5) / of
        await stage.end(task, _moment_to_end(task, time.time(), share))
        await asyncio.sleep(_WORKER_ENDS)
        say(
            f"{task.run}: submitted after {task.submitted - task.queued:.2f} s, "
            f"deferred after {task.deferred - task.submitted:.2f} s, "
            f"success after {task.succeeded - task.ended:.2f} s"
        )
    return tasks


def _moment_to_end(task: Task, now: float, share: float) -> float:
    """When to end a job after the deferral: not while an event would be held back. If jobs are
    polled, this share of the interval after the last poll, so that the ends are spread evenly."""
    interval = task.operator.interval
    if not interval:
        return max(now, task.deferred + _HELD_SECONDS)
    return now + (share * interval - (now - task.deferred)) % interval


def _figures(tasks: list[Task]) -> Iterator[Figure]:
    spans = (
        ("queued by the scheduler to job created", "queued", "submitted", ""),
        ("job created to task deferred", "submitted", "deferred", ""),
        ("end of the job to success of the task", "ended", "succeeded", _HELD),
    )
    for name, begin, end, note in spans:
        for operator in dict.fromkeys(task.operator for task in tasks):
            own = [task for task in tasks if task.operator == operator]
            values = tuple(getattr(task, end) - getattr(task, begin) for task in own)
            note = note if operator == OUR_OWN else ""
            yield Figure(name, "s", values, operator.who, note=note)


_HELD_SECONDS = 10.0
_HELD = f"of jobs that end at least {_HELD_SECONDS:.0f} s after the deferral; others: next row"


async def _short(stage: Stage, repetitions: int) -> list[Figure]:
    """Our trigger waits for the exit of the worker before its event."""
    operators = (OUR_OWN, PEER_BEST, PEER_DEFAULT)
    found: dict[str, list[float]] = {operator.who: [] for operator in operators}
    for number in range(repetitions):
        for operator in operators:
            task = await stage.run_short(operator, number)
            found[operator.who].append(task.succeeded - task.ended)
            await asyncio.sleep(_WORKER_ENDS)
            say(f"{task.run}: success after {found[operator.who][-1]:.2f} s")
    name = "a job that ends within a second: end to success of the task"
    return [
        Figure(name, "s", tuple(seconds), who, goal=6.0 if who == OUR_OWN.who else None)
        for who, seconds in found.items()
    ]


# ----- many


async def _fleet(stage: Stage, model: Task, size: Size) -> list[Figure]:
    """A triggerer without a job, then with many."""
    quick, who = size == QUICK, model.operator.who
    count = _MANY_QUICK if quick else _MANY
    if not quick:
        await stage.fresh_triggerer()
        await asyncio.sleep(_SETTLE)
    idle, before = stage.memory(), stage.requests
    name = f"many-{model.operator.dag}"
    await _defer(stage, model, name, count)
    if not quick:
        # A trigger of the peer has no client before it has read its job.
        looks = count if model.operator.interval else 0
        await until(lambda: stage.has_made(before + looks), "each trigger has looked at its job")
        await asyncio.sleep(_SETTLE)
    memory = []
    for _ in range(size.repetitions):
        await asyncio.sleep(size.seconds / 2)
        memory.append(stage.memory())
    await _check(stage, name, count)
    say(f"{who}: {idle:.0f} MiB, with {count} jobs {memory[-1]:.0f} MiB")
    return [
        Figure("memory of the triggerer without a job", "MiB", (idle,), who, note=_PSS),
        Figure("memory of the triggerer", "MiB", tuple(memory), who, count, note=_PSS),
    ]


_PSS = "PSS of its two processes"


async def _check(stage: Stage, run: str, count: int) -> None:
    (row,) = await stage.rows(
        "SELECT count(*) AS deferred FROM task_instance WHERE run_id = ? AND state = 'deferred'",
        run,
    )
    assert row["deferred"] == count, "some triggers have ended"


async def _defer(stage: Stage, model: Task, name: str, count: int) -> None:
    """Creates many copies of a deferred task.

    500 workers would take half an hour. So this writes the rows of Airflow's database that workers
    would have caused: trigger and order are copies of those that Airflow has stored, with other
    names and ids of job and task. The jobs are copies, too. They name another controller, so they
    get no pods.
    """
    await stage.start("many", name)
    of_run = "SELECT id FROM task_instance WHERE run_id = ? ORDER BY map_index LIMIT ?"

    async def all_there() -> bool:
        return len(await stage.rows(of_run, name, count)) == count

    await until(all_there, "the tasks are there")
    stored = await stage.rows(of_run, name, count)
    copies = [_Copy(model, number, row["id"]) for number, row in enumerate(stored)]
    for copy in copies:
        await copy.create(stage)
    await stage.write(statement for copy in copies for statement in copy.statements())

    async def all_taken() -> bool:
        (row,) = await stage.rows(
            "SELECT count(*) AS taken FROM trigger WHERE triggerer_id NOT NULL"
        )
        return bool(row["taken"] >= count)

    await until(all_taken, "the triggerer has all triggers")


class _Copy:
    """A copy of a task, its job and its trigger."""

    def __init__(self, model: Task, number: int, task: str) -> None:
        its = model.job["metadata"]
        self._model = model
        self._task = task
        self._name = its["name"][:-4] + f"{number:04}"
        self._changed = {
            its["name"]: self._name,
            str(UUID(model.row["id"])): str(UUID(task)),
        }

    async def create(self, stage: Stage) -> None:
        job = self._of(self._model.job)
        its, spec = job["metadata"], job["spec"]
        metadata = {key: its.get(key) or {} for key in ("labels", "annotations")}
        policy = spec["runPolicy"] if self._model.operator == OUR_OWN else spec
        policy["managedBy"] = "kueue.x-k8s.io/multikueue"
        made = await stage.api.create(
            self._model.operator.jobs,
            {**job, "metadata": {"name": self._name, **metadata}, "status": {}},
        )
        self._changed[its["uid"]] = made["metadata"]["uid"]
        path = f"{self._model.operator.jobs}/{self._name}/status"
        await stage.api.merge_patch(path, {"status": job["status"]})

    def statements(self) -> Iterator[tuple[str, tuple[object, ...]]]:
        row = self._of(self._model.row)
        yield (
            "INSERT INTO trigger (classpath, kwargs, created_date) VALUES (?, ?, ?)",
            (row["classpath"], row["kwargs"], row["created_date"]),
        )
        yield (
            "UPDATE task_instance SET state = 'deferred', trigger_id = last_insert_rowid(), "
            "next_method = ?, next_kwargs = ? WHERE id = ?",
            (row["next_method"], row["next_kwargs"], self._task),
        )

    def _of(self, original: Object) -> Any:
        text = json.dumps(original)
        for before, now in self._changed.items():
            text = text.replace(before, now)
        return json.loads(text)


def measure(size: Size) -> Iterator[Figure]:
    yield from asyncio.run(_measured(size))


if __name__ == "__main__":
    run(measure)
