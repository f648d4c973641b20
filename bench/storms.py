"""What happens when something affects all jobs of a triggerer at the same moment, a thousand of
them.

All jobs end within a second; all watches get a 410; the API server is unreachable for five seconds.
The figures say how long it takes until everything is settled, with how many calls and how much
memory, and the longest stall. The peer is measured if it can have the same problem.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from bench.figures import Figure, Size, say
from bench.fleet import (
    BY_THE_CLOCK,
    OF_A_TURN,
    WE,
    Fleet,
    Server,
    Task,
    Turns,
    are_synced,
    first_client,
    main,
    peer,
    resident,
    together,
    until,
)

AWAY_SECONDS = 5.0
_STARTS_A_SECOND = 500.0
_HOLDS = 6.0
_WATCHES = 2
"""Of jobs and of pods."""

Found = dict[str, float]


class Stage(NamedTuple):
    """The server and the triggers of a storm."""

    task: Task
    turns: Turns
    server: Server

    @property
    def holds(self) -> float:
        """A watch that lasts so many seconds counts as one that works."""
        return min(_HOLDS, self.task.size.seconds)

    @property
    def is_ours(self) -> bool:
        return self.task.setting.poll_seconds is None

    @asynccontextmanager
    async def fleet(self) -> AsyncIterator[Fleet]:
        """All jobs run, and each has its trigger."""
        await self.server.do("renew")
        fleet = Fleet(self.task.setting)
        await fleet.start(self.task.jobs, _STARTS_A_SECOND if self.is_ours else 200)
        if self.is_ours:
            assert await until(are_synced), "not all jobs are known"
        await asyncio.sleep(self.holds if self.is_ours else 1)
        try:
            yield fleet
        finally:
            await fleet.stop()

    async def measured(self, fleet: Fleet, storm: Callable[[], Awaitable[float]]) -> Found:
        before, resident_before = await self.server.do("read"), resident()
        failed = len(fleet.failed)
        forget_peak()
        self.turns.clear()
        seconds = await storm()
        after = await self.server.do("read")
        return {
            "settled": seconds,
            "calls": after["requests"] - before["requests"],
            "stall": max(self.turns.without_full),
            "stall with collections": max(self.turns.all),
            "clock": self.turns.longest,
            "more": (resident() - resident_before) / 1024,
            "peak": peak(),
            "failed": len(fleet.failed) - failed,
        }

    # ----- the storms; each returns the seconds until everything was settled

    async def all_end(self) -> Found:
        async with self.fleet() as fleet:
            jobs = self.task.jobs

            async def storm() -> float:
                written = await self.server.do("end", jobs=jobs, rate=float(jobs))
                assert await until(lambda: len(fleet.ended) == jobs), "some never fired"
                last: float = max(written.values())
                return max(fleet.ended.values()) - last

            return await self.measured(fleet, storm)

    async def all_expire(self, fleet: Fleet) -> Found:
        await asyncio.sleep(self.holds)

        async def storm() -> float:
            began = time.monotonic()
            await self.server.do("expire")
            await self._are_watching()
            return time.monotonic() - began

        return await self.measured(fleet, storm)

    async def away(self, fleet: Fleet) -> Found:
        """Settled when all triggers watch again; those of the peer, when each has polled again or
        failed."""
        await asyncio.sleep(self.holds)

        async def storm() -> float:
            await self.server.do("away", seconds=min(AWAY_SECONDS, self.task.size.seconds))
            back = time.monotonic()
            if self.is_ours:
                await self._are_watching()
            else:
                await self._server_shows("asked", lambda: self.task.jobs - len(fleet.failed))
            return time.monotonic() - back

        return await self.measured(fleet, storm)

    async def _are_watching(self) -> None:
        await self._server_shows("watches", lambda: _WATCHES)

    async def _server_shows(self, what: str, at_least: Callable[[], int]) -> None:
        end = time.monotonic() + 60
        while (await self.server.do("read"))[what] < at_least():
            assert time.monotonic() < end, f"not all are back: {what}"
            await asyncio.sleep(0.02)


async def storms(task: Task, turns: Turns) -> dict[str, list[Found]]:
    server = await Server.start(task.jobs)
    await first_client(task.setting)
    stage = Stage(task, turns, server)
    times = range(task.size.repetitions)
    found: dict[str, list[Found]] = {"ends": [await stage.all_end() for _ in times]}
    async with stage.fleet() as fleet:
        if stage.is_ours:
            found["expiry"] = [await stage.all_expire(fleet) for _ in times]
        found["away"] = [await stage.away(fleet) for _ in times]
        await _all_still_end(stage, fleet)
    await server.stop()
    return found


async def _all_still_end(stage: Stage, fleet: Fleet) -> None:
    """Checks that all triggers still react after the storms."""
    jobs, failed = stage.task.jobs, len(fleet.failed)
    await stage.server.do("end", jobs=jobs, rate=float(jobs))
    assert await until(lambda: len(fleet.ended) == jobs), f"{len(fleet.ended)} of {jobs} ended"
    assert not stage.is_ours or len(fleet.failed) == failed, fleet.failed


def forget_peak() -> None:
    """What was held in an earlier storm is not this one's."""
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")


def peak() -> float:
    """MiB that this process has held since then."""
    with open("/proc/self/status", encoding="utf-8") as file:
        said = dict(line.split(":", 1) for line in file)
    return int(said["VmHWM"].split()[0]) / 1024


TITLES = {
    "ends": "all end within a second",
    "expiry": "410 for all",
    "away": f"the API server is away for {AWAY_SECONDS:g} s",
}
_SHOWN = (
    ("settled", "until all is settled", "s", 30.0, ""),
    ("calls", "API calls", "", None, ""),
    ("stall", "longest stall", "ms", 50.0, OF_A_TURN),
    ("stall with collections", "longest stall, collections as they come", "ms", None, ""),
    ("clock", "longest turn by the clock", "ms", None, BY_THE_CLOCK),
    ("more", "memory more than before", "MiB", None, ""),
    ("peak", "peak memory of the process", "MiB", None, ""),
    ("failed", "triggers that failed", "", 0.0, ""),
)


def measure(size: Size) -> Iterator[Figure]:
    jobs = min(1000, size.jobs[-1])
    tasks = [Task("storms", each, jobs, size) for each in (WE, peer(size))]
    say("storms: ours and the peer's at the same time")
    for task, found in zip(tasks, together(__spec__.name, tasks), strict=True):
        for storm, taken in found.items():
            for key, what, unit, most, note in _SHOWN:
                name, values = f"{TITLES[storm]}: {what}", tuple(each[key] for each in taken)
                goal = most if task.setting == WE else None
                yield Figure(name, unit, values, task.setting.who, task.jobs, goal, note)


if __name__ == "__main__":
    main(storms, measure)
