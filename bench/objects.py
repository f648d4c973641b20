"""The objects of the stand-in server: jobs about as large as real ones, as JSON.

Each job exists twice: as a PyTorchJob for us, and as a batch Job of the same size for the peer.
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from airflow_kftrain.manifests.code import CODE_ANNOTATION
from airflow_kftrain.manifests.identity import Owner, owner_annotations, owner_labels

INSTANCE = "bench"
ITEM, BATCH = "pytorchjobs", "jobs"
"""The plurals of the kinds."""

_STARTED = f"{datetime.now(timezone.utc) - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
_ENV = [{"name": f"VARIABLE_{each}", "value": "x" * 40} for each in range(20)]
_NAMESPACE = uuid.UUID("6a0f0a1e-0000-4000-8000-000000000000")
_WORKERS = 4


class Name(NamedTuple):
    """The name of a job: the server and its clients derive it in the same way."""

    number: int

    @property
    def name(self) -> str:
        return f"a-dag-train-{self.number:05}"

    @property
    def uid(self) -> str:
        return str(uuid.uuid5(_NAMESPACE, self.name))

    @property
    def owner(self) -> Owner:
        run = f"run-{self.number}"
        return Owner(INSTANCE, "a_dag", "train", run, f"ti-{self.number}")


class Job:
    """A running job, until it is changed."""

    def __init__(self, number: int, carried: int = 0) -> None:
        self._carried = carried
        self.name, self.uid, self.owner = (each := Name(number)).name, each.uid, each.owner
        self.write("Running", number + 1)

    def write(self, phase: str, version: int) -> None:
        self.phase = phase
        metadata = {
            "name": self.name,
            "namespace": "default",
            "uid": self.uid,
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": _STARTED,
            "labels": owner_labels(self.owner),
            "annotations": owner_annotations(self.owner),
        }
        self.body = _bytes(_pytorch_job(metadata, phase, self._carried))
        batch = _batch_job(metadata, phase)
        missing = len(self.body) - len(_bytes(batch))
        # As one string, which is parsed faster than so many fields.
        batch["spec"]["template"]["metadata"]["annotations"]["padding"] = "x" * missing
        self.batch = _bytes(batch)
        assert len(self.batch) == len(self.body)


def pods_of(job: Job, version: int) -> bytes:
    """The pods of a job that has ended: all of them exist."""
    roles = ["master-0", *(f"worker-{number}" for number in range(_WORKERS))]
    items = [_pod(job, role) for role in roles]
    metadata = {"resourceVersion": str(version)}
    return _bytes({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items})


def _bytes(said: dict[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode()


def _container(name: str) -> dict[str, Any]:
    return {"name": name, "image": "registry/train:1.4", "command": ["train"], "env": _ENV}


def _pytorch_job(metadata: dict[str, Any], phase: str, carried: int) -> dict[str, Any]:
    template: dict[str, Any] = {"spec": {"containers": [_container("pytorch")]}}
    if carried:
        template["metadata"] = {"annotations": {CODE_ANNOTATION: "x" * carried}}
    role = {"restartPolicy": "Never", "template": template}
    roles = {"Master": {"replicas": 1, **role}, "Worker": {"replicas": _WORKERS, **role}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": roles},
        "status": _status(phase),
    }


def _status(phase: str) -> dict[str, Any]:
    conditions = [_condition("Created"), _condition("Running")]
    status: dict[str, Any] = {"conditions": conditions, "startTime": _STARTED}
    if phase == "Succeeded":
        conditions[1]["status"] = "False"
        conditions.append(_condition("Succeeded"))
        status["completionTime"] = _STARTED
        counts = {"Master": {"succeeded": 1}, "Worker": {"succeeded": _WORKERS}}
    else:
        active = _WORKERS - (phase == "Degraded")
        counts = {"Master": {"active": 1}, "Worker": {"active": active}}
    return {**status, "replicaStatuses": counts}


def _condition(name: str) -> dict[str, Any]:
    return {
        "type": name,
        "status": "True",
        "reason": f"PyTorchJob{name}",
        "message": f"PyTorchJob train is {name.lower()}.",
        "lastUpdateTime": _STARTED,
        "lastTransitionTime": _STARTED,
    }


def _batch_job(metadata: dict[str, Any], phase: str) -> dict[str, Any]:
    done = phase == "Succeeded"
    status: dict[str, Any] = {"startTime": _STARTED, "succeeded" if done else "active": 1}
    if done:
        complete = {"type": "Complete", "status": "True", "lastTransitionTime": _STARTED}
        status |= {"conditions": [complete], "completionTime": _STARTED}
    spec = {"restartPolicy": "Never", "containers": [_container("base")]}
    labels = {"batch.kubernetes.io/job-name": metadata["name"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {"padding": ""}},
                "spec": spec,
            },
        },
        "status": status,
    }


def _pod(job: Job, role: str) -> dict[str, Any]:
    kind, _, index = role.partition("-")
    labels = {"job-name": job.name, "replica-type": kind, "replica-index": index}
    if kind == "master":
        labels["job-role"] = kind
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": _STARTED, "finishedAt": _STARTED}
    done = job.phase == "Succeeded"
    state = {"terminated": ended} if done else {"running": {"startedAt": _STARTED}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job.name}-{role}",
            "namespace": "default",
            "uid": str(uuid.uuid5(_NAMESPACE, f"{job.name}-{role}")),
            "creationTimestamp": _STARTED,
            "labels": {f"training.kubeflow.org/{name}": said for name, said in labels.items()},
        },
        "spec": {"containers": [_container("pytorch")]},
        "status": {
            "phase": "Succeeded" if done else "Running",
            "startTime": _STARTED,
            "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": state}],
        },
    }
