"""Deletes jobs that nobody looks after any more: the last resort, behind on_kill and retries.

A feed tells of each living job that nobody in this process waits for. Nearly all of them are
watched by other triggerers or wait on workers, so each is looked at in its turn and slowly: the
state of its task is asked, and only a task that has ended, or is there no more, makes it an orphan.
Any doubt leaves it. Several triggerers may sweep the same jobs.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from airflow_kftrain.airflow_compat import airflow_instance, instance_is_configured, task_state
from airflow_kftrain.errors import ClusterError, KfTrainError
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import JobState, read_state
from airflow_kftrain.kinds import JobKind, find_kind
from airflow_kftrain.manifests.identity import Owner
from airflow_kftrain.ownership import Claim, TaskState, is_orphan, read_claim
from airflow_kftrain.watching.ending import delete_if, may_pass

_log = logging.getLogger(__name__)

GRACE = timedelta(minutes=2)
"""So young a job may not be watched yet."""
PAUSE = 10.0
"""Seconds between two looks."""
_LOOK_UP_SECONDS = 30.0

LookUp = Callable[[str, str, str, int], Awaitable[TaskState]]
"""Takes dag, run, task and map index, as airflow_compat.task_state does."""

_GONE = TaskState(exists=False)


class Suspect(NamedTuple):
    """A living job, for which nobody waits here."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def place(self) -> tuple[JobKind, str, str]:
        """As hooks want it."""
        return find_kind(self.api_version, self.kind), self.namespace, self.name


class Sweeper:
    """Of one connection, in one event loop: a triggerer's, since every worker that swept, too,
    would multiply the questions."""

    def __init__(
        self,
        hook: AsyncTrainingJobHook,
        *,
        look_up: LookUp = task_state,
        grace: timedelta = GRACE,
        pause: float = PAUSE,
    ) -> None:
        self._hook = hook
        self._look_up = look_up
        self._grace = grace
        self._pause = pause
        self._queue: deque[Suspect] = deque()
        self._waiting: set[Suspect] = set()
        self._looking = False
        self._work: asyncio.Task[None] | None = None
        """Held, since a task that nobody holds may vanish."""
        self._has_told = False

    def consider(
        self, kind: JobKind, namespace: str, name: str, state: JobState, *, soon: bool = False
    ) -> None:
        """Takes note of a job for which nobody waits here. `soon`: until now somebody did."""
        suspect = Suspect(kind.api_version, kind.kind, namespace, name)
        if state.phase.is_final or suspect in self._waiting or not self._is_configured(suspect):
            return
        self._waiting.add(suspect)
        now = datetime.now(timezone.utc)
        grace = ((state.starting_since or now) + self._grace - now).total_seconds()
        asyncio.get_running_loop().call_later(max(grace, 0.0), self._line_up, suspect, soon)

    def forget(self, kind: JobKind, namespace: str, name: str) -> None:
        """Somebody waits for it here."""
        self._waiting.discard(Suspect(kind.api_version, kind.kind, namespace, name))

    def _line_up(self, suspect: Suspect, soon: bool) -> None:
        if soon:
            self._queue.appendleft(suspect)
        else:
            self._queue.append(suspect)
        if not self._looking:
            self._plan()

    def _plan(self) -> None:
        loop = asyncio.get_running_loop()
        # No task that sleeps: the end of the loop would find it pending.
        loop.call_later(self._pause * random.uniform(0.75, 1.25), self._begin)
        self._looking = True

    def _begin(self) -> None:
        """Its lines belong into the triggerer's log, not into that of the task whose trigger
        happened to come by."""
        loop = asyncio.get_running_loop()
        self._work = contextvars.Context().run(loop.create_task, self._look_at_next())

    async def _look_at_next(self) -> None:
        while self._queue and self._queue[0] not in self._waiting:
            self._queue.popleft()  # it was forgotten
        if self._queue:
            suspect = self._queue.popleft()
            if await self._look(suspect):
                self._queue.append(suspect)
            else:
                self._waiting.discard(suspect)
        if self._queue:
            self._plan()
        else:
            self._looking = False

    async def _look(self, suspect: Suspect) -> bool:
        """Whether it has to be looked at again, since somebody could not be asked."""
        try:
            return await self._look_closely(suspect)
        except ClusterError as error:
            _log.warning("Cannot sweep %s: %s", suspect, error)
            return may_pass(error)
        except KfTrainError as error:
            _log.warning("Cannot sweep %s: %s", suspect, error)
            return False
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing is known
            _log.warning("%s may be an orphan, but Airflow does not say: %s", suspect, error)
            return True

    async def _look_closely(self, suspect: Suspect) -> bool:
        kind, *_ = suspect.place
        job = await self._hook.get(*suspect.place)
        claim = read_claim(job)
        if job is None or claim.owner.instance != airflow_instance():
            return False
        if not is_orphan(claim, read_state(kind, job), _GONE):
            return False
        owner = claim.owner
        task = await asyncio.wait_for(
            self._look_up(owner.dag_id, owner.run_id, owner.task_id, owner.map_index),
            _LOOK_UP_SECONDS,
        )
        if await sweep(self._hook, suspect, owner, task):
            _log.warning("Deleted %s, an orphan: %s.", suspect, about_task(owner, task))
        return False

    def _is_configured(self, suspect: Suspect) -> bool:
        """Asked anew each time, but told once."""
        if instance_is_configured():
            return True
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "%s has nobody here who waits for it. Whether it is an orphan cannot be found out, "
                "since this Airflow has no name of its own: configure [kftrain] instance.",
                suspect,
            )
        return False


async def sweep(
    hook: AsyncTrainingJobHook, suspect: Suspect, owner: Owner, task: TaskState
) -> bool:
    """Deletes a job if it is an orphan still, its task being in this state; whether it did. Raises
    ClusterError."""

    def is_still(claim: Claim, state: JobState) -> bool:
        return claim.owner == owner and is_orphan(claim, state, task)

    return await delete_if(hook, *suspect.place, is_still)


def about_task(owner: Owner, task: TaskState) -> str:
    index = "" if owner.map_index < 0 else f"[{owner.map_index}]"
    what = f"task {owner.task_id}{index} of DAG {owner.dag_id}, run {owner.run_id},"
    return f"{what} is {task.state or 'without a state'}" if task.exists else f"{what} is gone"
