"""What scenarios of training-operator's kinds have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.cluster.jobs import replica
from tests.cluster.world import Job, Pod, World, eventually
from tests.control_plane.api import Manifest

FOR_EVER = "sleep 600"
"""Longer than any scenario."""

STUBBORN = f"trap '' TERM; echo ready; {FOR_EVER}"
"""Ignores SIGTERM until its grace period is over; `is_stubborn` says when that starts."""

POD = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
"""The pod's name for scripts, since not every kind gives a pod its index."""

_GO = {"name": "GO", "valueFrom": {"configMapKeyRef": {"name": "go", "key": "k", "optional": True}}}

not_run = pytest.mark.real_only("the embedded cluster does not run this kind")
_NOT_RUN = ("xgboost", "paddle", "jax")


def each_of(kinds: Mapping[str, object]) -> pytest.MarkDecorator:
    """A scenario for each kind, under its name."""
    rows = [
        pytest.param(kind, id=name, marks=not_run if name in _NOT_RUN else ())
        for name, kind in kinds.items()
    ]
    return pytest.mark.parametrize("kind", rows)


def pytorch(script: str = "true", count: int = 1, policy: str = "Never", **more: Any) -> Manifest:
    return replica("pytorch", script, count, policy, **more)


class Said(NamedTuple):
    """A condition without its times."""

    status: str
    reason: str
    message: str


def said(job: Job) -> dict[str, Said]:
    return {
        name: Said(item["status"], item["reason"], item["message"])
        for name, item in job.conditions().items()
    }


def only(pod: str, script: str, others: str = "true") -> Manifest:
    """Fields of a container that runs `script` in the pod of that name."""
    text = f'if [ "$POD" = {pod} ]; then {script}; else {others}; fi'
    return {"script": text, "env": [POD]}


def until_let_go(script: str) -> Manifest:
    """Fields of a container that runs `script`, and ends at once in a pod that starts after
    `let_go`."""
    return {"script": f'[ -n "$GO" ] || {script}', "env": [_GO]}


def let_go(world: World) -> None:
    world.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "go"}, "data": {"k": "go"}}
    )


def counts(job: Job) -> dict[str, dict[str, int]]:
    """The operator's counts of each role, which do not include zeros."""
    return {
        role: {key: value for key, value in status.items() if isinstance(value, int)}
        for role, status in (job.status.get("replicaStatuses") or {}).items()
    }


def restarts(pod: Manifest) -> int:
    statuses = pod["status"].get("containerStatuses") or []
    return sum(int(status["restartCount"]) for status in statuses)


def waiting(pod: Manifest) -> Manifest:
    """The reason why its first container waits."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    return dict((statuses[0].get("state") or {}).get("waiting") or {})


def ended(pod: Manifest) -> Manifest:
    """How its first container ended."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    return dict((statuses[0].get("state") or {}).get("terminated") or {})


def is_stubborn(pod: Pod) -> None:
    """Waits until it has started to ignore SIGTERM."""
    eventually(lambda: (said := pod.log()).ok and "ready" in said.text, pod.now)
    pod.phase("Running")


def run_before(pod: Manifest) -> Manifest:
    """How the run of its first container before this one ended; empty before a restart."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    return dict((statuses[0].get("lastState") or {}).get("terminated") or {})


def uid(item: Manifest) -> Any:
    return item["metadata"]["uid"]


def made_anew(job: Job, first: Manifest, phase: str | None = None) -> Manifest:
    """Another pod of that name, as soon as it exists; or one that is in this phase."""

    def look() -> Manifest | None:
        for pod in job.pods():  # a pod that is read by its name may be gone by now
            same = pod["metadata"]["name"] == first["metadata"]["name"]
            if same and uid(pod) != uid(first) and phase in (None, pod["status"].get("phase")):
                return pod
        return None

    return eventually(look, job.pods)


def operator_looks_again(job: Job) -> None:
    """Waits until the operator has seen the job as it is now, for scenarios about what it does not
    do.

    The operator handles the jobs of a kind one after the other. So when it has started with a later
    job, it has finished this one. The later job is in another namespace, so no recording contains
    it.
    """
    job.patch({"metadata": {"labels": {"look": "again"}}})
    api, name = job.world.api, job.world.namespace
    metadata = {"name": name, "namespace": "default"}
    spec = {**job.created["spec"], "runPolicy": {"suspend": True}}
    later = {**job.created, "metadata": metadata, "spec": spec}
    assert api.create(later).code == 201
    eventually(lambda: (api.get(later).object.get("status") or {}).get("conditions"))
    api.delete(later)


def variables(pod: Manifest, container: int = 0) -> list[tuple[str, str]]:
    """In their order, since a later one wins."""
    found = pod["spec"]["containers"][container].get("env") or []
    return [(item["name"], item.get("value", "")) for item in found]
