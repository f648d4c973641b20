"""What supports the verdict, read at the end: pods, ends of logs, events. Best effort, bounded in
size and in time, and never a reason to judge otherwise than the job itself says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.job_state import JobState, read_mapping, read_mappings, read_text
from airflow_kftrain.messages import ReplicaPod
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import Failure, Weight, find_failures
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.watching.reading import read_tail
from airflow_kftrain.watching.subscription import Subscription

_log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds, once it is our turn."""
_MOST_PODS_TOLD = 64


class Evidence:
    """Fills up as it is read, so that what there is counts when the time is up."""

    def __init__(self, subscription: Subscription) -> None:
        self._watched = subscription
        self._raw: list[dict[str, Any]] = []
        self.memory = subscription.memory
        self.pods: list[PodState] = self.memory.merged_with(subscription.pods)
        self.events: list[dict[str, Any]] = []
        self.tail = ""

    @property
    def logs(self) -> dict[str, str]:
        return self.memory.logs

    @property
    def first_failure(self) -> Failure | None:
        return next(iter(find_failures(self.pods)), None)

    async def gather(self, verdict: Verdict) -> None:
        if self._watched.feed.is_away:
            return
        try:
            async with self._watched.feed.hub.turn:
                await asyncio.wait_for(self._gather(verdict), PATIENCE)
        except (KfTrainError, asyncio.TimeoutError):
            return
        except Exception:  # noqa: BLE001  # a fault of ours must not make a success a failure
            _log.exception("The evidence cannot be read, a fault of airflow-kftrain")

    async def _gather(self, verdict: Verdict) -> None:
        feed = self._watched.feed
        hook, namespace = feed.hub.hook, feed.key.namespace
        try:
            self._raw = await hook.pods(feed.kind, namespace, self._watched.name)
        except KfTrainError:
            self._raw = []
        seen = [read_pod(feed.kind, pod) for pod in self._raw]
        self.pods = self.memory.merged_with([*self._watched.pods, *seen])
        works = [self._read_leader()]
        if verdict is not Verdict.SUCCEEDED:
            works += [self._read_failure(), self._read_events()]
        await asyncio.gather(*works)

    async def _read_leader(self) -> None:
        leader = find_leader(self.pods)
        if leader is not None:
            feed = self._watched.feed
            self.tail = await read_tail(feed.hub.hook, feed.key.namespace, leader)
            self.tail = self.tail or self.logs.get(leader.name, "")

    async def _read_failure(self) -> None:
        """The end of the log of what failed first."""
        failure = self.first_failure
        if failure is None or not failure.container or self.logs.get(failure.pod):
            return
        pod = next(pod for pod in self.pods if pod.name == failure.pod)
        feed = self._watched.feed
        self.logs[pod.name] = await read_tail(feed.hub.hook, feed.key.namespace, pod, failure)

    async def _read_events(self) -> None:
        """About the job, what stands between it and its pods, and the pods."""
        feed = self._watched.feed
        owners = [
            read_text(owner.get("name"))
            for pod in self._raw
            for owner in read_mappings(read_mapping(pod.get("metadata")).get("ownerReferences"))
        ]
        failure = self.first_failure
        pods = [failure.pod] if failure else []
        pods += [pod.name for pod in self.pods if pod.troubles or pod.phase == "Pending"]
        # A TrainJob's JobSet has its name, and what failed first may be gone with its Job.
        about = dict.fromkeys([self._watched.name, *owners, *self._child_jobs(), *pods])
        try:
            self.events = await feed.hub.hook.events(feed.key.namespace, list(about))
        except KfTrainError:
            return

    def _child_jobs(self) -> list[str]:
        """The Jobs of a TrainJob, whose pods may all be gone."""
        feed = self._watched.feed
        state = self._watched.state
        if not feed.kind.trainer_key or state is None:
            return []
        return [f"{self._watched.name}-{each.role}-0" for each in state.replicas]

    def exit_code(self) -> int | None:
        failure = self.first_failure
        real = failure is not None and failure.weight < Weight.CONSEQUENCE
        return failure.exit_code if failure is not None and real else None

    def result(self, state: JobState) -> str:
        """What the leader's main container left behind. Elastic nodes number their ranks anew, so
        that rank 0 may have run in any of them."""
        leader = find_leader(self.pods)
        wanted = [leader] if leader else []
        if state.self_healing:
            wanted += [pod for pod in self.pods if pod is not leader]
        return next((text for pod in wanted if (text := _left_behind(pod))), "")


def find_leader(pods: Iterable[PodState]) -> PodState | None:
    """The one whose log tells the story: of several the first that is not about to go, and of
    those that were made anew the newest."""
    leaders = [pod for pod in pods if pod.leads]
    if not leaders:
        return None
    first = min(leaders, key=lambda pod: (pod.index is None, pod.index or 0, pod.role))
    same = [pod for pod in leaders if (pod.role, pod.index) == (first.role, first.index)]
    return max(same, key=lambda pod: (pod.created is not None, pod.created or 0, pod.name))


def replica_pods(pods: Sequence[PodState]) -> tuple[ReplicaPod, ...]:
    """For links: the newest of each replica, leaders first."""
    newest: dict[str, PodState] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created is not None, pod.created or 0)):
        newest[pod.replica] = pod
    ordered = sorted(newest.values(), key=lambda pod: (not pod.leads, pod.role, pod.index or 0))
    return tuple(
        ReplicaPod(pod.role, pod.index, pod.name, pod.container, pod.leads)
        for pod in ordered[:_MOST_PODS_TOLD]
    )


def _left_behind(pod: PodState) -> str:
    return next(
        (
            end.message
            for end in pod.ends
            if end.part == "main" and not end.past and not end.failed and end.message
        ),
        "",
    )
