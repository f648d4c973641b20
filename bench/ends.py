"""The time from the moment when the end of a job is written to the event of its trigger.

A thousand jobs run, and ten end per second. This measures our trigger, the peer's with its default
interval, and the peer's with 4 s; then our trigger while its watches are cut just when jobs end.
The ends of all repetitions are counted together: a percentile of a few dozen values says little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from bench.figures import Figure, Size, say, share
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
    main,
    peer,
    together,
    until,
)

OFTEN = Setting(4.0)
"""More would be better for the peer, but a thousand triggers that poll have to share one core."""
ENDS_A_SECOND = 10.0
CUT_SECONDS = 2.0
"""The seconds in which jobs end after a cut."""
CUTS = 2
"""Per repetition."""
_STARTS_A_SECOND = 500.0
_HOLDS = 6.0
"""A watch that lasts this long counts as one that works."""


async def ends(task: Task, turns: Turns) -> dict[str, Any]:
    size, every = task.size, task.setting.poll_seconds
    server = await Server.start(task.jobs)
    await first_client(task.setting)
    fleet = Fleet(task.setting)
    if every is None:
        await fleet.start(task.jobs, _STARTS_A_SECOND)
        assert await until(are_synced), "not all jobs are known"
        await asyncio.sleep(1)
    else:
        await fleet.start(task.jobs, task.jobs / every)
    a_turn = int(ENDS_A_SECOND * size.seconds / 2)
    found: dict[str, Any] = {"ends": []}
    for _ in range(size.repetitions):
        found["ends"] += await _end(server, fleet, a_turn)
    if every is None:
        found["cut"] = []
        for _ in range(size.repetitions * CUTS):
            found["cut"] += await _cut(server, fleet, size)
        assert not fleet.failed, fleet.failed
    found["failed"] = len(fleet.failed)
    await fleet.stop()
    await server.stop()
    return found


async def _cut(server: Server, fleet: Fleet, size: Size) -> list[float]:
    await asyncio.sleep(min(_HOLDS, size.seconds))
    await server.do("cut")
    return await _end(server, fleet, int(CUT_SECONDS * ENDS_A_SECOND))


async def _end(server: Server, fleet: Fleet, jobs: int) -> list[float]:
    """The seconds of each job; a job whose trigger failed has none."""
    written = await server.do("end", jobs=jobs, rate=ENDS_A_SECOND)
    assert await until(lambda: written.keys() <= fleet.ended.keys()), "some triggers never fired"
    fired = written.keys() - fleet.failed.keys()
    return [fleet.ended[name] - written[name] for name in fired]


def measure(size: Size) -> Iterator[Figure]:
    jobs = min(1000, size.jobs[-1])
    # The peer's trigger needs much of a core then, and would disturb the others.
    waves = [[WE, peer(size)], *([[OFTEN]] if peer(size) == PEER else [])]
    for settings in waves:
        say(f"ends: {' and '.join(each.who for each in settings)}")
        tasks = [Task("ends", each, jobs, size) for each in settings]
        for task, found in zip(tasks, together(__spec__.name, tasks), strict=True):
            yield from _figures("write to event", task, found["ends"])
            if "cut" in found:
                yield from _figures("write to event, after a cut watch", task, found["cut"])
            failed = (float(found["failed"]),)
            yield Figure("triggers that failed", "", failed, task.setting.who, task.jobs)


def _figures(name: str, task: Task, found: list[float]) -> Iterator[Figure]:
    note = f"of {len(found)} ends, {ENDS_A_SECOND:g} a second"
    for word, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        values = (share(found, percent),) if found else ()
        goal = 1.0 if task.setting == WE and word == "p99" else None
        yield Figure(f"{name}, {word}", "s", values, task.setting.who, task.jobs, goal, note)


if __name__ == "__main__":
    main(ends, measure)
