"""Reads all pods of one job when that is useful: to say what a job that does not start waits for,
and which pods its replicas are. A feed knows only the pods in trouble."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timezone

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.messages import ReplicaPod
from airflow_kftrain.monitoring.decisions import judge
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.text import one_line
from airflow_kftrain.monitoring.volumes import VolumeTroubles, find_volume_troubles, with_troubles
from airflow_kftrain.watching.course import Course
from airflow_kftrain.watching.display import Display, replicas
from airflow_kftrain.watching.evidence import replica_pods
from airflow_kftrain.watching.feeds import Subscription
from airflow_kftrain.watching.logs import is_taken_over
from airflow_kftrain.watching.masking import Mask, Tell

PAUSE = 10.0
"""Seconds between two reads, and from a change to a read: most pods start faster."""
MOUNTING = 15.0
"""Seconds after which the events of a pod whose volumes are still being mounted are read: most
volumes are mounted faster."""
SPREAD = 60.0
"""A triggerer that takes over many jobs does not read the pods of all of them at once."""

_NONE_FOUND: VolumeTroubles = {}
"""One object for all jobs: few have such a trouble."""

PodsKnown = Callable[[Sequence[ReplicaPod]], Awaitable[None]]


class Survey:
    """Reads the pods of one job, for one watch."""

    __slots__ = (
        "_course",
        "_display",
        "_last",
        "_mask",
        "_pods_known",
        "_subscription",
        "_tell",
        "_volumes",
        "due",
        "troubled",
    )

    def __init__(
        self,
        course: Course,
        subscription: Subscription,
        tell: Tell,
        mask: Mask,
        pods_known: PodsKnown | None,
        display: Display | None,
    ) -> None:
        self._course = course
        self._subscription = subscription
        self._tell = tell
        self._mask = mask
        self._pods_known = pods_known
        self._display = display
        self._last = 0.0
        self._volumes = _NONE_FOUND
        self.due: float | None = None
        """By the clock of the event loop."""
        self.troubled: tuple[PodState, ...] = ()
        """Pods in trouble that the feed may not know: initializers of a TrainJob have no label of
        ours, and the feed sees no pods at all if it may not watch them."""

    def plan(self, before: JobState | None, state: JobState, now: datetime) -> None:
        """Called after each read of the state."""
        if before is not None and before.phase is state.phase:
            return
        self._plan_in(PAUSE)
        if state.phase is Phase.RUNNING and self._wants_pods:
            taken_over = before is None and is_taken_over(self._course.order, now)
            pause = random.uniform(0.0, SPREAD) if taken_over else 0.0
            self.due = asyncio.get_running_loop().time() + pause

    @property
    def _wants_pods(self) -> bool:
        """Whether all pods are read once when the job runs."""
        return self._pods_known is not None or self._display is not None

    def _plan_in(self, seconds: float) -> None:
        at = max(asyncio.get_running_loop().time(), self._last) + seconds
        if self.due is None or self.due > at:
            self.due = at

    async def look(self, state: JobState | None) -> None:
        """Reads the pods if that is due."""
        now = asyncio.get_running_loop().time()
        if self._subscription.pods_changed:
            self._subscription.pods_changed = False
            self._plan_in(PAUSE)
        if state is None or state.phase.is_final or self.due is None or now < self.due:
            return
        self.due, self._last = None, now
        runs = state.phase is Phase.RUNNING
        self.troubled = ()
        if runs and not self._subscription.pods and not self._wants_pods:
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
                self._tell(self._mask.own_line(line))
        self.troubled = tuple(pod for pod in pods if pod.troubles)
        await self.tell_pods(pods)
        mounting = [since for pod in pods if (since := _mounting(pod)) is not None]
        if mounting:
            left = MOUNTING - max(mounting)
            self._plan_in(left if left > 0 else self._course.order.poll_interval)
        # The feed sees no pods, so changes have to be polled.
        if state.phase in (Phase.STARTING, Phase.RESTARTING) and not self._subscription.pods:
            self._plan_in(self._course.order.poll_interval)

    async def all_pods(self) -> list[PodState]:
        """Raises ClusterError."""
        feed = self._subscription.feed
        async with feed.hub.turn:
            raw = await feed.hub.hook.pods(feed.kind, feed.key.namespace, self._subscription.name)
            pods = [read_pod(feed.kind, pod) for pod in raw]
            slow = [pod.name for pod in pods if (_mounting(pod) or 0.0) >= MOUNTING]
            self._volumes = await self._find_volume_troubles(pods, slow) if slow else _NONE_FOUND
        return self.with_volume_troubles(pods)

    async def _find_volume_troubles(
        self, pods: Sequence[PodState], slow: Sequence[str]
    ) -> VolumeTroubles:
        """If events cannot be read now, what was found before."""
        feed = self._subscription.feed
        try:
            events = await feed.hub.hook.events(feed.key.namespace, slow)
        except KfTrainError:
            return self._volumes
        return find_volume_troubles(pods, events)

    def with_volume_troubles(self, pods: Iterable[PodState]) -> list[PodState]:
        """Adds what is known about the volumes of the pods, which the pods do not show."""
        return with_troubles(pods, self._volumes)

    async def tell_pods(self, pods: Sequence[PodState]) -> tuple[ReplicaPod, ...]:
        """Passes the pods on, to be shown and to create links, even if nothing has changed. An
        error there must not end a job."""
        if self._display is not None:
            self._display.put("replicas", replicas(pods))
        known = replica_pods(pods)
        if self._pods_known is not None and known:
            try:
                await self._pods_known(known)
            except Exception as error:  # noqa: BLE001  # theirs, of any kind
                words = one_line(f"The links cannot be created: {type(error).__name__}: {error}")
                self._tell(self._mask.own_line(words))
        return known


def _mounting(pod: PodState) -> float | None:
    """For how many seconds its node has been mounting its volumes."""
    since = pod.mounts_since
    return (datetime.now(timezone.utc) - since).total_seconds() if since else None
