"""From the moment at which a job's end is written to the event of its trigger.

A thousand jobs run, ten a second end: ours, the peer's at its default, and at the quickest that a
triggerer bears with so many. Then ours with its watches cut in the moment when jobs end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from bench.figures import Figure, Size, run, say, share
from bench.fleet import (
    PEER,
    WE,
    Fleet,
    Server,
    Setting,
    Task,
    Turns,
    are_synced,
    first_client,
    is_child,
    peer,
    together,
    until,
    work_as_child,
)

QUICKEST = Setting(4.0)
"""The peer's best: every two seconds a thousand would want more than one core."""
ENDS_A_SECOND = 10.0
CUT_SECONDS = 2.0
"""In which jobs end after a cut."""
_STARTS_A_SECOND = 500.0
_HOLDS = 6.0
"""After so long a watch counts as one that works."""


async def ends(task: Task, turns: Turns) -> dict[str, list[list[float]]]:
    size, every = task.size, task.setting.poll_seconds
    server = await Server.start(task.jobs)
    await first_client(task.setting)
    fleet = Fleet(task.setting)
    if every is None:
        await fleet.start(task.jobs, _STARTS_A_SECOND)
        await until(are_synced)
        await asyncio.sleep(1)
    else:
        await fleet.start(task.jobs, task.jobs / every)
    a_turn = int(ENDS_A_SECOND * size.seconds / 2)
    found = {"ends": [await _end(server, fleet, a_turn) for _ in range(size.repetitions)]}
    if every is None:
        found["cut"] = [await _cut(server, fleet, size) for _ in range(size.repetitions)]
    assert not fleet.failed, fleet.failed
    await fleet.stop()
    await server.stop()
    return found


async def _cut(server: Server, fleet: Fleet, size: Size) -> list[float]:
    await asyncio.sleep(min(_HOLDS, size.seconds))
    await server.do("cut")
    return await _end(server, fleet, int(CUT_SECONDS * ENDS_A_SECOND))


async def _end(server: Server, fleet: Fleet, jobs: int) -> list[float]:
    """Seconds of each."""
    written = await server.do("end", jobs=jobs, rate=ENDS_A_SECOND)
    done = await until(lambda: written.keys() <= fleet.fired.keys() | fleet.failed.keys())
    assert done, "some triggers never fired"
    return [fleet.fired[name] - written[name] for name in written]


def measure(size: Size) -> Iterator[Figure]:
    jobs = min(1000, size.jobs[-1])
    # The quickest of the peer's takes most of a core, and would be in the way of the others.
    waves = [[WE, peer(size)], *([[QUICKEST]] if peer(size) == PEER else [])]
    for settings in waves:
        say(f"ends: {' and '.join(each.who for each in settings)}")
        tasks = [Task("ends", each, jobs, size) for each in settings]
        for task, found in zip(tasks, together(__spec__.name, tasks), strict=True):
            yield from _figures("write to event", task, found["ends"])
            if "cut" in found:
                yield from _figures("write to event, after a cut watch", task, found["cut"])


def _figures(name: str, task: Task, found: list[list[float]]) -> Iterator[Figure]:
    for word, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        values = tuple(share(seconds, percent) for seconds in found)
        goal = 1.0 if task.setting == WE and word == "p99" else None
        note = f"{len(found[0])} ends each, {ENDS_A_SECOND:g} a second"
        yield Figure(f"{name}, {word}", "s", values, task.setting.who, task.jobs, goal, note)


async def work(task: Task, turns: Turns) -> Any:
    return await ends(task, turns)


if __name__ == "__main__":
    if is_child():
        work_as_child(work)
    else:
        run(measure)
