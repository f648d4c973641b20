"""Manifests of small jobs, as the operators accept them: shell commands instead of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.control_plane.api import Manifest

_V1 = "kubeflow.org/v1"
_V2BETA1 = "kubeflow.org/v2beta1"
_TRAINER = "trainer.kubeflow.org/v1alpha1"


def shell(script: str) -> list[str]:
    """`$$` in a script is one `$` for Kubernetes: write `$$$$` for the shell's own pid."""
    return ["sh", "-c", script]


def until_a_file(path: Path) -> str:
    """A part of a script: the test decides when it goes on."""
    return f"until [ -e {path} ]; do sleep 0.1; done"


def replica(
    container: str,
    script: str | None = "true",
    count: int = 1,
    policy: str | None = "Never",
    *,
    pod: Manifest | None = None,
    **fields: Any,
) -> Manifest:
    """One role: `fields` are added to its container, `pod` to its pod spec."""
    main: Manifest = {"name": container, "image": "x", **fields}
    if script is not None:
        main["command"] = shell(script)
    role: Manifest = {
        "replicas": count,
        "template": {"spec": {"containers": [main], "terminationGracePeriodSeconds": 2}},
    }
    role["template"]["spec"] |= pod or {}
    if policy is not None:
        role["restartPolicy"] = policy
    return role


def _job(kind: str, key: str, roles: Manifest, api_version: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": spec.pop("name", "job")},
        "spec": {key: roles, "runPolicy": spec.pop("run_policy", {}), **spec},
    }


def pytorch_job(roles: Manifest, **spec: Any) -> Manifest:
    """`name`, `run_policy`, and other fields of the spec."""
    return _job("PyTorchJob", "pytorchReplicaSpecs", roles, _V1, spec)


def tf_job(roles: Manifest, **spec: Any) -> Manifest:
    return _job("TFJob", "tfReplicaSpecs", roles, _V1, spec)


def xgboost_job(roles: Manifest, **spec: Any) -> Manifest:
    return _job("XGBoostJob", "xgbReplicaSpecs", roles, _V1, spec)


def paddle_job(roles: Manifest, **spec: Any) -> Manifest:
    return _job("PaddleJob", "paddleReplicaSpecs", roles, _V1, spec)


def jax_job(roles: Manifest, **spec: Any) -> Manifest:
    return _job("JAXJob", "jaxReplicaSpecs", roles, _V1, spec)


def mpi_job_v1(roles: Manifest, **spec: Any) -> Manifest:
    return _job("MPIJob", "mpiReplicaSpecs", roles, _V1, spec)


def mpi_job(roles: Manifest, **spec: Any) -> Manifest:
    """v2beta1"""
    return _job("MPIJob", "mpiReplicaSpecs", roles, _V2BETA1, spec)


def train_job(script: str = "true", nodes: int = 1, **spec: Any) -> Manifest:
    """On the runtime torch-distributed unless `runtime` names another one."""
    trainer = {"numNodes": nodes, "command": shell(script), **spec.pop("trainer", {})}
    return {
        "apiVersion": _TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": spec.pop("name", "job")},
        "spec": {
            "runtimeRef": {"name": spec.pop("runtime", "torch-distributed")},
            "trainer": trainer,
            **spec,
        },
    }
