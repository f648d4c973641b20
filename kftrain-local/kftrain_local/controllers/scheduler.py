"""Places pods on nodes with enough room, in the order of their creation."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from kftrain_local.agent.environment import quantity
from kftrain_local.api_client import ApiClient, ApiError, core
from kftrain_local.controllers.controller import has_ended, is_going
from kftrain_local.times import now_text

log = logging.getLogger(__name__)

Object = dict[str, Any]
Amounts = dict[str, Decimal]

_RETRY = 1.0


class Scheduler:
    """`run` works until it is cancelled."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._pods: dict[str, Object] = {}
        self._nodes: dict[str, Object] = {}
        self._told: dict[str, str] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(
            self._follow(core("", "pods"), self._pods),
            self._follow(core("", "nodes"), self._nodes),
            self._place_pods(),
        )

    async def _follow(self, path: str, known: dict[str, Object]) -> None:
        async for kind, found in self._api.follow(path):
            if kind == "LISTED":
                known.clear()
                known.update((each["metadata"]["uid"], each) for each in found)
            elif kind == "DELETED":
                known.pop(found["metadata"]["uid"], None)
                self._told.pop(found["metadata"]["uid"], None)
            else:
                known[found["metadata"]["uid"]] = found
            self._news.set()

    async def _place_pods(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            for pod in sorted(self._waiting(), key=_creation):
                try:
                    await self._place(pod)
                except ApiError as error:
                    # After these, the pod is gone or has changed: an event follows soon.
                    if error.code not in (404, 409):
                        asyncio.get_running_loop().call_later(_RETRY, self._news.set)
                except Exception:  # concerns one pod; the others are placed
                    name = pod["metadata"]["name"]
                    log.exception("pod %s: a bug in the scheduler", name)

    def _waiting(self) -> Iterator[Object]:
        for pod in self._pods.values():
            gates = pod["spec"].get("schedulingGates")
            if not (pod["spec"].get("nodeName") or is_going(pod) or gates):
                yield pod

    async def _place(self, pod: Object) -> None:
        wanted = wants(pod["spec"])
        reasons: Counter[str] = Counter()
        for node in self._nodes.values():
            obstacles = self._obstacles(pod, wanted, node)
            if not obstacles:
                await self._bind(pod, node["metadata"]["name"])
                return
            reasons.update(obstacles)
        await self._tell(pod, reasons)

    def _obstacles(self, pod: Object, wanted: Amounts, node: Object) -> list[str]:
        selector = pod["spec"].get("nodeSelector") or {}
        if selector.items() - (node["metadata"].get("labels") or {}).items():
            return ["node(s) didn't match Pod's node affinity/selector"]
        offered = (node.get("status") or {}).get("allocatable") or {}
        free = {key: quantity(value) for key, value in offered.items()}
        for other in self._pods.values():
            if other["spec"].get("nodeName") == node["metadata"]["name"] and not has_ended(other):
                for key, amount in wants(other["spec"]).items():
                    free[key] = free.get(key, Decimal(0)) - amount
        return [
            f"Insufficient {key}" for key, amount in wanted.items() if amount > free.get(key, 0)
        ]

    async def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        body = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": node}}
        path = core(metadata["namespace"], "pods", metadata["name"], "binding")
        await self._api.create(path, body)
        pod["spec"]["nodeName"] = node  # at once, so that the next pod sees that the room is taken
        name = f"{metadata['namespace']}/{metadata['name']}"
        text = f"Successfully assigned {name} to {node}"
        await self._event(metadata, "Normal", "Scheduled", "Binding", text)

    async def _tell(self, pod: Object, reasons: Counter[str]) -> None:
        count, metadata = len(self._nodes), pod["metadata"]
        obstacles = ", ".join(f"{reasons[reason]} {reason}" for reason in sorted(reasons))
        text = f"0/{count} nodes are available: {obstacles}."
        if not count:
            text = "no nodes available to schedule pods"
        if self._told.get(metadata["uid"]) == text:
            return
        self._told[metadata["uid"]] = text
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": text,
            "lastTransitionTime": now_text(),
        }
        path = core(metadata["namespace"], "pods", metadata["name"], "status")
        status = {"phase": "Pending", "conditions": [condition]}
        await self._api.merge_patch(path, {"status": status})
        await self._event(metadata, "Warning", "FailedScheduling", "Scheduling", text)

    async def _event(self, about: Object, kind: str, reason: str, action: str, text: str) -> None:
        """Like that of the real scheduler: the old fields for count and times stay empty."""
        event = {
            "metadata": {"name": f"{about['name'][:200]}.{secrets.token_hex(8)}"},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                **{key: about[key] for key in ("namespace", "name", "uid")},
            },
            "type": kind,
            "reason": reason,
            "action": action,
            "message": text,
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "eventTime": now_text().replace("Z", ".000000Z"),
            "reportingComponent": "default-scheduler",
            "reportingInstance": "default-scheduler-local",
        }
        await self._api.create(core(about["namespace"], "events"), event)


def wants(spec: Object) -> Amounts:
    """What a pod requests: all its containers together, or its largest init container."""
    wanted: Amounts = {}
    for container in spec.get("containers") or ():
        for key, amount in _requests(container).items():
            wanted[key] = wanted.get(key, Decimal(0)) + amount
    for container in spec.get("initContainers") or ():
        for key, amount in _requests(container).items():
            wanted[key] = max(wanted.get(key, Decimal(0)), amount)
    return wanted


def _requests(container: Object) -> Amounts:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {key: quantity(value) for key, value in amounts.items()}


def _creation(pod: Object) -> tuple[str, int]:
    return pod["metadata"]["creationTimestamp"], int(pod["metadata"]["resourceVersion"])
