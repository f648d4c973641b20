"""What running jobs cost a triggerer: calls, connections, CPU, memory, stalls of its loop.

Our trigger next to the peer's, for 1 to 10,000 jobs, idle and with a tenth of the jobs changing per
minute. Each has a process and a server of its own. Those with little work run at the same time; the
peer's trigger with 10,000 jobs has the machine to itself.

While all jobs are idle, our trigger does its periodic work (a list every ten minutes, a watch that
ends, a check for crashes) 50 times as often, and the counts are divided by 50: a window of 12 s
shows ten minutes. This leaves out what is very rare (a trigger checks the clock once an hour) or
has nothing to do here: the search for orphans.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import statistics
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figures import Figure, Size, say, share
from bench.fleet import (
    BY_THE_CLOCK,
    CONNECTION,
    OF_A_TURN,
    PEER,
    WE,
    Fleet,
    Server,
    Setting,
    Task,
    Turns,
    are_synced,
    first_client,
    hurried,
    main,
    peer,
    resident,
    together,
    until,
)
from bench.objects import ITEM, Name

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

FRUGAL = Setting(60.0)
"""The peer's cheapest setting. Ours reads as often if it may not watch."""
HURRY = 50.0
"""Our engine lists every ten minutes. An idle window takes seconds."""
CHANGING_A_MINUTE = 0.1
STATES = "idle", "changing"
_MANY = 10_000
_STARTS_A_SECOND = 1_000.0
_POLLS_A_SECOND = 50.0
"""The share of work that the peer completes while its memory is traced, which slows everything
down."""
_LONGEST_START = 75.0
_FIRST_LOOKS = 14.0
"""Seconds after which a trigger only waits."""
_CORE = 60.0
"""CPU seconds per minute."""

Window = dict[str, Any]


# ----- in a process of its own


async def cost(task: Task, turns: Turns) -> dict[str, Any]:
    ours = task.setting.poll_seconds is None
    server = await Server.start(task.jobs)
    await first_client(task.setting)
    fleet = Fleet(task.setting)
    before = resident()
    turns.clear()
    await _begin(task, fleet)
    counts = await server.do("read")
    found: dict[str, Any] = {"starting": _stalls(turns), "counts": counts}
    rate = task.jobs * CHANGING_A_MINUTE / 60
    for state in reversed(STATES):
        hurry = HURRY if ours and state == "idle" else 1.0
        with hurried(hurry) if ours else nullcontext():
            if hurry > 1:
                await _in_a_hurry(server, hurry)
            changing = rate if state == "changing" else 0.0
            await server.do("change", rate=changing)
            found[state] = [await _window(server, turns, seconds) for seconds in _windows(task)]
    found["kib"] = (resident() - before) / fleet.started
    found["started"] = fleet.started
    if ours:  # a failed trigger costs nothing
        assert not fleet.ended, list(fleet.failed.items())[:3]
        assert are_synced(), "not all jobs are known"
    found["failed"] = len(fleet.failed)
    await fleet.stop()
    await server.stop()
    return found


async def _begin(task: Task, fleet: Fleet) -> None:
    """Starts all triggers, until each waits. Those of the peer poll at even intervals, as they
    would in the long run. If they fill a core, each trigger that has started delays the next, so
    this does not wait for the last one."""
    every, seconds = task.setting.poll_seconds, task.size.seconds
    if every is None:
        await fleet.start(task.jobs, _STARTS_A_SECOND)
        assert await until(are_synced), "not all jobs are known"
        await asyncio.sleep(min(_FIRST_LOOKS, seconds))
    else:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(fleet.start(task.jobs, task.jobs / every), _LONGEST_START)
        await asyncio.sleep(min(3.0, seconds))
    if task.jobs == _MANY:
        say(f"triggerer: {fleet.started} of {task.setting.who} are at work")


