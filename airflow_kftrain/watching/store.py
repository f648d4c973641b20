"""The jobs that a feed knows, and the tasks that wait for them."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_kftrain.job_state import JobState, ReplicaCount, read_mapping, read_state, read_text
from airflow_kftrain.kinds import JobKind

_WOKEN_AT_ONCE = 20


class Entry(NamedTuple):
    """What is remembered of a job."""

    uid: str
    state: JobState
    restarts: bool
    """Whether containers of its pods may restart in place."""


class Waiter:
    """A task that waits for one job. Thousands exist at the same time, so it is small."""

    __slots__ = (
        "_future",
        "_is_due",
        "last_words",
        "name",
        "pods_changed",
        "poll_interval",
        "uid",
    )

    def __init__(self, name: str, uid: str, poll_interval: float) -> None:
        self.name = name
        self.uid = uid
        self.poll_interval = poll_interval
        """In seconds."""
        self.last_words: JobState | None = None
        """The final state of a job that was deleted right afterwards."""
        self.pods_changed = False
        self._is_due = False
        self._future: asyncio.Future[None] | None = None

    async def wait(self, seconds: float | None) -> None:
        """Waits until something changes, or for so many seconds."""
        if self._is_due:
            self._is_due = False
            # Lets other tasks run, even if this one is woken all the time.
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = None if seconds is None else loop.call_later(max(seconds, 0.0), self.wake)
        try:
            await self._future
        finally:
            self._future = None
            self._is_due = False
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        self._is_due = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class JobStore:
    """All jobs of a feed, as its stream delivers them. It keeps only their states."""

    def __init__(self, kind: JobKind, unattended: Callable[[str, JobState | None], None]) -> None:
        self.kind = kind
        self.entries: dict[str, Entry] = {}
        self.waiters: dict[str, list[Waiter]] = {}
        self._unattended = unattended
        """Called for each job that nobody waits for, with its state, or with None if it is gone."""
        self._listed: set[str] = set()

    # ----- the tasks that wait

    def add(self, waiter: Waiter) -> None:
        self.waiters.setdefault(waiter.name, []).append(waiter)

    def remove(self, waiter: Waiter) -> bool:
        """Returns whether nobody else waits for that job."""
        others = self.waiters[waiter.name]
        others.remove(waiter)
        if not others:
            del self.waiters[waiter.name]
        return not others

    def wake(self, name: str) -> None:
        for waiter in self.waiters.get(name, ()):
            waiter.wake()

    def _wake_in_turn(self, waiters: Sequence[Waiter]) -> None:
        """In groups: waking a thousand at once would stall the loop."""
        for waiter in waiters[:_WOKEN_AT_ONCE]:
            waiter.wake()
        if rest := waiters[_WOKEN_AT_ONCE:]:
            asyncio.get_running_loop().call_soon(self._wake_in_turn, rest)

    def _all_waiters(self) -> list[Waiter]:
        return [each for some in self.waiters.values() for each in some]

    # ----- from the stream

    def begin(self) -> None:
        self._listed = set()

    def put(self, item: Mapping[str, Any]) -> None:
        metadata = read_mapping(item.get("metadata"))
        name = read_text(metadata.get("name"))
        uid = read_text(metadata.get("uid"))
        self._listed.add(name)
        known = self.entries.get(name)
        state = _condensed(read_state(self.kind, item))
        self.entries[name] = Entry(uid, state, _may_restart(self.kind, item))
        if name not in self.waiters:
            self._unattended(name, state)
        elif known is None or (known.uid, known.state) != (uid, state):
            self.wake(name)

    def drop(self, item: Mapping[str, Any]) -> None:
        """Keeps the last state, since a job may end just before it is deleted."""
        metadata = read_mapping(item.get("metadata"))
        name, uid = read_text(metadata.get("name")), read_text(metadata.get("uid"))
        self.entries.pop(name, None)
        state = read_state(self.kind, item)
        for waiter in self.waiters.get(name, ()):
            if state.phase.is_final and waiter.uid in ("", uid):
                waiter.last_words = state
            waiter.wake()
        if name not in self.waiters:
            self._unattended(name, None)

    def complete(self) -> None:
        gone = self.entries.keys() - self._listed
        for name in gone:
            del self.entries[name]
            if name not in self.waiters:
                self._unattended(name, None)
        self._listed = set()
        self._wake_in_turn([each for each in self._all_waiters() if each.name in gone])

    def changed(self) -> None:
        self._wake_in_turn(self._all_waiters())


def _may_restart(kind: JobKind, job: Mapping[str, Any]) -> bool:
    """Whether containers of the job's pods may restart in place. A TrainJob does not say: its
    runtime decides."""
    spec = read_mapping(job.get("spec"))
    if kind.replicas_key:
        roles = read_mapping(spec.get(kind.replicas_key)).values()
        policies = {read_text(read_mapping(role).get("restartPolicy")) for role in roles}
    elif kind.template_key:
        pod = read_mapping(read_mapping(spec.get(kind.template_key)).get("spec"))
        policies = {read_text(pod.get("restartPolicy"))}
    else:
        return True
    return not policies <= {"Never", "ExitCode"}


def _condensed(state: JobState) -> JobState:
    """Thousands of jobs have the same reasons and counts, so they share these objects."""
    return state._replace(
        reason=sys.intern(state.reason),
        replicas=_shared(state.replicas),
        queue=sys.intern(state.queue),
        queue_priority=sys.intern(state.queue_priority),
    )


@functools.lru_cache(maxsize=1024)
def _shared(replicas: tuple[ReplicaCount, ...]) -> tuple[ReplicaCount, ...]:
    return tuple(each._replace(role=sys.intern(each.role)) for each in replicas)
