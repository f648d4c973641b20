"""The pods in trouble of all jobs of a feed. A watch finds those that are neither running nor done;
a list, now and then, finds those that keep crashing in place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.job_state import Phase, read_mapping, read_text
from airflow_kftrain.monitoring.failures import Failure
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.watching.memory import Memory
from airflow_kftrain.watching.store import JobStore
from airflow_kftrain.watching.streams import Source, jittered

_log = logging.getLogger(__name__)

TROUBLED = "status.phase!=Running,status.phase!=Succeeded"
RUNNING = "status.phase=Running"

LOOK_SECONDS = 30.0
"""Seconds between lists of crash loops. The pause before a restart doubles from 10 seconds, so the
crashes that count are far apart."""


class PodStore:
    """Takes what the stream of pods delivers."""

    def __init__(
        self,
        jobs: JobStore,
        job_label: str,
        running: Source,
        want_log: Callable[[Memory, PodState, Failure], None],
    ) -> None:
        self._jobs = jobs
        self._job_label = job_label
        self._running = running
        self._want_log = want_log
        """Called to keep the end of the log of a failed pod."""
        self._troubled: dict[str, dict[str, PodState]] = {}
        self._crashing: dict[str, dict[str, PodState]] = {}
        self._memories: dict[str, Memory] = {}
        self._listed: set[tuple[str, str]] = set()

    def of(self, job: str) -> list[PodState]:
        """The pods of a job that are in trouble."""
        found = {**self._crashing.get(job, {}), **self._troubled.get(job, {})}
        return list(found.values())

    def memory_of(self, job: str) -> Memory:
        """Empty if nothing has happened. It is filled only while somebody waits for the job."""
        return self._memories.get(job) or Memory()

    def forget(self, job: str) -> None:
        """Called when nobody waits for the job any more."""
        self._memories.pop(job, None)
        self._crashing.pop(job, None)
        entry = self._jobs.entries.get(job)
        if entry is None or entry.state.phase.is_final:
            self._troubled.pop(job, None)

    # ----- from the stream

    def begin(self) -> None:
        self._listed = set()

    def put(self, item: Mapping[str, Any]) -> None:
        job, state = self._read(item)
        self._listed.add((job, state.name))
        entry = self._jobs.entries.get(job)
        if job not in self._jobs.waiters and entry and entry.state.phase.is_final:
            return
        pods = self._troubled.setdefault(job, {})
        if pods.get(state.name) != state:
            pods[state.name] = state
            self._notice(job, state)

    def drop(self, item: Mapping[str, Any]) -> None:
        """The pod has left the selection: it runs now, or is gone. `item` is its last state."""
        job, state = self._read(item)
        if self._remove(job, state.name):
            self._notice(job, state)

    def complete(self) -> None:
        there = [(job, name) for job, pods in self._troubled.items() for name in pods]
        for job, name in there:
            if (job, name) not in self._listed and self._remove(job, name):
                self._jobs.wake(job)
        self._listed = set()

    def changed(self) -> None:
        self._jobs.changed()

    def _read(self, item: Mapping[str, Any]) -> tuple[str, PodState]:
        labels = read_mapping(read_mapping(item.get("metadata")).get("labels"))
        return read_text(labels.get(self._job_label)), read_pod(self._jobs.kind, item)

    def _remove(self, job: str, name: str) -> bool:
        pods = self._troubled.get(job, {})
        known = pods.pop(name, None)
        if not pods:
            self._troubled.pop(job, None)
        return known is not None

    def _notice(self, job: str, pod: PodState) -> None:
        """Wakes everybody who waits for the job, and remembers a failed pod."""
        for waiter in self._jobs.waiters.get(job, ()):
            waiter.pods_changed = True
            waiter.wake()
        if job in self._jobs.waiters and (pod.ends or pod.disruption):
            memory = self._memories.setdefault(job, Memory())
            failure = memory.keep(pod)
            if failure is not None:
                self._want_log(memory, pod, failure)

    # ----- crash loops

    async def look_for_crashes(self) -> None:
        """Looks for containers that restart in place: their pods stay Running, where no selector
        finds them."""
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(jittered(pause))
            wanted = {name for name in self._jobs.waiters if self._may_crash(name)}
            if not wanted:
                continue
            try:
                seen = await self._look(wanted)
            except KfTrainError:
                continue  # the streams report the problem
            except Exception:  # noqa: BLE001
                # Otherwise the streams would continue without this check, and nobody would notice.
                _log.exception("Cannot check for crashes, a bug in airflow-kftrain")
                continue
            # A list of many pages is too expensive to repeat as often.
            pause = LOOK_SECONDS * max(1.0, seen / 500)

    def _may_crash(self, job: str) -> bool:
        entry = self._jobs.entries.get(job)
        if entry is None or not entry.restarts:
            return False
        return entry.state.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)

    async def _look(self, wanted: set[str]) -> int:
        """Returns how many pods were listed."""
        _, items = await self._running.snapshot()
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
                self._jobs.wake(job)
        self._crashing = found
        return seen
