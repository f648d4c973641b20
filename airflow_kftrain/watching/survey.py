"""Looks at all pods of one job, when that tells something: what a job that does not come up waits
for, and which pods its replicas are. A feed knows only the pods that are in trouble.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.messages import ReplicaPod
from airflow_kftrain.monitoring.decisions import judge
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.text import one_line
from airflow_kftrain.watching.course import Course
from airflow_kftrain.watching.evidence import replica_pods
from airflow_kftrain.watching.logs import Tell, is_taken_over
from airflow_kftrain.watching.subscription import Subscription

PAUSE = 10.0
"""Seconds between two looks, and from a change to the look: most pods come up in less."""
SPREAD = 60.0
"""A triggerer that takes over many jobs does not look at all of them at once."""

PodsKnown = Callable[[Sequence[ReplicaPod]], Awaitable[None]]


class Survey:
    """Of one job, for one who waits for it."""

    __slots__ = (
        "_course",
        "_last",
        "_pods_known",
        "_subscription",
        "_tell",
        "_told",
        "due",
        "troubled",
    )

    def __init__(
        self,
        course: Course,
        subscription: Subscription,
        tell: Tell,
        pods_known: PodsKnown | None,
    ) -> None:
        self._course = course
        self._subscription = subscription
        self._tell = tell
        self._pods_known = pods_known
        self._last = 0.0
        self._told: tuple[ReplicaPod, ...] = ()
        self.due: float | None = None
        """By the clock of the loop."""
        self.troubled: tuple[PodState, ...] = ()
        """Pods that the feed may not see: those of a TrainJob's initializers bear no label of
        ours, and where no watch of pods is allowed it sees none."""

    def plan(self, before: JobState | None, state: JobState, now: datetime) -> None:
        """After a look at the state."""
        if before is not None and before.phase is state.phase:
            return
        self._plan_in(PAUSE)
        if state.phase is Phase.RUNNING and self._pods_known is not None:
            taken_over = before is None and is_taken_over(self._course.order, now)
            pause = random.uniform(0.0, SPREAD) if taken_over else 0.0
            self.due = asyncio.get_running_loop().time() + pause

    def _plan_in(self, seconds: float) -> None:
        at = max(asyncio.get_running_loop().time(), self._last) + seconds
        if self.due is None or self.due > at:
            self.due = at

    async def look(self, state: JobState | None) -> None:
        """If it is due."""
        now = asyncio.get_running_loop().time()
        if self._subscription.pods_changed:
            self._subscription.pods_changed = False
            self._plan_in(PAUSE)
        if state is None or state.phase.is_final or self.due is None or now < self.due:
            return
        self.due, self._last = None, now
        runs = state.phase is Phase.RUNNING
        self.troubled = ()
        if runs and not self._subscription.pods and self._pods_known is None:
            return
        try:
            pods = await self.all_pods()
        except KfTrainError as error:
            if error.retryable:
                self._plan_in(self._course.order.poll_interval)
            return
        if state.phase is not Phase.QUEUED:
            decision = judge(self._course.kind, state, pods)
            all_run = runs and all(pod.runs or pod.ends for pod in pods)
            for line in self._course.waiting_lines(decision, quiet=all_run):
                self._tell(line)
        self.troubled = tuple(pod for pod in pods if pod.troubles)
        await self.tell_pods(pods)
        # Nobody tells when something changes.
        if state.phase in (Phase.STARTING, Phase.RESTARTING) and not self._subscription.pods:
            self._plan_in(self._course.order.poll_interval)

    async def all_pods(self) -> list[PodState]:
        """Raises ClusterError."""
        feed = self._subscription.feed
        async with feed.hub.turn:
            raw = await feed.hub.hook.pods(feed.kind, feed.key.namespace, self._subscription.name)
        return [read_pod(feed.kind, pod) for pod in raw]

    async def tell_pods(self, pods: Sequence[PodState]) -> tuple[ReplicaPod, ...]:
        """Whoever makes links of them. A fault of theirs is not worth a job."""
        known = replica_pods(pods)
        if self._pods_known is not None and known and known != self._told:
            self._told = known
            try:
                await self._pods_known(known)
            except Exception as error:  # noqa: BLE001  # theirs, of any kind
                self._tell(one_line(f"The links cannot be made: {type(error).__name__}: {error}"))
        return known
