"""Keeps the XCom `kftrain` of a task up to date: what people see of its job while it runs.

Each write costs the process that runs all triggers a few milliseconds. So it is written on changes
only, with pauses that grow, and all tasks of the process share one limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from weakref import WeakKeyDictionary

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import one_line

FIRST_PAUSE = 15.0
"""Seconds. A job that ends within that time is only written at its end."""
LONGEST_PAUSE = 300.0
WRITES_A_SECOND = 2.0
"""Of all tasks of a process."""
_MOST_REPLICAS = 64

Store = Callable[[dict[str, Any]], Awaitable[None]]
"""Writes the XCom."""

_free_at: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""When each event loop may write next."""


class Display:
    """The XCom of one task."""

    __slots__ = ("_changed", "_has_turn", "_pause", "_phase", "_since", "_store", "due", "parts")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._phase: Phase | None = None
        self._since: datetime | None = None
        self._changed = False
        self._pause = FIRST_PAUSE
        self._has_turn = False
        self.due = asyncio.get_running_loop().time() + FIRST_PAUSE
        """By the clock of the event loop: when to write, if something has changed."""
        self.parts: dict[str, Any] = {}
        """What is written beside the phase."""

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""
        return self._changed

    def see(self, state: JobState) -> None:
        if state.phase is not self._phase:
            self._phase, self._since = state.phase, datetime.now(timezone.utc)
            self._changed = True

    def put(self, name: str, part: Any) -> None:
        """A part that is empty is left out."""
        if part != self.parts.get(name):
            self._changed = True
            self.parts[name] = part

    def progress(self, make: Callable[[], Any]) -> None:
        """It has changed, and is made only when it is written, since that takes long. The first one
        does not wait for the next pause to end: it says that the training trains."""
        if "progress" not in self.parts and not self._has_turn:
            self.due = 0.0
        self._changed = True
        self.parts["progress"] = make

    async def write_if_due(self, uid: str) -> None:
        """An error of Airflow must not end a training, and is logged with the next change."""
        now = asyncio.get_running_loop().time()
        if not self._changed or now < self.due:
            return
        if not self._has_turn:
            self._take_turn(now)
            if now < self.due:
                return
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self.due, self._has_turn, self._changed = now + self._pause, False, False
        await self._store(self.value(uid))

    def _take_turn(self, now: float) -> None:
        loop = asyncio.get_running_loop()
        self.due = max(now, _free_at.get(loop, 0.0))
        _free_at[loop] = self.due + 1 / WRITES_A_SECOND
        self._has_turn = True

    async def write_end(self, uid: str, state: JobState, parts: Mapping[str, Any]) -> None:
        """At once: the end is what people look for."""
        self.see(state)
        self.parts.update(parts)
        await self._store(self.value(uid))

    def value(self, uid: str) -> dict[str, Any]:
        return {
            "uid": uid,
            "phase": self._phase.value if self._phase else None,
            "since": _written(self._since),
            "written": _written(datetime.now(timezone.utc)),
            **{name: made for name, part in self.parts.items() if (made := _made(part))},
        }


def _made(part: Any) -> Any:
    return part() if callable(part) else part


def _written(time: datetime | None) -> str | None:
    return time.isoformat(timespec="seconds") if time else None


def replicas(pods: Sequence[PodState]) -> list[dict[str, Any]]:
    """The newest pod of each replica, leaders first."""
    newest: dict[str, PodState] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created is not None, pod.created or 0)):
        newest[pod.replica] = pod
    ordered = sorted(newest.values(), key=lambda pod: (not pod.leads, pod.role, pod.index or 0))
    return [_replica(pod) for pod in ordered[:_MOST_REPLICAS]]


def _replica(pod: PodState) -> dict[str, Any]:
    main = [end for end in pod.ends if end.part == "main"]
    last = next((end for end in main if not end.past), None)
    waiting = pod.troubles[0].reason if pod.troubles else pod.waiting
    return {
        "role": pod.role,
        "index": pod.index,
        "pod": pod.name,
        "phase": one_line(waiting or pod.phase, 63),
        "node": pod.node,
        "restarts": max((end.restarts for end in main), default=0),
        "exit_code": last.exit_code if last else None,
        "leads": pod.leads,
    }
