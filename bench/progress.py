"""What it costs to show the progress of running jobs: triggers that read the end of each leader's
log, beside triggers that do not.

Both keep the XCom `kftrain` of their tasks up to date. The XComs are counted instead of written:
Airflow writes them from another process. The log that is read grows by a line every ten seconds,
with three metrics. A window is a minute, of the first ones: each log is read once a minute, and
then ever more rarely. After ten minutes it is read every five minutes.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bench.figures import OURS, Figure, Size, say
from bench.fleet import (
    WE,
    Fleet,
    Server,
    Task,
    Turns,
    a_minute,
    are_synced,
    first_client,
    main,
    order_for,
    resident,
    together,
    until,
)
from bench.objects import Name

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from airflow_kftrain.watching.display import Store

SHOWN = "airflow-kftrain, with progress"
_STARTS_A_SECOND = 1_000.0
_CORE_SHARE = 0.05
_LINE_SECONDS = 10
_WINDOWS = 3
_MINUTE = 5
"""Times the seconds of a full run."""


class Displayed(Fleet):
    """Triggers that show their jobs; `written` counts the XComs, and their bytes."""

    def __init__(self, progress: bool) -> None:
        super().__init__(WE)
        self._progress = progress
        self.written: list[int] = []

    async def store(self, value: dict[str, Any]) -> None:
        self.written.append(len(json.dumps(value)))

    def make(self, job: Name) -> BaseTrigger:
        order = order_for(job)._replace(progress=self._progress)
        trigger = _shows()(order=order.to_dict())
        trigger.counted = self.store
        made: BaseTrigger = trigger
        return made


@functools.cache
def _shows() -> Any:
    from airflow_kftrain.messages import WatchOrder
    from airflow_kftrain.triggers.training_job import TrainingJobTrigger
    from airflow_kftrain.watching.watcher import watch_job

    class Shows(TrainingJobTrigger):
        """Without an Airflow to ask who owns the task."""

        counted: Store

        async def _event(self) -> dict[str, Any]:
            order = WatchOrder.from_dict(self.order)
            tell = logging.getLogger(__name__).info
            outcome = await watch_job(order, tell=tell, store=self.counted, live=True)
            return outcome.to_dict()

    return Shows


async def shown(task: Task, turns: Turns) -> dict[str, Any]:
    """`task.name` is who shows what."""
    server = await Server.start(task.jobs)
    await first_client(task.setting)
    await server.do("write_logs", every=_LINE_SECONDS)
    fleet, before = Displayed(task.name == SHOWN), resident()
    await fleet.start(task.jobs, _STARTS_A_SECOND)
    assert await until(are_synced), "not all jobs are known"
    await _all_read(task, server)
    seconds = _MINUTE * task.size.seconds
    windows = [await _window(fleet, server, turns, seconds) for _ in range(_WINDOWS)]
    found = {"kib": (resident() - before) / task.jobs, "windows": windows}
    assert not fleet.ended, list(fleet.failed.items())[:3]
    await fleet.stop()
    await server.stop()
    return found


async def _all_read(task: Task, server: Server) -> None:
    if task.name != SHOWN:
        await asyncio.sleep(min(15.0, task.size.seconds))
        return
    end = time.monotonic() + 120
    while (await server.do("read")).get("log", 0) < task.jobs:
        assert time.monotonic() < end, "not all logs are read"
        await asyncio.sleep(0.1)


async def _window(
    fleet: Displayed, server: Server, turns: Turns, seconds: float
) -> dict[str, float]:
    written = len(fleet.written)
    turns.clear()
    began = time.monotonic()
    found = await a_minute(server, seconds)
    new, times = fleet.written[written:], 60 / (time.monotonic() - began)
    return {
        **found,
        "stall": max(turns.without_full),
        "xcoms": times * len(new),
        "xcom bytes": times * sum(new) / 1024,
    }


_SHOWN = (
    ("calls a minute", "API calls a minute, with the tab", ""),
    ("bytes a minute", "bytes answered a minute, with the tab", "MiB"),
    ("cpu a minute", "CPU a minute, with the tab", "s"),
    ("xcoms", "XComs written a minute", ""),
    ("xcom bytes", "bytes of XComs written a minute", "KiB"),
    ("stall", "longest stall, with the tab", "ms"),
)


def measure(size: Size) -> Iterator[Figure]:
    jobs = min(1000, size.jobs[-1])
    say(f"progress of {jobs} jobs")
    tasks = [Task(who, WE, jobs, size) for who in (OURS, SHOWN)]
    for task, found in zip(tasks, together(__spec__.name, tasks), strict=True):
        yield from _figures(task, found["windows"])
        note = "what it holds, and what it has held"
        values = (found["kib"],)
        yield Figure("resident memory of a trigger", "KiB", values, task.name, jobs, note=note)


def _figures(task: Task, windows: Iterable[dict[str, float]]) -> Iterator[Figure]:
    for key, name, unit in _SHOWN:
        goal = 60 * _CORE_SHARE if key == "cpu a minute" and task.name == SHOWN else None
        values = tuple(each[key] for each in windows)
        yield Figure(name, unit, values, task.name, task.jobs, goal)


if __name__ == "__main__":
    main(shown, measure)
