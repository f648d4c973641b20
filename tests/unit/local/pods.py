"""Pods as an agent receives them."""

from __future__ import annotations

import base64
from typing import Any

from kftrain_local.agent.environment import Sources
from kftrain_local.api_client import ApiClient, ApiError, Cluster


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


class Api(ApiClient):
    """An API server with these objects, by the ends of their paths."""

    def __init__(self, objects: dict[str, dict[str, Any]]) -> None:
        super().__init__(Cluster(""))
        self._objects = objects
        self.asked: list[str] = []

    async def get(self, path: str, **params: str) -> dict[str, Any]:
        name = path.partition("/namespaces/ml/")[2]
        self.asked.append(name)
        if name not in self._objects:
            raise ApiError(404, "NotFound", f"{name} not found")
        return self._objects[name]


def sources(**objects: dict[str, str]) -> Sources:
    """`configmaps_NAME` or `secrets_NAME`, with plain text."""
    made = {}
    for name, data in objects.items():
        if name.startswith("secrets"):
            data = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        made[name.replace("_", "/", 1)] = {"data": data}
    return Sources(Api(made), "ml")
