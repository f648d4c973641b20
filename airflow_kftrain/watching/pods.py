"""The pods of all jobs of a feed that are in trouble: those that are neither running nor done, by a
watch, and those that run and crash again and again, by a look now and then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.job_state import Phase, read_mapping, read_text
from airflow_kftrain.monitoring.failures import Failure
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.watching.memory import Memory
from airflow_kftrain.watching.reading import read_tail
from airflow_kftrain.watching.streams import jittered

if TYPE_CHECKING:
    from airflow_kftrain.watching.feeds import Feed

_log = logging.getLogger(__name__)

TROUBLED = "status.phase!=Running,status.phase!=Succeeded"
RUNNING = "status.phase=Running"

LOOK_SECONDS = 30.0
"""Between looks for crash loops; the pause before a restart doubles from 10 seconds, so that the
crashes that count are far apart."""


class PodBook:
    """The sink of the stream of pods."""

    def __init__(self, feed: Feed, job_label: str) -> None:
        self._feed = feed
        self._job_label = job_label
        self._troubled: dict[str, dict[str, PodState]] = {}
        self._crashing: dict[str, dict[str, PodState]] = {}
        self._memories: dict[str, Memory] = {}
        self._listed: set[tuple[str, str]] = set()

    def of(self, job: str) -> list[PodState]:
        """The pods of a job that are in trouble."""
        found = {**self._crashing.get(job, {}), **self._troubled.get(job, {})}
        return list(found.values())

    def memory_of(self, job: str) -> Memory:
        """Empty where nothing has happened; it fills up as long as somebody waits for the job."""
        return self._memories.get(job) or Memory()

    def forget(self, job: str) -> None:
        """Nobody waits for it any more."""
        self._memories.pop(job, None)
        self._crashing.pop(job, None)
        entry = self._feed.entries.get(job)
        if entry is None or entry.state.phase.is_final:
            self._troubled.pop(job, None)

    # ----- what the stream tells

    def begin(self) -> None:
        self._listed = set()

    def put(self, item: Mapping[str, Any]) -> None:
        job, state = self._read(item)
        self._listed.add((job, state.name))
        entry = self._feed.entries.get(job)
        if job not in self._feed.subscriptions and entry and entry.state.phase.is_final:
            return
        pods = self._troubled.setdefault(job, {})
        if pods.get(state.name) != state:
            pods[state.name] = state
            self._notice(job, state)

    def drop(self, item: Mapping[str, Any]) -> None:
        """It runs now, or is gone: as it was last."""
        job, state = self._read(item)
        if self._remove(job, state.name):
            self._notice(job, state)

    def complete(self) -> None:
        there = [(job, name) for job, pods in self._troubled.items() for name in pods]
        for job, name in there:
            if (job, name) not in self._listed and self._remove(job, name):
                self._feed.wake(job)
        self._listed = set()

    def changed(self) -> None:
        self._feed.changed()

    def _read(self, item: Mapping[str, Any]) -> tuple[str, PodState]:
        labels = read_mapping(read_mapping(item.get("metadata")).get("labels"))
        return read_text(labels.get(self._job_label)), read_pod(self._feed.kind, item)

    def _remove(self, job: str, name: str) -> bool:
        pods = self._troubled.get(job, {})
        known = pods.pop(name, None)
        if not pods:
            self._troubled.pop(job, None)
        return known is not None

    def _notice(self, job: str, pod: PodState) -> None:
        """Somebody who waits for the job hears of it, and of a failure something is kept."""
        for subscription in self._feed.subscriptions.get(job, ()):
            subscription.pods_changed = True
            subscription.wake()
        if job in self._feed.subscriptions and (pod.ends or pod.disruption):
            memory = self._memories.setdefault(job, Memory())
            failure = memory.keep(pod)
            if failure is not None:
                self._feed.hub.start(self._keep_log(memory, pod, failure))

    async def _keep_log(self, memory: Memory, pod: PodState, failure: Failure) -> None:
        """At once: a pod that has failed may soon be gone, its log with it."""
        hub = self._feed.hub
        async with hub.log_turn:
            text = await read_tail(hub.hook, self._feed.key.namespace, pod, failure)
        memory.logs[pod.name] = text

    # ----- crash loops

    async def look_for_crashes(self) -> None:
        """A container that restarts in place leaves its pod Running, where no selector finds it."""
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(jittered(pause))
            wanted = {name for name in self._feed.subscriptions if self._may_crash(name)}
            if not wanted:
                continue
            try:
                seen = await self._look(wanted)
            except KfTrainError:
                continue  # the streams say what there is to be said
            except Exception:  # noqa: BLE001
                # The streams would go on without it, and without a feed that ends them.
                _log.exception("Crashes are not looked for, a fault of airflow-kftrain")
                continue
            # A list of many pages is not worth so many of them.
            pause = LOOK_SECONDS * max(1.0, seen / 500)

    def _may_crash(self, job: str) -> bool:
        entry = self._feed.entries.get(job)
        if entry is None or not entry.restarts:
            return False
        return entry.state.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)

    async def _look(self, wanted: set[str]) -> int:
        """How many pods there were."""
        _, items = await self._feed.running_pods.snapshot()
        found: dict[str, dict[str, PodState]] = {}
        seen = 0
        async for item in items:
            seen += 1
            job, state = self._read(item)
            if job in wanted and any(end.failed for end in state.ends):
                found.setdefault(job, {})[state.name] = state
        for job in wanted:
            before = self._crashing.get(job, {})
            for name, state in found.get(job, {}).items():
                if before.get(name) != state:
                    self._notice(job, state)
            if before and job not in found:
                self._feed.wake(job)
        self._crashing = found
        return seen
