"""Finds what ended the job: ends of pods -> failures, the most significant first.

If one replica fails, its siblings fail too, or the operator ends them. So most failures are
consequences. The earliest real one is the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum, IntEnum
from typing import NamedTuple

from airflow_kftrain.function_payload.message import Raised, read_raised
from airflow_kftrain.monitoring.pods import ContainerEnd, Disruption, PodState
from airflow_kftrain.monitoring.text import one_line


class Fault(str, Enum):
    """Where the cause lies: in what the author provides, or in the cluster."""

    USER = "user"
    SYSTEM = "system"


class Weight(IntEnum):
    """How significant an end is. A lower weight goes first, whatever the time."""

    REAL = 0
    SIDECAR = 1
    """A container beside the main one. It makes the pod fail, but not the training."""
    RESTARTED = 2
    """The replica has started again since, in the same pod or in a new one."""
    CONSEQUENCE = 3
    """Ended from outside, by SIGTERM or a deletion: siblings, after the first failure."""
    NOTHING = 4


class LogKey(NamedTuple):
    """Identifies a log: a recreated pod has the same name, and a container may restart in its
    pod."""

    pod: str
    created: datetime | None
    container: str
    finished: datetime | None


class Failure(NamedTuple):
    """A failed replica, described by its most significant end."""

    replica: str
    pod: str
    container: str
    """Empty if Kubernetes ended the whole pod."""
    reason: str
    """Kubernetes' word: OOMKilled, Error, Evicted."""
    what: str
    """The end in words, with the exit code explained."""
    fault: Fault
    advice: str
    message: str = ""
    finished: datetime | None = None
    weight: Weight = Weight.REAL
    exit_code: int | None = None
    created: datetime | None = None
    """When the pod was created."""
    raised: datetime | None = None
    """When the function raised the exception that ended it."""
    fatal: bool = False
    """Whether the author has declared the exception fatal, so that a retry cannot help."""

    @property
    def log(self) -> LogKey:
        """The log that belongs to this failure."""
        return LogKey(self.pod, self.created, self.container, self.finished)


def find_cause(pods: Sequence[PodState]) -> Failure | None:
    """The earliest real failure among all replicas."""
    return next(iter(find_failures(pods)), None)


def find_disruption(pods: Sequence[PodState]) -> Failure | None:
    """The cause, if the cluster has ended a pod and nobody is at fault. The exit codes of a program
    prove nothing, nor does a pod that somebody has deleted."""
    cause = find_cause(pods)
    if cause is None or cause.container or cause.fault is not Fault.SYSTEM:
        return None
    return cause if cause.reason in _OF_THE_CLUSTER else None


def find_failures(pods: Sequence[PodState]) -> list[Failure]:
    """At most one failure per pod; the cause comes first."""
    newest: dict[str, datetime] = {}
    for pod in pods:
        if pod.created:
            newest[pod.replica] = max(pod.created, newest.get(pod.replica, pod.created))
    found = []
    for pod in pods:
        replaced = pod.created is not None and pod.created < newest[pod.replica]
        failure = min(_failures_of(pod, replaced), key=_order, default=None)
        if failure:
            found.append(failure)
    return sorted(found, key=_order)


class _Meaning(NamedTuple):
    fault: Fault
    words: str
    advice: str


_LOOK = "Look at its log."
_FATAL = "The task's Code.fatal names this exception, so there is no retry."
_NODE = "Nothing in the job has to change."

_EXIT_CODES: Mapping[int, _Meaning] = {
    126: _Meaning(
        Fault.USER,
        "the command cannot be executed",
        "Check that the command is executable and made for the node's architecture.",
    ),
    127: _Meaning(
        Fault.USER, "the command was not found", "Check the command and the PATH of the image."
    ),
    137: _Meaning(
        Fault.SYSTEM,
        "SIGKILL, from outside",
        "Often eviction, preemption or the node's memory: check the pod's events and its node.",
    ),
    139: _Meaning(
        Fault.USER,
        "SIGSEGV, a crash in native code",
        "Often /dev/shm is too small, or libraries are incompatible.",
    ),
    143: _Meaning(
        Fault.SYSTEM, "SIGTERM, from outside", "Check the pod's events to see what ended it."
    ),
    # For example sys.exit(-9) in Python, after a child process was killed.
    247: _Meaning(
        Fault.SYSTEM,
        "a child process got SIGKILL",
        "Often the node is out of memory: check the pod's events and its node.",
    ),
}

