"""The only reader of a pod: a dict as the API server sends it -> PodState. Never raises.

It tells what stands in the way of a pod that waits (troubles, each with its own clock) and how
its containers ended. What follows from that is for decisions.py and failures.py to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from airflow_kftrain.job_state import (
    read_mapping,
    read_mappings,
    read_number,
    read_text,
    read_time,
)
from airflow_kftrain.kinds import JobKind

TroubleKind = Literal[
    "image_name",
    "image_pull",
    "container_config",
    "container_create",
    "unschedulable",
    "crash_loop",
]
"""Each is the name of the field of Timeouts that says how long it is borne."""

Part = Literal["main", "init", "sidecar"]
"""The container that trains, one that has to end before it starts, or one that runs beside it."""


class Trouble(NamedTuple):
    """What keeps a pod from coming up."""

    what: TroubleKind
    reason: str
    """As Kubernetes says it."""
    message: str = ""
    since: datetime | None = None
    container: str = ""
    """Empty where the pod as a whole is meant."""
    part: Part = "main"
    image: str = ""


class ContainerEnd(NamedTuple):
    """How a run of a container ended."""

    container: str
    part: Part
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    """What it left in its termination message, or the last lines of its log."""
    started: datetime | None = None
    finished: datetime | None = None
    restarts: int = 0
    past: bool = False
    """The container has been started again since."""

    @property
    def out_of_memory(self) -> bool:
        return "OOMKilled" in self.reason

    @property
    def failed(self) -> bool:
        """Out of memory counts even with exit 0: the kernel may have killed a child only."""
        if self.exit_code is None:
            return self.reason != "Completed"
        return self.exit_code != 0 or self.out_of_memory


class Disruption(NamedTuple):
    """Why Kubernetes ended the pod as a whole: eviction, preemption, a node lost, a deadline."""

    reason: str
    message: str = ""
    time: datetime | None = None


class PodState(NamedTuple):
    """One moment of a pod."""

    name: str
    role: str = ""
    """As the pod's label has it, in lower case: worker. Empty where pods are all alike."""
    index: int | None = None  # type: ignore[assignment]  # hides tuple.index
    leads: bool = False
    """The training stands and falls with it, and its log tells the story; so with each pod where
    all are alike."""
    container: str = ""
    """Name of its main container: the one whose log tells the story, and that leaves the result."""
    phase: str = ""
    runs: bool = False
    """Its main container does: the phase is Running in a crash loop, too."""
    created: datetime | None = None
    deleted: datetime | None = None
    """When its deletion was asked for; how a container ends after that is no evidence."""
    waiting: str = ""
    """What it waits for without being in trouble, in Kubernetes' word: ContainerCreating."""
    troubles: tuple[Trouble, ...] = ()
    ends: tuple[ContainerEnd, ...] = ()
    disruption: Disruption | None = None

    @property
    def replica(self) -> str:
        """Role and index, as in worker-3; the pod's name where it has no role."""
        if not self.role or self.index is None:
            return self.role or self.name
        return f"{self.role}-{self.index}"


def read_pod(kind: JobKind, pod: object) -> PodState:
    """The state of a pod of a job of this kind."""
    root = read_mapping(pod)
    metadata = read_mapping(root.get("metadata"))
    status = read_mapping(root.get("status"))
    labels = read_mapping(metadata.get("labels"))
    selectors = kind.selectors
    phase = read_text(status.get("phase"))
    conditions = _read_conditions(status)
    spec = read_mapping(root.get("spec"))
    main = _main_container(kind, spec, status)
    containers = _read_containers(main, spec, status)
    created = read_time(metadata.get("creationTimestamp"))
    born = read_time(status.get("startTime")) or created
    deleted = _read_deletion(metadata)
    ends = tuple(end for container in containers for end in (container.end, container.last) if end)
    comes_up = deleted is None and phase not in ("Succeeded", "Failed")
    index = _read_index(labels.get(selectors.index))
    # Without any number pods of one role are not one replica, and do not replace each other.
    only_role = "" if index is None else kind.roles[0].name
    return PodState(
        name=read_text(metadata.get("name")),
        role=read_text(labels.get(selectors.role)) if selectors.role else only_role,
        index=index,
        leads=_is_selected(labels, selectors.leader),
        container=main,
        phase=phase,
        runs=comes_up and any(item.runs for item in containers if item.part == "main"),
        created=created,
        deleted=deleted,
        waiting=_waiting(conditions, containers) if comes_up else "",
        troubles=tuple(_troubles(conditions, containers, born)) if comes_up else (),
        ends=ends,
        disruption=_read_disruption(status, phase, conditions, ends),
    )


