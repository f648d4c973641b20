"""The Node object of an agent, and its heartbeat."""

from __future__ import annotations

import asyncio
import logging
import platform
import shutil
import sys
from pathlib import Path

from kftrain_local.agent.environment import ADDRESS
from kftrain_local.agent.logs import CannotRun
from kftrain_local.agent.machine import Settings
from kftrain_local.api_client import ApiClient, ApiError, ApiFailure, core
from kftrain_local.times import now_text

log = logging.getLogger(__name__)

OWNER = "kftrain.local/agent"
"""The annotation of a node that names its agent."""
_HEARTBEAT = 10.0
_MOST_PODS = 250
_SYSTEM = "darwin" if sys.platform == "darwin" else "linux"
_MACHINE = platform.machine().lower()
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(_MACHINE, _MACHINE)


class Node:
    def __init__(self, api: ApiClient, settings: Settings, folder: Path, port: int) -> None:
        self._api = api
        self._settings = settings
        self._port = port
        self._path = core("", "nodes", settings.name)
        # The folder identifies the same agent after a crash.
        self._owner = f"{platform.node()}:{folder}"

    async def register(self) -> None:
        """Creates the node, or takes over the node that this agent has left behind. Raises
        CannotRun and ApiFailure."""
        labels = {
            "kubernetes.io/hostname": self._settings.name,
            "kubernetes.io/os": _SYSTEM,
            "kubernetes.io/arch": _ARCHITECTURE,
            **self._settings.labels,
        }
        annotations = {OWNER: self._owner}
        metadata = {"name": self._settings.name, "labels": labels, "annotations": annotations}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        try:
            await self._api.create(core("", "nodes"), node)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._require_own_node()
            await self._api.merge_patch(self._path, node)
        try:
            await self._send_status()
        except BaseException:
            await self.remove()
            raise

    async def _require_own_node(self) -> None:
        found = await self._api.get(self._path)
        owner = (found["metadata"].get("annotations") or {}).get(OWNER, "somebody else")
        if owner != self._owner:
            raise CannotRun(
                f"node {self._settings.name} belongs to {owner}; choose another --name, or delete "
                "the node if that agent no longer runs"
            )

    async def keep_alive(self) -> None:
        """Never ends."""
        while True:
            await asyncio.sleep(_HEARTBEAT)
            try:
                await self._send_status()
            except ApiFailure as error:
                log.warning("the heartbeat of node %s failed: %s", self._settings.name, error)

    async def remove(self) -> None:
        try:
            await self._api.delete(self._path)
        except ApiFailure as error:
            if error.code != 404:
                log.warning("node %s cannot be removed: %s", self._settings.name, error)

    async def _send_status(self) -> None:
        settings, now = self._settings, now_text()
        capacity = {
            "cpu": settings.cpu,
            "memory": settings.memory,
            "pods": str(_MOST_PODS),
            "ephemeral-storage": str(shutil.disk_usage("/").free),
            "nvidia.com/gpu": str(settings.gpus) if settings.gpus else None,
        }
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the agent runs pods as processes",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [ready],
            # No Hostname: the API server would prefer it, and it does not resolve.
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "kubeletVersion": "kftrain-agent",
                "osImage": platform.platform(),
                "containerRuntimeVersion": f"process://{platform.python_version()}",
            },
        }
        await self._api.merge_patch(f"{self._path}/status", {"status": status})
