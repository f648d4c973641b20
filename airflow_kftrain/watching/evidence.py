"""Collects what the report quotes when a job has ended: pods, ends of logs, events. Best effort,
with limits on size and time. It never changes the verdict."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.job_state import JobState, read_mapping, read_mappings, read_text
from airflow_kftrain.messages import ReplicaPod, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import Failure, LogKey, Weight, find_failures
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.usage import Usage, read_usage
from airflow_kftrain.watching.feeds import Subscription
from airflow_kftrain.watching.last_words import last_words
from airflow_kftrain.watching.logs import LogShow, read_rest
from airflow_kftrain.watching.masking import Mask
from airflow_kftrain.watching.reading import read_tail

_log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds, from the moment when the hub gives us a turn."""
_MOST_PODS_TOLD = 64


class Evidence:
    """Is filled while it is read, so that it is usable when the time is up."""

    def __init__(self, subscription: Subscription, mask: Mask, show: LogShow | None = None) -> None:
        """`show` knows which lines of the logs are in the task log already."""
        self._watched = subscription
        self._mask = mask
        self._show = show
        self._raw: list[dict[str, Any]] = []
        self.memory = subscription.memory
        self.pods: list[PodState] = self.memory.merged_with(subscription.pods)
        self.events: list[dict[str, Any]] = []
        self.tail = ""
        self.last_words: dict[str, str] = {}
        """Of a silent job: the end of the log of each replica."""

    @property
    def logs(self) -> dict[LogKey, str]:
        return self.memory.logs if self._mask.is_known else {}

    @property
    def first_failure(self) -> Failure | None:
        return next(iter(find_failures(self.pods)), None)

    async def gather(self, verdict: Verdict) -> None:
        if not self._watched.feed.is_away:
            await self._gather_in_time(verdict)
        if not self._mask.is_known:
            self._withhold()

    def _withhold(self) -> None:
        """Removes everything that may contain secrets that cannot be masked: output of programs and
        messages of kubelets."""
        self.tail = ""
        self.last_words = {}
        self.events = []
        self.pods = [_without_messages(pod) for pod in self.pods]

    async def _gather_in_time(self, verdict: Verdict) -> None:
        try:
            async with self._watched.feed.hub.turn:
                await asyncio.wait_for(self._gather(verdict), PATIENCE)
        except (KfTrainError, asyncio.TimeoutError):
            return
        except Exception:  # noqa: BLE001  # a fault of ours must not make a success a failure
            _log.exception("Cannot collect the evidence, a bug in airflow-kftrain")

    async def _gather(self, verdict: Verdict) -> None:
        feed = self._watched.feed
        hook, namespace = feed.hub.hook, feed.key.namespace
        try:
            self._raw = await hook.pods(feed.kind, namespace, self._watched.name)
        except KfTrainError:
            self._raw = []
        seen = [read_pod(feed.kind, pod) for pod in self._raw]
        self.pods = self.memory.merged_with([*self._watched.pods, *seen])
        # First, since it decides whether the rest may be quoted.
        await self._mask.learn(hook)
        works = [self._read_leader()]
        if verdict is not Verdict.SUCCEEDED:
            works += [self._read_failure(), self._read_events()]
        await asyncio.gather(*works)

    async def gather_last_words(self, order: WatchOrder) -> None:
        """Ends the job, and waits for what its pods say to that."""
        try:
            self.last_words = await last_words(self._watched, order, self.pods)
        except Exception:  # noqa: BLE001  # as above
            _log.exception("Cannot collect the last words, a bug in airflow-kftrain")
        if not self._mask.is_known:
            self._withhold()

    def usage(self, state: JobState, since: datetime | None) -> Usage:
        return read_usage(state, self._raw, since, datetime.now(timezone.utc))

    async def _read_leader(self) -> None:
        leader = find_leader(self.pods)
        if leader is None:
            return
        feed = self._watched.feed
        place = (feed.hub.hook, feed.key.namespace, leader)
        cursor = self._show.read_on(leader) if self._show else None
        if cursor is not None:
            self.tail = await read_rest(*place, cursor)
        else:
            self.tail = await read_tail(*place) or self._kept_log(leader)

    def _kept_log(self, pod: PodState) -> str:
        """The log of the latest end of the main container for which one was kept."""
        keys = (
            LogKey(pod.name, pod.created, pod.container, end.finished)
            for end in pod.ends
            if end.container == pod.container
        )
        return next((text for key in keys if (text := self.memory.logs.get(key))), "")

    async def _read_failure(self) -> None:
        """Reads the end of the log of the first failure."""
        failure = self.first_failure
        kept = self.memory.logs
        if failure is None or not failure.container or kept.get(failure.log):
            return
        this = (failure.pod, failure.created)
        pod = next(pod for pod in self.pods if (pod.name, pod.created) == this)
        feed = self._watched.feed
        kept[failure.log] = await read_tail(feed.hub.hook, feed.key.namespace, pod, failure)

    async def _read_events(self) -> None:
        """Reads the events of the job, of its pods, and of the objects between them."""
        feed = self._watched.feed
        owners = [
            read_text(owner.get("name"))
            for pod in self._raw
            for owner in read_mappings(read_mapping(pod.get("metadata")).get("ownerReferences"))
        ]
        failure = self.first_failure
        pods = [failure.pod] if failure else []
        pods += [pod.name for pod in self.pods if pod.troubles or pod.phase == "Pending"]
        # The JobSet of a TrainJob has the same name. What failed first may have been deleted with
        # its Job.
        about = dict.fromkeys([self._watched.name, *owners, *self._child_jobs(), *pods])
        try:
            self.events = await feed.hub.hook.events(feed.key.namespace, list(about))
        except KfTrainError:
            return

    def _child_jobs(self) -> list[str]:
        """The Jobs of a TrainJob: all their pods may be gone."""
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
        """The result that the main container of the leader has written. In an elastic job the ranks
        are renumbered, so rank 0 may have run in any pod."""
        leader = find_leader(self.pods)
        wanted = [leader] if leader else []
        if state.self_healing:
            wanted += [pod for pod in self.pods if pod is not leader]
        return next((text for pod in wanted if (text := _left_behind(pod))), "")


