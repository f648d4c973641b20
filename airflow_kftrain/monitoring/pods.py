"""The only reader of pods: a dict as the API server sends it -> PodState. Never raises.

It finds what keeps a pod from starting (troubles, each with its own start time) and how its
containers ended. decisions.py and failures.py draw the conclusions.
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
    "volume_name",
    "volume",
    "unschedulable",
    "crash_loop",
]
"""Each is the name of the field of Timeouts that limits it."""

Part = Literal["main", "init", "sidecar"]
"""The container that trains, one that has to end before, or one beside it."""


class Trouble(NamedTuple):
    """What keeps a pod from starting."""

    what: TroubleKind
    reason: str
    """Kubernetes' word."""
    message: str = ""
    since: datetime | None = None
    container: str = ""
    """Empty if the whole pod is meant."""
    part: Part = "main"
    image: str = ""


class ContainerEnd(NamedTuple):
    """How one run of a container ended."""

    container: str
    part: Part
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    """Its termination message, or the last lines of its log."""
    started: datetime | None = None
    finished: datetime | None = None
    restarts: int = 0
    past: bool = False
    """Whether the container has restarted since."""

    @property
    def out_of_memory(self) -> bool:
        return "OOMKilled" in self.reason

    @property
    def failed(self) -> bool:
        """Running out of memory counts even with exit code 0: the kernel may have killed only a
        child process."""
        if self.exit_code is None:
            return self.reason != "Completed"
        return self.exit_code != 0 or self.out_of_memory


class Disruption(NamedTuple):
    """Why Kubernetes ended the whole pod: eviction, preemption, a lost node, a deadline."""

    reason: str
    message: str = ""
    time: datetime | None = None


class PodState(NamedTuple):
    """The state of a pod at one moment."""

    name: str
    role: str = ""
    """As in the pod's label, in lower case: worker. Empty if all pods are alike."""
    index: int | None = None  # type: ignore[assignment]  # hides tuple.index
    leads: bool = False
    """Whether it is the leader: its log and its result are those of the job. If all pods are alike,
    each one leads."""
    container: str = ""
    """The name of the main container, whose log is shown, and which leaves the result."""
    container_id: str = ""
    """What the runtime calls it, without the runtime's own name; a restart gives it another one."""
    node: str = ""
    phase: str = ""
    runs: bool = False
    """Whether its main container runs: in a crash loop the phase is Running, too."""
    created: datetime | None = None
    deleted: datetime | None = None
    """When its deletion was requested. How a container ends after that proves nothing."""
    waiting: str = ""
    """What it waits for without being in trouble, in Kubernetes' word: ContainerCreating."""
    mounts_since: datetime | None = None
    """Since when its node may be mounting its volumes; None before and after that. Only events say
    why it takes long."""
    troubles: tuple[Trouble, ...] = ()
    ends: tuple[ContainerEnd, ...] = ()
    disruption: Disruption | None = None

    @property
    def replica(self) -> str:
        """Role and index, as in worker-3; the pod's name if it has no role."""
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
    # Without numbers, pods of the same role are different replicas, and do not replace each other.
    only_role = "" if index is None else kind.roles[0].name
    return PodState(
        name=read_text(metadata.get("name")),
        role=read_text(labels.get(selectors.role)) if selectors.role else only_role,
        index=index,
        leads=_is_selected(labels, selectors.leader),
        container=main,
        container_id=_container_id(main, status),
        node=read_text(spec.get("nodeName")),
        phase=phase,
        runs=comes_up and any(item.runs for item in containers if item.part == "main"),
        created=created,
        deleted=deleted,
        waiting=_waiting(conditions, containers) if comes_up else "",
        mounts_since=_mounts_since(conditions, containers) if comes_up else None,
        troubles=tuple(_troubles(conditions, containers, born)) if comes_up else (),
        ends=ends,
        disruption=_read_disruption(status, phase, conditions, ends),
    )


# Reasons of waiting containers. Any other, such as ContainerCreating or a word of a later
# Kubernetes, is not a trouble: it may pass, and the startup timeout applies.
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


# If a claim is missing, the scheduler cannot place the pod. The kubelet reports all other names.
MISSING_VOLUME = re.compile(
    r'(secret|configmap|persistentvolumeclaim)s? "[^"]+" not found'
    r"|references non-existent (secret|config) key"
)

# The kubelet's view of the cluster may lag behind: the Secret may well exist.
_LAGS = re.compile(r"failed to sync (secret|configmap) cache")

# The two forms that occur in kinds.py: key=value, and key in (a,b).
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
    """The reason; empty while it runs or after it has ended."""
    message: str
    runs: bool
    first_start: datetime | None
    """None after a restart, since then only the latest start is known."""
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
    """The kind names it, or it is the first one; the list of statuses has another order."""
    listed = read_mappings(spec.get("containers")) or read_mappings(status.get("containerStatuses"))
    names = [read_text(item.get("name")) for item in listed]
    return kind.container if kind.container in names else next(iter(names), "")


def _container_id(main: str, status: Mapping[str, Any]) -> str:
    """As in the names of log files: without `containerd://`."""
    for item in read_mappings(status.get("containerStatuses")):
        if item.get("name") == main:
            return read_text(item.get("containerID")).rpartition("://")[2]
    return ""


def _read_containers(
    main: str, spec: Mapping[str, Any], status: Mapping[str, Any]
) -> list[_Container]:
    """The main container first, then the others, then the init containers."""
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
        # If no signal is known, Kubernetes leaves the field out, or writes 0.
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
    """When the deletion was requested. The timestamp itself says when the grace period will be
    over."""
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
    # A pod that has not failed may have a reason, too: NodeLost, while its node does not answer.
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
    if scheduled and scheduled.is_true and not containers:
        return "Scheduled"
    return next((container.waiting for container in containers if container.waiting), "")


def _mounts_since(
    conditions: Mapping[str, _Condition], containers: Sequence[_Container]
) -> datetime | None:
    """The kubelet mounts all volumes before it does anything else. Since Kubernetes 1.29 a
    condition shows that it has done so."""
    scheduled = conditions.get("PodScheduled")
    started = conditions.get("PodReadyToStartContainers")
    if not scheduled or not scheduled.is_true or (started and started.is_true):
        return None
    preparing = all(
        each.waiting in ("ContainerCreating", "PodInitializing") and not each.last
        for each in containers
    )
    return scheduled.time if preparing else None


def _troubles(
    conditions: Mapping[str, _Condition],
    containers: Sequence[_Container],
    born: datetime | None,
) -> Iterator[Trouble]:
    scheduled = conditions.get("PodScheduled")
    # A gate is not a trouble: a queue holds the pod back on purpose.
    if scheduled and scheduled.is_false and scheduled.reason != "SchedulingGated":
        what: TroubleKind = "unschedulable"
        if MISSING_VOLUME.search(scheduled.message):
            what = "volume_name"
        yield Trouble(what, scheduled.reason, scheduled.message, scheduled.time or born)
    for container in containers:
        found = _WAITING.get(container.waiting)
        if found == "container_config" and _LAGS.search(container.message):
            found = "container_create"
        if found:
            since = _waiting_since(found, container, conditions, containers) or born
            yield Trouble(
                found,
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
    """Since when the container could have run: no field says that.

    The time of the pod's condition stays the same while ErrImagePull and ImagePullBackOff
    alternate. But the kubelet starts containers one after the other: it pulls this image only when
    the other containers of the pod have started and its init containers have ended. So an image of
    many gigabytes that took ten minutes must not use up the limit of the next one.
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
