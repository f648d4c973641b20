"""Pods as an agent gets them."""

from __future__ import annotations

from typing import Any


def a_pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod of a PyTorchJob `job` in namespace `ml`, worker 0."""
    metadata = {
        "name": "job-worker-0",
        "namespace": "ml",
        "uid": "pod-uid",
        "labels": {"training.kubeflow.org/job-name": "job"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "3"},
        "ownerReferences": [{"uid": "job-uid", "controller": True}],
    }
    return {"metadata": metadata, "spec": {"containers": list(containers), **spec}}


def a_container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "x", "command": ["true"], **fields}