def find_leader(pods: Iterable[PodState]) -> PodState | None:
    """The leader with the lowest index; if its pod was recreated, the newest one."""
    leaders = [pod for pod in pods if pod.leads]
    if not leaders:
        return None
    first = min(leaders, key=lambda pod: (pod.index is None, pod.index or 0, pod.role))
    same = [pod for pod in leaders if (pod.role, pod.index) == (first.role, first.index)]
    return max(same, key=lambda pod: (pod.created is not None, pod.created or 0, pod.name))


def replica_pods(pods: Sequence[PodState]) -> tuple[ReplicaPod, ...]:
    """For links: the newest pod of each replica, leaders first."""
    newest: dict[str, PodState] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created is not None, pod.created or 0)):
        newest[pod.replica] = pod
    ordered = sorted(newest.values(), key=lambda pod: (not pod.leads, pod.role, pod.index or 0))
    return tuple(
        ReplicaPod(
            pod.role, pod.index, pod.name, pod.container, pod.leads, pod.node, pod.container_id
        )
        for pod in ordered[:_MOST_PODS_TOLD]
    )


def _without_messages(pod: PodState) -> PodState:
    """Without the messages of containers that failed. Messages of the others are results."""
    ends = (end._replace(message="") if end.failed else end for end in pod.ends)
    return pod._replace(ends=tuple(ends))


def _left_behind(pod: PodState) -> str:
    return next(
        (
            end.message
            for end in pod.ends
            if end.part == "main" and not end.past and not end.failed and end.message
        ),
        "",
    )
