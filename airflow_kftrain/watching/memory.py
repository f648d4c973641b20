"""What the pods of a job showed when they got into trouble, kept for the report: many are gone by
the time the job has failed, and a container that restarts forgets all but its last end. Bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airflow_kftrain.monitoring.failures import Failure, Weight, find_failures
from airflow_kftrain.monitoring.pods import ContainerEnd, PodState

_MOST_PODS = 32
_MOST_ENDS = 8
_MOST_LOGS = 3

_Key = tuple[str, datetime | None]


class Memory:
    """Of one job."""

    __slots__ = ("_pods", "logs")

    def __init__(self) -> None:
        self._pods: dict[_Key, PodState] = {}
        self.logs: dict[str, str] = {}
        """The ends of logs, by the pods' names."""

    def keep(self, pod: PodState) -> Failure | None:
        """Keeps a pod if it tells of a failure; gives the failure if its log is worth reading
        now."""
        failure = next(iter(find_failures([pod])), None)
        if failure is None or not self._has_room(pod):
            return None
        self._pods[_key(pod)] = _joined(self._pods.get(_key(pod)), pod)
        wanted = failure.container and failure.weight < Weight.CONSEQUENCE
        if not wanted or pod.name in self.logs or len(self.logs) >= _MOST_LOGS:
            return None
        self.logs[pod.name] = ""
        return failure

    def merged_with(self, pods: Iterable[PodState]) -> list[PodState]:
        """The pods as they are now, with what is remembered, and those that are gone."""
        merged = dict(self._pods)
        for pod in pods:
            merged[_key(pod)] = _joined(self._pods.get(_key(pod)), pod)
        return list(merged.values())

    def _has_room(self, pod: PodState) -> bool:
        return _key(pod) in self._pods or len(self._pods) < _MOST_PODS


def _key(pod: PodState) -> _Key:
    """Operators give a pod that they make anew the name of the old one."""
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
