"""Remembers failed pods of a job for the report: many are gone when the job has failed, and a
container that restarts forgets all ends but the last. Limited in size."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airflow_kftrain.monitoring.failures import Failure, LogKey, Weight, find_failures
from airflow_kftrain.monitoring.pods import ContainerEnd, PodState

_MOST_PODS = 32
_MOST_ENDS = 8
_MOST_LOGS = 3

_Key = tuple[str, datetime | None]


class Memory:
    """The memory of one job."""

    __slots__ = ("_pods", "logs")

    def __init__(self) -> None:
        self._pods: dict[_Key, PodState] = {}
        self.logs: dict[LogKey, str] = {}
        """The ends of logs; "" until they are read."""

    def keep(self, pod: PodState) -> Failure | None:
        """Keeps a pod if it has failed. Returns the failure if its log should be read now."""
        failure = next(iter(find_failures([pod])), None)
        if failure is None or not self._has_room(pod):
            return None
        self._pods[_key(pod)] = _joined(self._pods.get(_key(pod)), pod)
        if not failure.container or failure.weight >= Weight.CONSEQUENCE:
            return None
        if failure.log in self.logs or not self._has_room_for_log(failure.log):
            return None
        self.logs[failure.log] = ""
        return failure

    def keep_log(self, key: LogKey, text: str) -> None:
        """Stores the log of a failure that `keep` has returned, unless another one has taken its
        place."""
        if key in self.logs:
            self.logs[key] = text

    def merged_with(self, pods: Iterable[PodState]) -> list[PodState]:
        """The current pods with what is remembered of them, and the pods that are gone."""
        merged = dict(self._pods)
        for pod in pods:
            merged[_key(pod)] = _joined(self._pods.get(_key(pod)), pod)
        return list(merged.values())

    def _has_room_for_log(self, key: LogKey) -> bool:
        """Makes room if this log says more than one that is kept."""
        if len(self.logs) < _MOST_LOGS:
            return True
        found = find_failures(list(self._pods.values()))
        rank = {failure.log: number for number, failure in enumerate(found)}
        least = max(reversed(self.logs), key=lambda kept: rank.get(kept, len(rank)))
        if rank.get(key, len(rank)) >= rank.get(least, len(rank)):
            return False
        del self.logs[least]
        return True

    def _has_room(self, pod: PodState) -> bool:
        return _key(pod) in self._pods or len(self._pods) < _MOST_PODS


def _key(pod: PodState) -> _Key:
    """A recreated pod has the name of the old one, so its creation time is part of the key."""
    return pod.name, pod.created


def _joined(before: PodState | None, now: PodState) -> PodState:
    if before is None:
        return now
    known = {_end_key(end) for end in now.ends}
    past = [end._replace(past=True) for end in before.ends if _end_key(end) not in known]
    ends = (*now.ends, *past)[:_MOST_ENDS]
    return now._replace(
        ends=ends,
        disruption=now.disruption or before.disruption,
        deleted=now.deleted or before.deleted,
    )


def _end_key(end: ContainerEnd) -> tuple[object, ...]:
    return end.container, end.finished, end.exit_code