# Reasons of waiting containers. What is not here, ContainerCreating or a word of a later
# Kubernetes, is no trouble: it may pass, and the startup timeout holds.
_WAITING: Mapping[str, TroubleKind] = {
    "InvalidImageName": "image_name",
    "ErrImagePull": "image_pull",
    "ImagePullBackOff": "image_pull",
    "ErrImageNeverPull": "image_pull",
    "ImageInspectError": "image_pull",
    "RegistryUnavailable": "image_pull",
    "SignatureValidationFailed": "image_pull",
    "CreateContainerConfigError": "container_config",
    "CreateContainerError": "container_create",
    "RunContainerError": "container_create",
    "PreCreateHookError": "container_create",
    "PreStartHookError": "container_create",
    "PostStartHookError": "container_create",
    "CrashLoopBackOff": "crash_loop",
}


# The kubelet's view of the cluster lags behind for a moment; the Secret may well be there.
_LAGS = re.compile(r"failed to sync (secret|configmap) cache")

# The two forms that rows of kinds.py use: key=value, and key in (a,b).
_SELECTOR_TERM = re.compile(r"([^\s,=]+)(?:=([^\s,]+)| in \(([^)]*)\))")


class _Condition(NamedTuple):
    is_true: bool
    is_false: bool
    reason: str
    message: str
    time: datetime | None


class _Container(NamedTuple):
    name: str
    part: Part
    image: str
    waiting: str
    """Reason, empty while it runs or has ended."""
    message: str
    runs: bool
    first_start: datetime | None
    """None once it has restarted, since only the last start is known then."""
    end: ContainerEnd | None
    last: ContainerEnd | None


def _read_conditions(status: Mapping[str, Any]) -> Mapping[str, _Condition]:
    return {
        read_text(item.get("type")): _Condition(
            is_true=item.get("status") == "True",
            is_false=item.get("status") == "False",
            reason=read_text(item.get("reason")),
            message=read_text(item.get("message")),
            time=read_time(item.get("lastTransitionTime")),
        )
        for item in read_mappings(status.get("conditions"))
    }


