"""Deletes orphans: the last resort, after on_kill and retries.

A feed reports each unfinished job that nobody in this process waits for. Other triggerers or
workers watch nearly all of them. So they are checked slowly, one after the other: the sweeper reads
the state of the task, and only if the task has ended or no longer exists, the job is an orphan. In
doubt it stays. Several triggerers may sweep the same jobs.
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
"""A younger job may not be watched yet."""
PAUSE = 10.0
"""Seconds between two checks."""
_LOOK_UP_SECONDS = 30.0

LookUp = Callable[[str, str, str, int, bool], Awaitable[TaskState]]
"""Has the parameters of airflow_compat.task_state."""

_GONE = TaskState(exists=False)


class Suspect(NamedTuple):
    """An unfinished job that nobody waits for here."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def place(self) -> tuple[JobKind, str, str]:
        """The job, as the arguments of a hook."""
        return find_kind(self.api_version, self.kind), self.namespace, self.name


class Sweeper:
    """Sweeps over one connection, in one event loop. Only triggerers have one: if each worker swept
    too, there would be many more calls."""

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
        """A reference, since asyncio keeps none."""
        self._has_told = False

    def consider(
        self, kind: JobKind, namespace: str, name: str, state: JobState, *, soon: bool = False
    ) -> None:
        """Remembers a job that nobody waits for here. `soon`: until now somebody waited for it."""
        suspect = Suspect(kind.api_version, kind.kind, namespace, name)
        if state.phase.is_final or suspect in self._waiting:
            return
        self._waiting.add(suspect)
        now = datetime.now(timezone.utc)
        grace = ((state.starting_since or now) + self._grace - now).total_seconds()
        asyncio.get_running_loop().call_later(max(grace, 0.0), self._line_up, suspect, soon)

    def forget(self, kind: JobKind, namespace: str, name: str) -> None:
        """Called when somebody waits for the job here."""
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
        # Not a sleeping task: it would be pending when the loop ends.
        loop.call_later(self._pause * random.uniform(0.75, 1.25), self._begin)
        self._looking = True

    def _begin(self) -> None:
        """Log lines go to the triggerer's log, not to that of the task whose trigger runs at this
        moment."""
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
        """Returns whether to check the job again, because the cluster or Airflow did not answer."""
        try:
            return await self._look_closely(suspect)
        except ClusterError as error:
            _log.warning("Cannot sweep %s: %s", suspect, error)
            return may_pass(error)
        except KfTrainError as error:
            _log.warning("Cannot sweep %s: %s", suspect, error)
            return False
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing is known
            _log.warning(
                "%s may be an orphan, but the state of its task cannot be read: %s", suspect, error
            )
            return True

    async def _look_closely(self, suspect: Suspect) -> bool:
        if self._has_told and not instance_is_configured():
            return False
        kind, *_ = suspect.place
        job = await self._hook.get(*suspect.place)
        claim = read_claim(job)
        if job is None or claim.owner.instance != airflow_instance():
            return False
        if not is_orphan(claim, read_state(kind, job), _GONE) or not self._is_configured(suspect):
            return False
        owner = claim.owner
        task = await asyncio.wait_for(
            self._look_up(
                owner.dag_id,
                owner.run_id,
                owner.task_id,
                owner.map_index,
                bool(owner.region_id),
            ),
            _LOOK_UP_SECONDS,
        )
        if await sweep(self._hook, suspect, owner, task):
            _log.warning("Deleted %s, an orphan: %s.", suspect, about_task(owner, task))
        return False

    def _is_configured(self, suspect: Suspect) -> bool:
        """Checked each time, but logged once, and only for a job that still exists without anybody
        who waits for it: a trigger leaves its job a moment before the worker deletes it."""
        if instance_is_configured():
            return True
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "No task here waits for %s. It may be an orphan, but this cannot be checked, since "
                "this Airflow has no name of its own: configure [kftrain] instance.",
                suspect,
            )
        return False


async def sweep(
    hook: AsyncTrainingJobHook, suspect: Suspect, owner: Owner, task: TaskState
) -> bool:
    """Deletes a job if it is still an orphan, given the state of its task. Returns whether it was
    deleted. Raises ClusterError."""

    def is_still(claim: Claim, state: JobState) -> bool:
        return claim.owner == owner and is_orphan(claim, state, task)

    return await delete_if(hook, *suspect.place, is_still)


def about_task(owner: Owner, task: TaskState) -> str:
    index = "" if owner.map_index < 0 else f"[{owner.map_index}]"
    what = f"task {owner.task_id}{index} of DAG {owner.dag_id}, run {owner.run_id},"
    return (
        f"{what} is {task.state or 'without a state'}"
        if task.exists
        else f"{what} no longer exists"
    )