async def _in_a_hurry(server: Server, times: float) -> None:
    """What waits already waits at the old speed, so everything is started again."""
    await server.do("hurry", times=times)
    await server.do("expire")
    await asyncio.sleep(3)


def _windows(task: Task) -> list[float]:
    """In seconds. A window fits the poll interval, so that each window has the same number of
    polls. Those of ten thousand triggers are so evenly spread that a short window shows them,
    too."""
    size, every = task.size, task.setting.poll_seconds or math.inf
    if task.jobs == _MANY and task.setting != WE:
        return [0.4 * size.seconds] * size.repetitions
    return [every if every <= size.seconds else size.seconds] * size.repetitions


async def _window(server: Server, turns: Turns, seconds: float) -> Window:
    before = await server.do("read")
    turns.clear()
    cpu, began = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    cpu, taken = time.process_time() - cpu, time.monotonic() - began
    stalls = _stalls(turns)
    after = await server.do("read")
    counts = {name: value - before.get(name, 0) for name, value in after.items()}
    lists = sum(counts.get(f"list {plural}", 0) for plural in (ITEM, "pods"))
    between = counts["requests"] - lists
    found = {**counts, "between lists": between, "open": after["open"], "client": cpu}
    return {**found, "seconds": taken, **stalls}


def _stalls(turns: Turns) -> dict[str, float]:
    told = {f"p{percent}": share(turns.without_full, percent) for percent in (50, 99)}
    return {
        **told,
        "max": max(turns.without_full),
        "max with full": max(turns.all),
        "clock": turns.longest,
    }


class Waiting(Fleet):
    """Triggers that only await an Event."""

    def make(self, job: Name) -> BaseTrigger:
        made: BaseTrigger = _awaits_event()()
        return made


