"""What a try of a task has used: seconds in each phase, seconds of pods and of devices.

It is read from the pods that are there at the end. What is no longer there is said, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from airflow_kftrain.job_state import (
    JobState,
    read_mapping,
    read_mappings,
    read_number,
    read_time,
)
from airflow_kftrain.monitoring.text import duration, one_line
from airflow_kftrain.specs.resources import is_device
from airflow_kftrain.specs.values import nano_units

_MOST_DEVICES = 8


class Usage(NamedTuple):
    """Seconds, or None if they are not known."""

    queued: float | None = None
    starting: float | None = None
    running: float | None = None
    pod_seconds: float = 0.0
    devices: Mapping[str, float] = {}
    """Device-seconds by the name of the resource: `nvidia.com/gpu`."""
    restarts: int = 0
    unseen: str = ""
    """What is missing in these figures."""

    def words(self) -> str:
        """For the log."""
        phases = ("queued", "starting", "running")
        parts = [
            f"{duration(seconds)} {name}"
            for name in phases
            if (seconds := getattr(self, name)) is not None and (seconds or name == "running")
        ]
        parts.append(f"{duration(self.pod_seconds)} of pods")
        parts += [f"{duration(used)} of {name}" for name, used in self.devices.items()]
        if self.restarts:
            parts.append(f"{self.restarts} restart{'s' if self.restarts > 1 else ''}")
        return ", ".join(parts) + (f" ({self.unseen})" if self.unseen else "")

    def to_dict(self) -> dict[str, Any]:
        """For the XCom."""
        return {
            name: value for name, value in self._asdict().items() if value not in (None, "", {})
        }


def read_usage(
    state: JobState, pods: Sequence[Mapping[str, Any]], since: datetime | None, now: datetime
) -> Usage:
    """`pods` as the API server sends them; `since`: when the task has asked for the job."""
    spans = [span for pod in pods if (span := _span(pod, now))]
    begins = [start for pod in pods for start in _starts(pod)]
    ended = state.finished or now
    resumed = _later(state.starting_since, since)
    first = _later(min(begins, default=None), since)
    devices: dict[str, float] = {}
    for pod in pods:
        if span := _span(pod, now):
            for name, count in _devices(pod):
                used = count * (span[1] - span[0]).total_seconds()
                devices[name] = round(devices.get(name, 0.0) + used, 3)
    return Usage(
        queued=_seconds(since, resumed),
        starting=_seconds(resumed, first or (None if pods else ended)),
        running=_seconds(first, ended) if first else (None if _has_run(state) else 0.0),
        pod_seconds=sum((end - start).total_seconds() for start, end in spans),
        devices=dict(list(devices.items())[:_MOST_DEVICES]),
        restarts=sum(_restarts(pod) for pod in pods) + _recreated(pods),
        unseen=_unseen(state, len(pods)),
    )


def _unseen(state: JobState, seen: int) -> str:
    counted = sum(each.active + each.succeeded + each.failed for each in state.replicas)
    if seen >= counted:
        return ""
    return f"{counted - seen} of {counted} pods were gone and are not counted"


def _has_run(state: JobState) -> bool:
    return any(each.succeeded or each.failed for each in state.replicas)


def _later(time: datetime | None, since: datetime | None) -> datetime | None:
    """A job that was adopted has times from before this try."""
    return max(time, since) if time and since else time


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return round(max((end - start).total_seconds(), 0.0), 3) if start and end else None


def _span(pod: Mapping[str, Any], now: datetime) -> tuple[datetime, datetime] | None:
    """From the moment when the node has accepted the pod, and with it reserved its devices, until
    its last container has ended."""
    status = read_mapping(pod.get("status"))
    start = read_time(status.get("startTime"))
    if start is None:
        return None
    is_done = status.get("phase") in ("Succeeded", "Failed")
    ends = [
        end
        for container in read_mappings(status.get("containerStatuses"))
        if (end := read_time(_ended(container, "state").get("finishedAt")))
    ]
    end = max(ends, default=start) if is_done else now
    return start, max(start, end)


def _starts(pod: Mapping[str, Any]) -> Iterator[datetime]:
    """When its containers have started, as far as the status still says so."""
    for container in read_mappings(read_mapping(pod.get("status")).get("containerStatuses")):
        running = read_mapping(read_mapping(container.get("state")).get("running"))
        for said in (running, _ended(container, "state"), _ended(container, "lastState")):
            if start := read_time(said.get("startedAt")):
                yield start


def _ended(container: Mapping[str, Any], which: str) -> Mapping[str, Any]:
    return read_mapping(read_mapping(container.get(which)).get("terminated"))


def _restarts(pod: Mapping[str, Any]) -> int:
    listed = read_mappings(read_mapping(pod.get("status")).get("containerStatuses"))
    return sum(read_number(container.get("restartCount")) or 0 for container in listed)


def _recreated(pods: Sequence[Mapping[str, Any]]) -> int:
    names = [read_mapping(pod.get("metadata")).get("name") for pod in pods]
    return len(names) - len(set(names))


def _devices(pod: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Devices cannot be shared, so their request is equal to their limit."""
    for container in read_mappings(read_mapping(pod.get("spec")).get("containers")):
        resources = read_mapping(container.get("resources"))
        for name, said in read_mapping(resources.get("limits")).items():
            if is_device(name) and (count := _count(said)):
                yield one_line(name, 63), count


def _count(said: object) -> float:
    try:
        return max(nano_units(str(said)) / 1e9, 0.0)
    except (ValueError, OverflowError):
        return 0.0