_CONTAINER_REASONS: Mapping[str, _Meaning] = {
    "OOMKilled": _Meaning(
        Fault.USER, "out of memory", "Give this replica more memory, or make it use less."
    ),
    "StartError": _Meaning(
        Fault.USER, "it could not be started", "Check the command, the image and the mounts."
    ),
    "ContainerCannotRun": _Meaning(
        Fault.USER, "it could not be started", "Check the command, the image and the mounts."
    ),
    "ContainerStatusUnknown": _Meaning(
        Fault.SYSTEM, "the node lost track of it", "Check the pod's node."
    ),
}

_DISRUPTIONS: Mapping[str, _Meaning] = {
    "DeadlineExceeded": _Meaning(
        Fault.USER,
        "it ran longer than its deadline",
        "Raise active_deadline, or make the training shorter.",
    ),
    "Evicted": _Meaning(Fault.SYSTEM, "the node was low on resources", _NODE),
    "Shutdown": _Meaning(Fault.SYSTEM, "the node was shut down", _NODE),
    "NodeShutdown": _Meaning(Fault.SYSTEM, "the node was shut down", _NODE),
    "Terminated": _Meaning(Fault.SYSTEM, "the node was shut down", _NODE),
    "NodeAffinity": _Meaning(
        Fault.SYSTEM, "the node no longer matches", "Check node selector and affinity."
    ),
    "NodeLost": _Meaning(Fault.SYSTEM, "the node does not answer", _NODE),
    "Preempting": _Meaning(Fault.SYSTEM, "a pod with a higher priority took its place", _NODE),
    "PreemptionByScheduler": _Meaning(
        Fault.SYSTEM, "a pod with a higher priority took its place", _NODE
    ),
    "DeletionByTaintManager": _Meaning(
        Fault.SYSTEM, "its node got a taint that it does not tolerate", _NODE
    ),
    "EvictionByEvictionAPI": _Meaning(
        Fault.SYSTEM, "it was evicted, for example by a drain of its node", _NODE
    ),
    "DeletionByPodGC": _Meaning(Fault.SYSTEM, "its node no longer exists", _NODE),
    "TerminationByKubelet": _Meaning(Fault.SYSTEM, "its node ended it", _NODE),
    "UnexpectedAdmissionError": _Meaning(
        Fault.SYSTEM, "its node rejected it", "Often a device plugin: check the node."
    ),
}
_OF_THE_CLUSTER = frozenset(
    {
        "Evicted",
        "Shutdown",
        "NodeShutdown",
        "Terminated",
        "NodeLost",
        "Preempting",
        "PreemptionByScheduler",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "DeletionByPodGC",
        "TerminationByKubelet",
    }
)
"""Reasons after which the same job may well succeed."""
_OTHER_DISRUPTION = _Meaning(Fault.SYSTEM, "Kubernetes ended the pod", _LOOK)
_OWN_LIMIT = _Meaning(
    Fault.USER, "it used more than its limit", "Raise the limit that the message names."
)
_OWN_LIMIT_WORDS = re.compile(r"exceed\w*\b.*\blimit", re.DOTALL)

# Linux's numbers, since the containers run on Linux, whatever this process runs on.
_SIGNALS: Mapping[int, str] = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
_SIGTERM = 15

# torchrun turns SIGTERM into an exception, and so into exit code 1.
_TORCH_SIGTERM = re.compile(r"SignalException: Process \d+ got signal: 15\b")

_NO_TIME = datetime.max.replace(tzinfo=timezone.utc)


def exit_in_words(end: ContainerEnd) -> str:
    """`exit code 137 (SIGKILL, from outside)`, `exit code 0, but OOMKilled (out of memory)`."""
    code = "unknown exit code" if end.exit_code is None else f"exit code {end.exit_code}"
    words = _meaning_of_end(end).words
    meaning = f" ({words})" if words else ""
    if end.reason in ("", "Error", "Completed"):
        return f"{code}{meaning}"
    return f"{code}{', but' if end.exit_code == 0 else ','} {one_line(end.reason)}{meaning}"


def _meaning_of_end(end: ContainerEnd) -> _Meaning:
    if end.out_of_memory:
        return _CONTAINER_REASONS["OOMKilled"]
    if end.reason in _CONTAINER_REASONS:
        return _CONTAINER_REASONS[end.reason]
    code = end.exit_code or 0
    number = end.signal or code - 128
    if end.signal in _SIGNALS:
        code = 128 + number
    if code in _EXIT_CODES:
        return _EXIT_CODES[code]
    return _Meaning(Fault.USER, _SIGNALS.get(number, ""), _LOOK)


