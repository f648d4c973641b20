"""Pods as the API server sends them, and the states that are read from them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import PYTORCH_JOB, JobKind
from airflow_kftrain.monitoring.pods import PodState, read_pod

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)
LABELS = "training.kubeflow.org"
LEADER = {f"{LABELS}/job-role": "master"}
NO_LABELS: dict[str, str] = {}


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def at(seconds: int) -> str:
    return after(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def running(seconds: int = 10) -> dict[str, Any]:
    return {"running": {"startedAt": at(seconds)}}


def ended(code: Any, seconds: int = 60, **more: Any) -> dict[str, Any]:
    reason = "Completed" if code == 0 else "Error"
    times = {"startedAt": at(10), "finishedAt": at(seconds)}
    return {"terminated": {"exitCode": code, "reason": reason, **times, **more}}


def container(
    state: dict[str, Any],
    *,
    name: str = "pytorch",
    last: dict[str, Any] | None = None,
    restarts: int = 0,
) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry/{name}:1",
        "state": state,
        "lastState": last or {},
        "restartCount": restarts or (1 if last else 0),
    }


def is_false(type_: str, seconds: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {
        "type": type_,
        "status": "False",
        "lastTransitionTime": at(seconds),
        "reason": reason,
        "message": message,
    }


def is_true(type_: str, seconds: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {**is_false(type_, seconds, reason, message), "status": "True"}


def raw_pod(
    *containers: dict[str, Any],
    name: str = "train-worker-0",
    phase: str = "Running",
    role: str = "worker",
    index: str | None = "0",
    init: tuple[dict[str, Any], ...] = (),
    native: tuple[str, ...] = (),
    conditions: tuple[dict[str, Any], ...] = (),
    deleted: int | None = None,
    created: int = 0,
    labels: dict[str, str] = NO_LABELS,
    **status: Any,
) -> dict[str, Any]:
    """`native` are init containers that run beside the others."""
    labels = {f"{LABELS}/job-name": "train", f"{LABELS}/replica-type": role, **labels}
    labels |= {f"{LABELS}/replica-index": index} if index is not None else {}
    metadata: dict[str, Any] = {
        "name": name,
        "labels": labels,
        "creationTimestamp": at(created),
    }
    if deleted is not None:
        metadata["deletionTimestamp"] = at(deleted + 30)
        metadata["deletionGracePeriodSeconds"] = 30

    def spec(item: dict[str, Any]) -> dict[str, Any]:
        always = {"restartPolicy": "Always"} if item["name"] in native else {}
        return {"name": item["name"], "image": item["image"], **always}

    return {
        "metadata": metadata,
        "spec": {
            "containers": [spec(item) for item in containers],
            "initContainers": [spec(item) for item in init],
        },
        "status": {
            "phase": phase,
            "startTime": at(created + 1),
            "conditions": list(conditions),
            "containerStatuses": list(containers),
            "initContainerStatuses": list(init),
            **status,
        },
    }


def pod(*containers: dict[str, Any], kind: JobKind = PYTORCH_JOB, **more: Any) -> PodState:
    return read_pod(kind, raw_pod(*containers, **more))


def worker(number: int, state: dict[str, Any], **more: Any) -> PodState:
    """A worker with one container."""
    last = more.pop("last", None)
    name = more.pop("name", f"train-worker-{number}")
    code = state.get("terminated", {}).get("exitCode", "running")
    phase = {"running": "Running", 0: "Succeeded"}.get(code, "Failed")
    more = {"phase": phase, **more}
    return pod(container(state, last=last), name=name, index=str(number), **more)


def pending(number: int, reason: str, message: str = "", since: int = 0, **more: Any) -> PodState:
    """A worker whose container waits."""
    conditions = (is_false("ContainersReady", since),)
    state = waiting(reason, message)
    return worker(number, state, **{"phase": "Pending", "conditions": conditions, **more})


def unschedulable(number: int, message: str = "0/3 nodes fit", since: int = 0) -> PodState:
    scheduled = is_false("PodScheduled", since, "Unschedulable", message)
    return pod(
        name=f"train-worker-{number}",
        index=str(number),
        phase="Pending",
        conditions=(scheduled,),
        startTime=None,
    )


def crashing(number: int, code: int = 1, since: int = 0) -> PodState:
    back_off = waiting("CrashLoopBackOff", "back-off 2m40s restarting failed container")
    return worker(number, back_off, last=ended(code, since))


def job(phase: Phase, **more: Any) -> JobState:
    return JobState(phase, **{"starting_since": NOON, "acknowledged": True, **more})
