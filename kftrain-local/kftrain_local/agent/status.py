"""Computes the status of a pod from the states of its containers, and when to restart. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kftrain_local.agent.environment import ADDRESS
from kftrain_local.api_client import Object
from kftrain_local.times import now_text

_OWN_CONDITIONS = (
    ("Initialized", True, "ContainersNotInitialized", "incomplete"),
    ("Ready", False, "ContainersNotReady", "unready"),
    ("ContainersReady", False, "ContainersNotReady", "unready"),
)
"""(type, whether init containers decide, reason and word of the message while they are not
ready)"""


@dataclass
class ContainerStatus:
    """The state of one container."""

    spec: Object
    init: bool = False
    state: Object = field(default_factory=dict)
    """{"waiting" | "running" | "terminated": {...}} as in the API."""
    last_state: Object = field(default_factory=dict)
    restarts: int = 0
    container_id: str = ""

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
        """An init container is ready when it has succeeded, the others while they run."""
        return self.exit_code == 0 if self.init and not self.sidecar else self.running

    def wait(self, reason: str, message: str = "") -> None:
        self._enter({"waiting": {"reason": reason, "message": message}})

    def start(self, container_id: str) -> None:
        self._enter({"running": {"startedAt": now_text()}})
        self.container_id = container_id

    def terminate(self, exit_code: int, reason: str, message: str = "") -> None:
        end = {
            "exitCode": exit_code,
            "reason": reason,
            "message": message,
            "startedAt": self.state.get("running", {}).get("startedAt", now_text()),
            "finishedAt": now_text(),
            "containerID": self.container_id,
        }
        self._enter({"terminated": end})

    def begin_again(self) -> None:
        """One more run: from now on, the end of the run before is the last state."""
        self.restarts += 1
        self._enter(self.state)

    def _enter(self, state: Object) -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = state

    def take_over(self, status: Object) -> None:
        """Continues from the status that an earlier agent has written."""
        self.restarts = status.get("restartCount", 0)
        self.last_state = status.get("lastState") or {}
        self.state = status.get("state") or self.state
        self.container_id = status.get("containerID") or ""
        if self.running:
            message = "The container could not be located when the agent started"
            self.terminate(137, "ContainerStatusUnknown", message)

    def as_object(self) -> Object:
        return {
            "name": self.spec["name"],
            "state": self.state,
            "lastState": self.last_state,
            "ready": self.ready,
            "started": self.running,
            "restartCount": self.restarts,
            "image": self.spec.get("image", ""),
            "imageID": "",
            "containerID": self.container_id,
        }


def restarts(policy: str, container: ContainerStatus) -> bool:
    """Whether a container that has ended is restarted. Its own policy wins over the pod's."""
    if container.sidecar:
        return True
    policy = container.spec.get("restartPolicy", policy)
    failed = container.exit_code != 0
    if container.init:
        return failed and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and failed)


class Backoff:
    """Pauses before restarts: none at first, then `shortest`, doubling up to `longest`."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._pause = 0.0
        self._last = float("-inf")

    def next(self, now: float) -> float:
        """The pause after a crash at that time. It starts again after twice the longest pause
        without a crash."""
        pause = self._pause if now - self._last <= 2 * self._longest else 0.0
        self._last = now
        self._pause = min(max(pause * 2, self._shortest), self._longest)
        return pause


class Verdict(NamedTuple):
    """Why the agent has ended the pod. An empty reason means that the pod was deleted."""

    reason: str = ""
    message: str = ""


def phase_of(policy: str, containers: list[ContainerStatus], verdict: Verdict | None) -> str:
    """The phase, by the rules of a kubelet."""
    mains = [c for c in containers if not c.init]
    codes = [c.exit_code for c in mains]
    if verdict is not None:
        return "Succeeded" if not verdict.reason and set(codes) == {0} else "Failed"
    for c in containers:
        if c.init and not c.sidecar and c.exit_code != 0:
            over = c.exit_code is not None and not restarts(policy, c)
            # A pod has not ended while a sidecar runs.
            lives = any(c.sidecar and c.running for c in containers)
            return "Failed" if over and not lives else "Pending"
    if any("waiting" in c.state and not c.last_state for c in mains):
        return "Pending"
    if any(c.exit_code is None or restarts(policy, c) for c in mains):
        return "Running"
    if any(c.sidecar and c.running for c in containers):
        return "Running"
    return "Succeeded" if set(codes) == {0} else "Failed"


def build_status(
    pod: Object, containers: list[ContainerStatus], started: str, verdict: Verdict | None = None
) -> Object:
    """The whole status. Conditions that others have written stay as they are in `pod`."""
    phase = phase_of(pod["spec"].get("restartPolicy", "Always"), containers, verdict)
    return {
        "phase": phase,
        "reason": (verdict and verdict.reason) or None,
        "message": (verdict and verdict.message) or None,
        "startTime": started,
        "hostIP": ADDRESS,
        "hostIPs": [{"ip": ADDRESS}],
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "conditions": _conditions(pod, containers, phase),
        "initContainerStatuses": [c.as_object() for c in containers if c.init],
        "containerStatuses": [c.as_object() for c in containers if not c.init],
    }


def _conditions(pod: Object, containers: list[ContainerStatus], phase: str) -> list[Object]:
    found = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or []}
    over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase)
    for kind, init, reason, word in _OWN_CONDITIONS:
        unready = [c.spec["name"] for c in containers if c.init == init and not c.ready]
        if init and phase in ("Running", "Succeeded"):
            unready = []  # all have ended except sidecars
        ended = over if not init else None
        condition = {"type": kind, "status": "False" if unready or ended else "True"}
        if ended:
            condition["reason"] = ended
        elif unready:
            condition["reason"] = reason
            condition["message"] = f"containers with {word} status: [{' '.join(unready)}]"
        before = found.pop(kind, {})
        same = before.get("status") == condition["status"]
        condition["lastTransitionTime"] = before["lastTransitionTime"] if same else now_text()
        found[kind] = condition
    return list(found.values())
