"""Finds out why the volumes of a pod are not mounted: events -> a trouble of the pod. Pure.

The pod itself shows only that it is being created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from airflow_kftrain.monitoring.events import Event, read_event
from airflow_kftrain.monitoring.pods import MISSING_VOLUME, PodState, Trouble

VolumeTroubles = Mapping[tuple[str, datetime | None], Trouble]
"""By name and creation: a recreated pod has the name of the old one."""

_FAILED = ("FailedMount", "FailedAttachVolume")
_MOUNTED = ("Pulling", "Pulled", "Created", "Started")
"""Events that a kubelet writes only after it has mounted all volumes of the pod."""
_SUMMARY = "timed out waiting for the condition"
"""In an event that the kubelet adds after some minutes, and which does not say why."""


def find_volume_troubles(pods: Iterable[PodState], events: Sequence[object]) -> VolumeTroubles:
    """The troubles of the pods that are still being created."""
    read = [read_event(event) for event in events]
    found = {}
    for pod in pods:
        own = [each for each in read if _is_about(each, pod)]
        failed = [each for each in own if each.reason in _FAILED]
        if pod.mounts_since is None or not failed:
            continue
        last = max(each.time for each in failed)
        if not any(each.reason in _MOUNTED and each.time >= last for each in own):
            found[_key(pod)] = _trouble(pod, min(failed, key=_order))
    return found


def with_troubles(pods: Iterable[PodState], found: VolumeTroubles) -> list[PodState]:
    """Adds the troubles to the pods that are still being created."""

    def told(pod: PodState) -> PodState:
        trouble = found.get(_key(pod)) if pod.mounts_since is not None else None
        if trouble is None or trouble in pod.troubles:
            return pod
        return pod._replace(troubles=(*pod.troubles, trouble))

    return [told(pod) for pod in pods]


def _key(pod: PodState) -> tuple[str, datetime | None]:
    return pod.name, pod.created


def _is_about(event: Event, pod: PodState) -> bool:
    if event.about != f"Pod {pod.name}":
        return False
    return pod.created is None or event.time >= pod.created


def _order(event: Event) -> tuple[object, ...]:
    """The most informative event first; the order is always the same."""
    is_summary = _SUMMARY in event.message
    return not MISSING_VOLUME.search(event.message), is_summary, event.first, event.message


def _trouble(pod: PodState, event: Event) -> Trouble:
    names = MISSING_VOLUME.search(event.message)
    since = max(event.first, pod.created) if pod.created else None
    return Trouble("volume_name" if names else "volume", event.reason, event.message, since)