def _main_container(kind: JobKind, spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """A kind names it, or means the first; the list of statuses has another order."""
    listed = read_mappings(spec.get("containers")) or read_mappings(status.get("containerStatuses"))
    names = [read_text(item.get("name")) for item in listed]
    return kind.container if kind.container in names else next(iter(names), "")


def _read_containers(
    main: str, spec: Mapping[str, Any], status: Mapping[str, Any]
) -> list[_Container]:
    """The main container first, then the others that run, then those that come before."""
    running = read_mappings(status.get("containerStatuses"))
    initial = read_mappings(status.get("initContainerStatuses"))
    specs = {
        read_text(item.get("name")): item
        for key in ("containers", "initContainers")
        for item in read_mappings(spec.get(key))
    }

    def read(item: Mapping[str, Any], part: Part) -> _Container:
        return _read_container(item, part, specs.get(read_text(item.get("name")), {}))

    beside = [read(item, "main" if item.get("name") == main else "sidecar") for item in running]
    before = [
        read(item, "sidecar" if _is_native_sidecar(specs, item) else "init") for item in initial
    ]
    return sorted(beside, key=lambda container: container.part != "main") + before


def _is_native_sidecar(specs: Mapping[str, Mapping[str, Any]], item: Mapping[str, Any]) -> bool:
    return specs.get(read_text(item.get("name")), {}).get("restartPolicy") == "Always"


def _read_container(item: Mapping[str, Any], part: Part, spec: Mapping[str, Any]) -> _Container:
    name = read_text(item.get("name"))
    restarts = read_number(item.get("restartCount")) or 0
    state = read_mapping(item.get("state"))
    waiting = read_mapping(state.get("waiting"))
    running = read_mapping(state.get("running"))
    blank = ContainerEnd(name, part, restarts=restarts)
    end = _read_end(blank, state)
    last = _read_end(blank, read_mapping(item.get("lastState")))
    began = read_time(running.get("startedAt")) or (end.started if end else None)
    return _Container(
        name=name,
        part=part,
        image=read_text(spec.get("image")) or read_text(item.get("image")),
        waiting=read_text(waiting.get("reason")),
        message=read_text(waiting.get("message")),
        runs=bool(running),
        first_start=None if restarts else began,
        end=end,
        last=last._replace(past=True) if last and (end or running) else last,
    )


def _read_end(blank: ContainerEnd, state: Mapping[str, Any]) -> ContainerEnd | None:
    ended = read_mapping(state.get("terminated"))
    if not ended:
        return None
    return blank._replace(
        exit_code=read_number(ended.get("exitCode")),
        # Kubernetes leaves the field out, or writes 0, where no signal is known.
        signal=read_number(ended.get("signal")) or None,
        reason=read_text(ended.get("reason")),
        message=read_text(ended.get("message")),
        started=read_time(ended.get("startedAt")),
        finished=read_time(ended.get("finishedAt")),
    )


def _is_selected(labels: Mapping[str, Any], selector: str) -> bool:
    return all(
        labels.get(key) in (value or values).split(",")
        for key, value, values in _SELECTOR_TERM.findall(selector)
    )


def _read_index(label: object) -> int | None:
    text = read_text(label)
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _read_deletion(metadata: Mapping[str, Any]) -> datetime | None:
    """When it was asked for; the timestamp says when the pod's grace will be over."""
    over = read_time(metadata.get("deletionTimestamp"))
    grace = read_number(metadata.get("deletionGracePeriodSeconds")) or 0
    if over is None:
        return None
    try:
        return over - timedelta(seconds=grace)
    except OverflowError:
        return over


def _read_disruption(
    status: Mapping[str, Any],
    phase: str,
    conditions: Mapping[str, _Condition],
    ends: Sequence[ContainerEnd],
) -> Disruption | None:
    target = conditions.get("DisruptionTarget")
    if target and not target.is_true:
        target = None
    # A pod that has not failed may bear a reason all the same: NodeLost, while nobody answers.
    reason = read_text(status.get("reason")) if phase not in ("Pending", "Succeeded") else ""
    if reason:
        message = read_text(status.get("message"))
    elif target:
        reason, message = target.reason or "DisruptionTarget", target.message
    else:
        return None
    finished = [end.finished for end in ends if end.failed and not end.past and end.finished]
    return Disruption(
        reason, message, (target.time if target else None) or min(finished, default=None)
    )


def _waiting(conditions: Mapping[str, _Condition], containers: Sequence[_Container]) -> str:
    scheduled = conditions.get("PodScheduled")
    if scheduled and scheduled.is_false:
        return scheduled.reason
    return next((container.waiting for container in containers if container.waiting), "")


def _troubles(
    conditions: Mapping[str, _Condition],
    containers: Sequence[_Container],
    born: datetime | None,
) -> Iterator[Trouble]:
    scheduled = conditions.get("PodScheduled")
    # A gate is no trouble: some queue holds the pod back on purpose.
    if scheduled and scheduled.is_false and scheduled.reason != "SchedulingGated":
        yield Trouble("unschedulable", scheduled.reason, scheduled.message, scheduled.time or born)
    for container in containers:
        what = _WAITING.get(container.waiting)
        if what == "container_config" and _LAGS.search(container.message):
            what = "container_create"
        if what:
            since = _waiting_since(what, container, conditions, containers) or born
            yield Trouble(
                what,
                container.waiting,
                container.message,
                since,
                container.name,
                container.part,
                container.image,
            )


def _waiting_since(
    what: TroubleKind,
    waiting: _Container,
    conditions: Mapping[str, _Condition],
    containers: Sequence[_Container],
) -> datetime | None:
    """Since when the container could have run: no clock of its own tells that.

    The pod's condition stands still while ErrImagePull and ImagePullBackOff take turns. But the
    kubelet takes containers one after another, so that a turn comes only when the others of the
    pod have started and its init containers have ended; an image of many gigabytes that took ten
    minutes must not use up the patience with the next one.
    """
    crashed = waiting.last.finished if waiting.last else None
    if what == "crash_loop" and crashed:
        return crashed
    states = (conditions.get(name) for name in ("Initialized", "ContainersReady", "Ready"))
    condition = next((state for state in states if state and state.is_false), None)
    turns = [condition.time if condition else None, crashed]
    for other in containers:
        turns.append(other.first_start)
        if other.part == "init" and other.end and not other.end.failed:
            turns.append(other.end.finished)
    return max((turn for turn in turns if turn), default=None)