@functools.cache
def _awaits_event() -> Any:
    from airflow.triggers.base import BaseTrigger

    class AwaitsEvent(BaseTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "", {}

        async def run(self) -> AsyncIterator[Any]:
            await asyncio.Event().wait()
            yield None

    return AwaitsEvent


async def memory(task: Task, turns: Turns) -> list[float]:
    """KiB per trigger, more than one that awaits an Event."""
    server = await Server.start(task.jobs)
    await first_client(task.setting)
    found = []
    with hurried(10) if task.setting == WE else nullcontext():
        for _ in range(task.size.repetitions + 1):
            tracemalloc.start()
            held = await _held_by(task, Fleet(task.setting))
            waiting = await _held_by(task._replace(setting=WE), Waiting(WE))
            tracemalloc.stop()
            found.append((held - waiting) / task.jobs / 1024)
    await server.stop()
    return found[1:]  # the first one has also loaded modules


async def _held_by(task: Task, fleet: Fleet) -> int:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    ours = task.setting == WE
    await fleet.start(task.jobs, task.jobs if ours else _POLLS_A_SECOND)
    await asyncio.sleep(3)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    assert not ours or not fleet.ended, list(fleet.failed.items())[:3]
    await fleet.stop()
    if ours:
        await _nobody_waits()
    await asyncio.sleep(0.5)  # cancelled triggers end
    return held


async def _nobody_waits() -> None:
    from airflow_kftrain.watching import feeds

    feeds.LINGER_SECONDS = 0.0
    hub = feeds.hub_of(CONNECTION)
    for feed in list(hub._feeds.values()):
        hub.leave(feed)
    await until(lambda: not hub.is_busy)


async def work(task: Task, turns: Turns) -> Any:
    return await (memory if task.name == "memory" else cost)(task, turns)


# ----- the figures


class Cost(NamedTuple):
    """The results of one process."""

    setting: Setting
    jobs: int
    found: dict[str, Any]

    def a_minute(self, state: str, name: str) -> list[float]:
        """The values of each window. The cost of idle jobs is added to that of changing ones, since
        their windows are too short for it."""
        ours = self.setting.poll_seconds is None
        times = HURRY if ours and state == "idle" else 1.0
        values = [60 * each.get(name, 0) / each["seconds"] / times for each in self.found[state]]
        if ours and state == "changing":
            idle = statistics.median(self.a_minute("idle", name))
            values = [value + idle for value in values]
        return values


def measure(size: Size) -> Iterator[Figure]:
    costs, memories = [], []
    for wave in _waves(size):
        say(f"triggerer: {'; '.join(f'{task.setting.who}, {task.jobs}' for task in wave)}")
        for task, found in zip(wave, together(__spec__.name, wave), strict=True):
            if task.name == "memory":
                memories.append(_memory_figure(task, found))
            else:
                costs.append(Cost(task.setting, task.jobs, found))
    yield from _costs(costs)
    yield from _growth([each for each in costs if each.setting == WE])
    yield from _full_core(costs)
    yield from memories
    for each in costs:
        if each.jobs == _MANY:
            note = "after a single start; includes memory that is free again"
            yield _of(each, "resident memory of a trigger", "KiB", [each.found["kib"]], note=note)


def _waves(size: Size) -> list[list[Task]]:
    """Which of them may be measured at the same time."""
    some = min(1000, size.jobs[-1])
    light = [
        Task("cost", each, jobs, size)
        for each in (WE, peer(size))
        for jobs in size.jobs
        if (each, jobs) != (PEER, _MANY)
    ]
    # What a trigger holds between two polls does not depend on the interval. Tracing a thousand of
    # the peer's would take minutes.
    held = (WE, some), (WE, some // 5), (FRUGAL, some // 5)
    light += [Task("memory", each, jobs, size) for each, jobs in held]
    heavy = [Task("cost", each, _MANY, size) for each in (FRUGAL, PEER) if _MANY in size.jobs]
    return [light, *([each] for each in heavy)]


_OTHERS = "some triggers failed: the figures are those of the others"
_RATES = (
    ("API requests a minute", "", "requests"),
    ("TCP connections a minute", "", "connections"),
    ("TLS handshakes a minute", "", "handshakes"),
    ("CPU a minute", "s", "client"),
    ("bytes answered a minute", "MiB", "bytes answered"),
)
_GOALS = {"API requests a minute": 4.0, "CPU a minute": 0.003 * _CORE}


def _costs(costs: Iterable[Cost]) -> Iterator[Figure]:
    for each in costs:
        for state in STATES:
            yield from _rates(each, state)
            yield from _stall_figures(each, state)
        failed = [float(each.found["failed"])]
        yield _of(each, "triggers that failed", "", failed)
        if each.jobs == _MANY:
            name = f"triggers not started within {_LONGEST_START:g} s"
            yield _of(each, name, "", [float(each.jobs - each.found["started"])], note=_OTHERS)
        name, starting = "longest stall while all start", [each.found["starting"]["max"]]
        yield _of(each, name, "ms", starting, 20.0 if each.jobs == 1000 else None, OF_A_TURN)


def _rates(each: Cost, state: str) -> Iterator[Figure]:
    polls = each.setting.poll_seconds
    for name, unit, key in _RATES:
        factor = 1 / (1 << 20) if unit == "MiB" else 1.0
        values = [factor * value for value in each.a_minute(state, key)]
        goal = _GOALS.get(name) if state == "idle" and each.jobs == 1000 else None
        seconds = statistics.median(window["seconds"] for window in each.found[state])
        note = f"windows of {seconds:.0f} s"
        if polls is None and state == "idle":
            note += f", with waits of 1/{HURRY:g}"
        yield _of(each, f"{name}, {state}", unit, values, goal, note)
        if each.setting == PEER and each.jobs < _MANY:
            times = 60.0 / 10.0
            yield Figure(
                f"{name}, {state}",
                unit,
                tuple(value / times for value in values),
                FRUGAL.who,
                each.jobs,
                note=f"measured at every {PEER.poll_seconds:g} s, divided by {times:g}",
            )
    is_open = [window["open"] for window in each.found[state]]
    yield _of(each, f"connections open, {state}", "", is_open)
    if polls is not None:
        wanted = each.jobs * 60 / polls
        made = [100 * value / wanted for value in each.a_minute(state, "requests")]
        yield _of(each, f"polls made of those wanted, {state}", "%", made)


def _stall_figures(each: Cost, state: str) -> Iterator[Figure]:
    for name in ("p50", "p99", "max"):
        values = [window[name] for window in each.found[state]]
        goal = 20.0 if each.jobs == 1000 and name == "max" else None
        yield _of(each, f"stall {name}, {state}", "ms", values, goal, OF_A_TURN)
    values = [window["max with full"] for window in each.found[state]]
    yield _of(each, f"stall max with full collections, {state}", "ms", values)
    if state == "idle":
        clock = [window["clock"] for window in each.found[state]]
        yield _of(each, "longest turn by the clock, idle", "ms", clock, note=BY_THE_CLOCK)


def _growth(costs: Sequence[Cost]) -> Iterator[Figure]:
    """The power of the number of jobs with which it grows: 0 is not at all, 1 is in proportion."""
    large = [each for each in costs if each.jobs >= 100]
    fitted = large if len(large) > 1 else list(costs)
    jobs = [each.jobs for each in fitted]
    # All windows together: some contain no call at all.
    between = [sum(each.a_minute("idle", "between lists")) for each in fitted]
    note = f"from {jobs[0]:,} to {jobs[-1]:,} jobs"
    goal = 0.05 if jobs[-1] == _MANY else None
    yield Figure(
        "growth of calls between lists, power", "", (_power(jobs, between),), goal=goal, note=note
    )
    for each in costs:
        counts = each.found["counts"]
        yield _of(each, "pages of a list", "", [counts["list pytorchjobs"]])
        yield _of(each, "bytes of a list", "MiB", [counts["bytes of pytorchjobs"] / (1 << 20)])
    listed = [each.found["counts"]["bytes of pytorchjobs"] for each in fitted]
    yield Figure("growth of a list's bytes, power", "", (_power(jobs, listed),), note=note)


def _power(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least squares of the logarithms."""
    fitted = statistics.linear_regression(
        *([math.log(max(v, 1e-9)) for v in vs] for vs in (xs, ys))
    )
    return fitted.slope


def _full_core(costs: Iterable[Cost]) -> Iterator[Figure]:
    """How many of the peer's triggers fill the one core that a triggerer can use, since it has one
    thread."""
    for each in costs:
        every = each.setting.poll_seconds
        if every is None or each.jobs == 1:
            continue
        windows = each.found["idle"]
        a_poll = [window["client"] / max(window["requests"], 1) for window in windows]
        of_server = statistics.median(w["cpu"] / max(w["requests"], 1) for w in windows)
        note = f"the server takes {1000 * of_server:.1f} ms more, on another core"
        yield _of(each, "CPU of a poll", "ms", [1000 * seconds for seconds in a_poll], note=note)
        full = [every / seconds for seconds in a_poll]
        yield _of(each, "triggers that fill a core", "", full)


def _memory_figure(task: Task, found: list[float]) -> Figure:
    goal = 4.0 if (task.setting, task.jobs) == (WE, 1000) else None
    note = "more than a trigger that only awaits an Event"
    if task.setting == WE:
        note += "; includes what the shared feed remembers, without links"
    who = task.setting.who
    return Figure("memory of a trigger", "KiB", tuple(found), who, task.jobs, goal, note)


def _of(
    cost: Cost,
    name: str,
    unit: str,
    values: Iterable[float],
    goal: float | None = None,
    note: str = "",
) -> Figure:
    if cost.setting != WE:
        goal = None
    return Figure(name, unit, tuple(values), cost.setting.who, cost.jobs, goal, note)


if __name__ == "__main__":
    main(work, measure)
