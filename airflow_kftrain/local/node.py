"""The Node object of an agent, and the Lease that says it is alive."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import logging
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.local.api_client import ApiClient, ApiError, ApiUnreachable, core
from airflow_kftrain.local.environment import ADDRESS
from airflow_kftrain.local.machine import Settings
from airflow_kftrain.local.pod_status import now_text

log = logging.getLogger(__name__)

Object = dict[str, Any]

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_LEASE_SECONDS = 40
_RENEW_EVERY = 10.0
_MOST_PODS = 250


class NodeInUse(KfTrainError):
    """Another agent keeps a node of that name alive."""


class Node:
    def __init__(self, api: ApiClient, settings: Settings, folder: Path, port: int) -> None:
        self._api = api
        self._settings = settings
        self._port = port
        self._path = core("", "nodes", settings.name)
        self._lease_path = f"{_LEASES}/{settings.name}"
        # The same agent after a crash is known by its folder; its lease is its own.
        place = f"{platform.node()}:{folder}"
        self._holder = f"{settings.name}_{hashlib.sha256(place.encode()).hexdigest()[:16]}"

    async def register(self) -> None:
        """Make the node, or take over what an agent before left; raises NodeInUse, ApiError."""
        await self._refuse_strangers()
        labels = {
            "kubernetes.io/hostname": self._settings.name,
            "kubernetes.io/os": "darwin" if sys.platform == "darwin" else "linux",
            "kubernetes.io/arch": _architecture(),
            **self._settings.labels,
        }
        node = {"metadata": {"name": self._settings.name, "labels": labels}}
        try:
            await self._api.create(
                core("", "nodes"), {"apiVersion": "v1", "kind": "Node", **node, "spec": {}}
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._api.merge_patch(self._path, node)
        try:
            await self._renew()
            await self._api.merge_patch(f"{self._path}/status", {"status": self._status()})
        except BaseException:
            await self.remove()
            raise

    async def _refuse_strangers(self) -> None:
        try:
            spec = (await self._api.get(self._lease_path))["spec"]
        except ApiError:
            return  # no lease, or an API without leases
        renewed = spec.get("renewTime")
        if not renewed or spec.get("holderIdentity") == self._holder:
            return
        moment = datetime.datetime.fromisoformat(renewed.replace("Z", "+00:00"))
        age = (datetime.datetime.now(datetime.timezone.utc) - moment).total_seconds()
        if age < _LEASE_SECONDS:
            raise NodeInUse(
                f"node {self._settings.name} belongs to another agent, which was alive "
                f"{age:.0f} s ago; choose another --name"
            )

    async def keep_alive(self) -> None:
        """Renew the lease and the condition, for ever."""
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            try:
                await self._renew()
                await self._api.merge_patch(f"{self._path}/status", {"status": self._status()})
            except ApiError as error:
                if error.code == 404:
                    await self._register_again()
                else:
                    log.warning("node %s: %s", self._settings.name, error)
            except ApiUnreachable as error:
                log.warning("node %s is not kept alive: %s", self._settings.name, error)

    async def _register_again(self) -> None:
        log.warning("node %s was deleted; registering it again", self._settings.name)
        try:
            await self.register()
        except KfTrainError as error:
            log.warning("node %s: %s", self._settings.name, error)

    async def remove(self) -> None:
        for path in (self._path, self._lease_path):
            try:
                await self._api.delete(path)
            except ApiError as error:
                if error.code != 404:
                    log.warning("%s is left behind: %s", path, error)
            except ApiUnreachable as error:
                log.warning("%s is left behind: %s", path, error)

    async def _renew(self) -> None:
        now = datetime.datetime.now(datetime.timezone.utc)
        lease: Object = {
            "metadata": {"name": self._settings.name},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": _LEASE_SECONDS,
                "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
            },
        }
        try:
            await self._api.merge_patch(self._lease_path, lease)
        except ApiError as error:
            if error.code != 404:
                raise
            whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
            try:
                await self._api.create(_LEASES, whole)
            except ApiError as refused:
                # Its namespace may not be there yet, and small API servers have no leases.
                log.debug("no lease yet: %s", refused)

    def _status(self) -> Object:
        settings = self._settings
        capacity = {
            "cpu": settings.cpu,
            "memory": settings.memory,
            "pods": str(_MOST_PODS),
            "ephemeral-storage": str(shutil.disk_usage("/").free),
            "nvidia.com/gpu": str(settings.gpus) if settings.gpus else None,
        }
        now = now_text()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the agent runs pods as processes",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [ready],
            # No Hostname: the API server would prefer it, and it does not resolve.
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "kubeletVersion": "kftrain-agent",
                "operatingSystem": "darwin" if sys.platform == "darwin" else "linux",
                "architecture": _architecture(),
                "kernelVersion": platform.release(),
                "osImage": platform.platform(),
                "containerRuntimeVersion": f"process://{platform.python_version()}",
            },
        }


def _architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
