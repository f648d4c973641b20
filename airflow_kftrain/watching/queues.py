"""What Kueue says about the jobs of a namespace that wait in its queues. All of them share one look
now and then; a watch would show the Workloads of all teams. Without such a job there is no call."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any

from airflow_kftrain.errors import Forbidden, KfTrainError, NotFound, NotServed
from airflow_kftrain.hooks.api_calls import OtherKind
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.monitoring.queues import (
    QueueState,
    Stage,
    read_job_uid,
    read_queue_state,
)
from airflow_kftrain.watching.store import Waiter

_log = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 10.0
"""Many jobs leave their queue sooner."""
LOOK_SECONDS = (30.0, 60.0)
"""The shortest and the longest time between two looks."""
ABSENT_SECONDS = 60.0
"""How long Kueue may take to create a Workload: it may be about to restart."""
MOST_JOBS = 50
"""In one call: their uids are in its address."""


class Queues:
    """The queued jobs of a namespace that somebody waits for, by their uids."""

    def __init__(
        self,
        hook: AsyncTrainingJobHook,
        turn: asyncio.Semaphore,
        namespace: str,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._hook = hook
        self._turn = turn
        self._namespace = namespace
        self._start = start
        self._waiters: dict[str, list[Waiter]] = {}
        self._found: dict[str, QueueState] = {}
        self._missing_since: dict[str, float] = {}
        """By the clock of the event loop."""
        self._kind: OtherKind | None = None
        """The Workload that the cluster serves, once that is known."""
        self._looked_at = -inf
        self._task: asyncio.Task[None] | None = None

    def state_of(self, uid: str) -> QueueState | None:
        return self._found.get(uid)

    def add(self, uid: str, waiter: Waiter) -> None:
        self._waiters.setdefault(uid, []).append(waiter)
        self._missing_since.setdefault(uid, asyncio.get_running_loop().time())
        if self._task is None:
            self._task = self._start(self._look_now_and_then())

    def remove(self, uid: str, waiter: Waiter) -> None:
        self._waiters[uid].remove(waiter)
        if self._waiters[uid]:
            return
        del self._waiters[uid], self._missing_since[uid]
        self._found.pop(uid, None)
        if not self._waiters and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look_now_and_then(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            at = max(
                loop.time() + FIRST_LOOK_SECONDS, self._looked_at + random.uniform(*LOOK_SECONDS)
            )
            await asyncio.sleep(at - loop.time())
            self._looked_at = loop.time()
            try:
                await self._look_at_all()
            except KfTrainError:
                continue  # the streams report what lasts
            except Exception:  # noqa: BLE001
                # Otherwise nobody would notice that Kueue is no longer asked.
                _log.exception("Workloads cannot be read, a bug in airflow-kftrain")

    async def _look_at_all(self) -> None:
        uids = list(self._waiters)
        for start in range(0, len(uids), MOST_JOBS):
            await self.look(uids[start : start + MOST_JOBS])

    async def look(self, uids: Sequence[str]) -> None:
        """Asks for the Workloads of these jobs. Raises an error that may pass."""
        try:
            states = await self._ask(uids)
        except (NotServed, NotFound) as error:
            self._kind = None  # Kueue may be installed later, or in another version
            states = dict.fromkeys(uids, QueueState(Stage.NO_KUEUE, message=str(error)))
        except Forbidden as error:
            states = dict.fromkeys(uids, QueueState(Stage.FORBIDDEN, message=str(error)))
        for uid in uids:
            if uid in self._waiters:  # its watch may have ended meanwhile
                self._see(uid, states.get(uid))

    async def _ask(self, uids: Sequence[str]) -> dict[str, QueueState]:
        async with self._turn:
            if self._kind is None:
                self._kind = await self._hook.workload_kind()
            found = await self._hook.workloads(self._kind, self._namespace, uids)
        by_job: dict[str, list[Any]] = {}
        for each in found:
            by_job.setdefault(read_job_uid(each), []).append(each)
        states = {uid: read_queue_state(workloads) for uid, workloads in by_job.items()}
        return {uid: state for uid, state in states.items() if state is not None}

    def _see(self, uid: str, state: QueueState | None) -> None:
        now = asyncio.get_running_loop().time()
        if state is not None:
            self._missing_since[uid] = now
        elif now >= self._missing_since[uid] + ABSENT_SECONDS:
            state = QueueState(Stage.ABSENT)
        if state is not None and state != self._found.get(uid):
            self._found[uid] = state
            for waiter in self._waiters[uid]:
                waiter.wake()
