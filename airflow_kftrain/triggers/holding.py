"""Holds an event back until Airflow has noticed that the worker that deferred the task has exited.

If the event is too early, Airflow takes the exit of that worker for the exit of the resumed task,
and fails the task. A trigger cannot ask about workers or executors, but there is one sign: the last
thing that a worker does is to store the links of its task. Then the process exits, and the
scheduler notices that in its next loop. Three things say how long that takes on this machine now:
how late the trigger itself started, since that went the same way (from the worker through the API
server to another process); how long the worker took to store the links, if the trigger has seen
that; and how many tasks were deferred lately or have events that are held back, since a scheduler
with many tasks loops slowly.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone

LEAST = timedelta(seconds=2)
"""From the deferral to the event: the worker stores its links at once, its process exits,
and the scheduler loops twice."""
LEAST_FOR_PODS = timedelta(seconds=15)
"""The same if workers are pods: their exit is reported by the node and the API server."""
LEAST_AFTER_SIGN = timedelta(seconds=1)
"""From the moment when the sign is seen."""
LONGEST = timedelta(minutes=2)
"""From the deferral. No worker takes longer to exit, and no task should wait longer."""
USUAL_LATENESS = timedelta(seconds=2)
"""How late a trigger starts on an idle machine: the triggerer looks for new triggers once a
second."""
USUAL_SIGN = timedelta(seconds=0.5)
"""From the deferral to the links; it takes 0.2 seconds on an idle machine."""
SLOWNESS = 4
"""How many seconds longer to wait for each second that one of these is late. With 200 mapped tasks
on two busy cores, workers took 1.6 to 4 seconds to store their links, and the scheduler noticed
their exits 3 to 6 seconds later."""
EACH = timedelta(seconds=0.25)
"""For each other task of this process that was deferred lately or whose event is held back: with 60
tasks that were deferred at the same time on two busy cores, a loop of the scheduler took 5 seconds.
"""
LATELY = timedelta(seconds=10)
_MOST_STARTS = 1000
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0

_held: set[object] = set()
"""How many wait at the moment."""
_starts: deque[float] = deque(maxlen=_MOST_STARTS)
"""When the triggers of the latest deferrals started, by the clock of the event loop."""

IsStored = Callable[[], Awaitable[bool]]
"""Whether the worker has stored the links. May raise any error."""


def note_start(ordered: datetime) -> None:
    """Of a trigger. Those whose trainings still run count too: otherwise the first of many tasks
    that end would not know of the others. A triggerer that restarts gets old deferrals."""
    if datetime.now(timezone.utc) - ordered < LONGEST:
        _starts.append(asyncio.get_running_loop().time())


async def until_worker_has_ended(
    ordered: datetime, started: datetime, least: timedelta, is_stored: IsStored
) -> None:
    """`ordered` is when the worker deferred, `started` when the trigger started."""
    this = object()
    _held.add(this)
    try:
        await _until_worker_has_ended(ordered, started, least, is_stored)
    finally:
        _held.discard(this)


async def _until_worker_has_ended(
    ordered: datetime, started: datetime, least: timedelta, is_stored: IsStored
) -> None:
    clock = asyncio.get_running_loop().time
    # The clock of the worker may be ahead.
    ago = max((datetime.now(timezone.utc) - ordered).total_seconds(), 0.0)
    deferral = clock() - ago
    end = deferral + LONGEST.total_seconds()
    pause, sign = _FIRST_PAUSE, 0.0
    while clock() < end and not await _is_told(is_stored):
        await asyncio.sleep(min(pause, end - clock()))
        sign = clock() - deferral
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    lateness, seen = max(started - ordered, timedelta()), clock()

    def due() -> float:
        return seen + _margin(least, lateness, timedelta(seconds=sign)).total_seconds()

    # Again after each pause: meanwhile more tasks may have been deferred.
    while (rest := min(due(), end) - clock()) > 0:  # noqa: ASYNC110  # for a time, not for an event
        await asyncio.sleep(rest)


def _margin(least: timedelta, lateness: timedelta, sign: timedelta) -> timedelta:
    """From the sign to the event. What delays a trigger or a worker delays the scheduler, too."""
    unusual = max(lateness - USUAL_LATENESS, sign - USUAL_SIGN, timedelta())
    return max(least - lateness, LEAST_AFTER_SIGN) + SLOWNESS * unusual + EACH * (_crowd() - 1)


def _crowd() -> int:
    since = asyncio.get_running_loop().time() - LATELY.total_seconds()
    return max(len(_held), sum(start > since for start in _starts))


async def _is_told(is_stored: IsStored) -> bool:
    try:
        return await is_stored()
    except Exception:  # noqa: BLE001  # Airflow's own, of any kind: it may answer the next time
        return False