def _meaning_of_disruption(disruption: Disruption) -> _Meaning:
    if disruption.reason == "Evicted" and _OWN_LIMIT_WORDS.search(disruption.message):
        return _OWN_LIMIT
    return _DISRUPTIONS.get(disruption.reason, _OTHER_DISRUPTION)


def _order(failure: Failure) -> tuple[object, ...]:
    # Times are in whole seconds. Running out of memory is never a consequence, so it goes first
    # within a second.
    return (
        failure.weight,
        failure.raised or failure.finished or _NO_TIME,
        failure.reason != "OOMKilled",
        failure.replica,
        failure.pod,
        failure.container,
        failure.what,
    )


def _failures_of(pod: PodState, replaced: bool) -> Iterator[Failure]:
    if pod.disruption:
        yield _disrupted(pod, pod.disruption, replaced)
    failed = [end for end in pod.ends if end.failed]
    for end in failed:
        yield _ended(pod, end, _weigh(pod, end, replaced))
    if pod.phase == "Failed" and not failed and not pod.disruption:
        yield Failure(
            replica=pod.replica,
            pod=pod.name,
            container="",
            reason="Failed",
            what="the pod failed, and Kubernetes does not say why",
            fault=Fault.SYSTEM,
            advice="Look at the pod's events.",
            weight=_weigh_silence(pod, replaced),
            created=pod.created,
        )


def _disrupted(pod: PodState, disruption: Disruption, replaced: bool) -> Failure:
    meaning = _meaning_of_disruption(disruption)
    return Failure(
        replica=pod.replica,
        pod=pod.name,
        container="",
        reason=disruption.reason,
        what=f"{one_line(disruption.reason)} ({meaning.words})",
        fault=meaning.fault,
        advice=meaning.advice,
        message=disruption.message,
        finished=disruption.time,
        weight=Weight.RESTARTED if replaced else Weight.REAL,
        created=pod.created,
    )


def _ended(pod: PodState, end: ContainerEnd, weight: Weight) -> Failure:
    meaning = _meaning_of_end(end)
    raised = read_raised(end.message)
    if raised and not end.out_of_memory:
        return _raised(pod, end, weight, raised)
    return Failure(
        replica=pod.replica,
        pod=pod.name,
        container=end.container,
        reason="OOMKilled" if end.out_of_memory else end.reason or "Error",
        what=exit_in_words(end),
        fault=meaning.fault,
        advice=meaning.advice,
        message=end.message,
        finished=end.finished,
        weight=weight,
        exit_code=end.exit_code,
        created=pod.created,
    )


def _raised(pod: PodState, end: ContainerEnd, weight: Weight, raised: Raised) -> Failure:
    """The exception of a function says more than the exit code that follows from it."""
    return Failure(
        replica=pod.replica,
        pod=pod.name,
        container=end.container,
        reason=end.reason or "Error",
        what=one_line(raised.headline),
        fault=Fault.USER,
        advice=_FATAL if raised.fatal else _LOOK,
        message=raised.text,
        finished=end.finished,
        weight=weight,
        exit_code=end.exit_code,
        created=pod.created,
        raised=raised.time,
        fatal=raised.fatal,
    )


def _weigh(pod: PodState, end: ContainerEnd, replaced: bool) -> Weight:
    consequence = _is_consequence(pod, end)
    if end.part == "sidecar":
        # When a pod is ended, its sidecars are ended with it, and often fail.
        minor = replaced or end.past or consequence or _main_was_ended(pod)
        return Weight.NOTHING if minor else Weight.SIDECAR
    if consequence:
        return Weight.CONSEQUENCE
    return Weight.RESTARTED if replaced or end.past else Weight.REAL


def _weigh_silence(pod: PodState, replaced: bool) -> Weight:
    """For a failed pod about which nothing else is known. A pod that is deleted before its
    container has started is one of these."""
    if pod.deleted:
        return Weight.CONSEQUENCE
    return Weight.RESTARTED if replaced else Weight.REAL


def _main_was_ended(pod: PodState) -> bool:
    return any(
        end.part == "main" and not end.past and _is_consequence(pod, end) for end in pod.ends
    )


def _is_consequence(pod: PodState, end: ContainerEnd) -> bool:
    if end.out_of_memory:
        return False
    if _SIGTERM in (end.signal, (end.exit_code or 0) - 128):
        return True
    if _TORCH_SIGTERM.search(end.message):
        return True
    if pod.deleted and end.finished and end.finished > pod.deleted:
        return True
    struck = pod.disruption
    return bool(struck and (not struck.time or not end.finished or end.finished >= struck.time))
