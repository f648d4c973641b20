"""From what has become of a pod's containers to the pod's status; and when to restart. Pure."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_kftrain.local.environment import ADDRESS

Object = dict[str, Any]

RESET_AFTER = 2.0
"""Back-off starts anew after so many times its longest pause without a crash."""
_OWN_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


def now_text() -> str:
    return f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


@dataclass
class Record:
    """What has become of one container."""

    spec: Object
    init: bool = False
    state: Object = field(default_factory=dict)
    """{"waiting" | "running" | "terminated": {...}} as in the API."""
    last_state: Object = field(default_factory=dict)
    restarts: int = 0
    container_id: str = ""
    image_id: str = ""

    @property
    def sidecar(self) -> bool:
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def exit_code(self) -> int | None:
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None

    @property
    def running(self) -> bool:
        return "running" in self.state

    @property
    def ready(self) -> bool:
        """An init container is ready once it is done, the others while they run."""
        return self.exit_code == 0 if self.init and not self.sidecar else self.running

    def wait(self, reason: str, message: str = "") -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def take_over(self, status: Object) -> None:
        """Go on where an agent before this one has stopped."""
        self.restarts = status.get("restartCount", 0)
        self.last_state = status.get("lastState") or {}
        self.state = status.get("state") or self.state
        self.container_id = status.get("containerID") or ""
        if self.running:
            message = "The container could not be located when the agent started"
            started = self.state["running"].get("startedAt")
            self.state = terminated(137, "ContainerStatusUnknown", message, started, now_text())


def terminated(
    exit_code: int, reason: str, message: str, started: str | None, finished: str
) -> Object:
    state: Object = {"exitCode": exit_code, "reason": reason, "finishedAt": finished}
    if started:
        state["startedAt"] = started
    if message:
        state["message"] = message
    return {"terminated": state}


def restarts(policy: str, record: Record) -> bool:
    """Whether a container that has ended is started again; `policy` is the pod's."""
    if record.sidecar:
        return True
    failed = record.exit_code != 0
    if record.init:
        return failed and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and failed)


class Backoff:
    """Pauses before restarts: none, then `shortest`, doubling to `longest`."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._pause = 0.0
        self._last = float("-inf")

    def next(self, now: float) -> float:
        """The pause after a crash at that time."""
        if now - self._last > RESET_AFTER * self._longest:
            self._pause = 0.0
        self._last = now
        pause = self._pause
        self._pause = min(max(pause * 2, self._shortest), self._longest)
        return pause


class Verdict(NamedTuple):
    """The agent ended the pod: why. Empty reason: it was deleted."""

    reason: str = ""
    message: str = ""


def phase_of(policy: str, records: list[Record], verdict: Verdict | None) -> str:
    """The phase, by the rules of a kubelet."""
    mains = [record for record in records if not record.init]
    codes = [record.exit_code for record in mains]
    if verdict is not None:
        return "Succeeded" if not verdict.reason and set(codes) == {0} else "Failed"
    for record in records:
        if record.init and not record.sidecar and record.exit_code != 0:
            over = record.exit_code is not None and policy == "Never"
            return "Failed" if over else "Pending"
    if any("waiting" in record.state and not record.last_state for record in mains):
        return "Pending"
    going_on = any(record.exit_code is None or restarts(policy, record) for record in mains)
    sidecars = any(record.sidecar and record.running for record in records)
    if going_on or sidecars:
        return "Running"
    return "Succeeded" if set(codes) == {0} else "Failed"


def build_status(
    pod: Object, records: list[Record], started: str, verdict: Verdict | None = None
) -> Object:
    """The whole status, with the conditions of others as they are in `pod`."""
    phase = phase_of(pod["spec"].get("restartPolicy", "Always"), records, verdict)
    address = {"ip": ADDRESS}
    return {
        "phase": phase,
        "reason": (verdict and verdict.reason) or None,
        "message": (verdict and verdict.message) or None,
        "startTime": started,
        "hostIP": ADDRESS,
        "hostIPs": [address],
        "podIP": ADDRESS,
        "podIPs": [address],
        "conditions": _conditions(pod, records, phase),
        "initContainerStatuses": [_container_status(r) for r in records if r.init],
        "containerStatuses": [_container_status(r) for r in records if not r.init],
    }


def _container_status(record: Record) -> Object:
    return {
        "name": record.spec["name"],
        "state": record.state,
        "lastState": record.last_state,
        "ready": record.ready,
        "started": record.running,
        "restartCount": record.restarts,
        "image": record.spec.get("image", ""),
        "imageID": record.image_id,
        **({"containerID": record.container_id} if record.container_id else {}),
    }


def _conditions(pod: Object, records: list[Record], phase: str) -> list[Object]:
    before = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or []}
    inits = _unready(r for r in records if r.init and not (r.sidecar and phase == "Succeeded"))
    mains = _unready(r for r in records if not r.init)
    started = phase in ("Running", "Succeeded") or not inits
    found = [
        _condition("Initialized", started, "ContainersNotInitialized", "incomplete", inits),
        _condition("Ready", not mains, "ContainersNotReady", "unready", mains),
        _condition("ContainersReady", not mains, "ContainersNotReady", "unready", mains),
    ]
    for condition in found:
        if phase in ("Succeeded", "Failed") and condition["status"] == "False":
            condition["reason"] = "PodCompleted" if phase == "Succeeded" else "PodFailed"
            condition["message"] = None
        if phase == "Succeeded" and condition["type"] == "Initialized":
            condition["reason"] = "PodCompleted"
        old = before.get(condition["type"], {})
        same = old.get("status") == condition["status"]
        condition["lastTransitionTime"] = old["lastTransitionTime"] if same else now_text()
    return found + [c for kind, c in before.items() if kind not in _OWN_CONDITIONS]


def _unready(records: Any) -> list[str]:
    return [record.spec["name"] for record in records if not record.ready]


def _condition(kind: str, true: bool, reason: str, word: str, names: list[str]) -> Object:
    if true:
        return {"type": kind, "status": "True"}
    message = f"containers with {word} status: [{' '.join(names)}]"
    return {"type": kind, "status": "False", "reason": reason, "message": message}
