"""The only reader of Kueue's Workloads: what the queue does with a job. Pure.

Like job_state.py it is tolerant: it ignores what it does not know. Kueue creates one Workload for
each job that it queues, with the uid of the job as a label; for a TrainJob it is that of the
TrainJob, not of its JobSet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from airflow_kftrain.job_state import (
    JobState,
    read_mapping,
    read_mappings,
    read_text,
    read_time,
)
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.monitoring.text import moment, one_line

UID_LABEL = "kueue.x-k8s.io/job-uid"


class Stage(str, Enum):
    """How far a job has come in its queue."""

    WAITS = "waits"
    """Its turn has not come."""
    BARRED = "barred"
    """Kueue does not consider it: its queue does not exist, or is stopped."""
    RESERVED = "reserved"
    """It has a quota, and waits for admission checks."""
    ADMITTED = "admitted"
    DEACTIVATED = "deactivated"
    """Kueue has given up on it, or somebody has told Kueue to."""
    FINISHED = "finished"
    ABSENT = "absent"
    """Kueue has not created a Workload."""
    NO_KUEUE = "no kueue"
    """The cluster does not serve Workloads."""
    FORBIDDEN = "forbidden"
    """We may not read Workloads."""


class QueueState(NamedTuple):
    """What is known of the Workload of one job."""

    stage: Stage
    reason: str = ""
    """Kueue's own word."""
    message: str = ""
    eviction: str = ""
    """Why Kueue has taken the job's quota away; "" if it has not, or has given it back."""
    returns: datetime | None = None
    """When Kueue puts an evicted job back into the queue."""


def read_queue_state(workloads: Iterable[object]) -> QueueState | None:
    """The state of a job in its queue, from its Workloads; None if there is none. Never raises."""
    found = [read_mapping(workload) for workload in workloads]
    newest = max(found, key=_created, default=None)
    return None if newest is None else _read(newest)


def read_job_uid(workload: Mapping[str, Any]) -> str:
    """The uid of the job that a Workload belongs to; "" if it does not say."""
    labels = read_mapping(read_mapping(workload.get("metadata")).get("labels"))
    return read_text(labels.get(UID_LABEL))


def _created(workload: Mapping[str, Any]) -> str:
    return read_text(read_mapping(workload.get("metadata")).get("creationTimestamp"))


class _Condition(NamedTuple):
    is_true: bool = False
    reason: str = ""
    message: str = ""

    @property
    def words(self) -> str:
        """`Preempted: Preempted to accommodate a workload ...`."""
        return _joined(self.reason, self.message)


_UNSET = _Condition()


def _read(workload: Mapping[str, Any]) -> QueueState:
    status = read_mapping(workload.get("status"))
    conditions = {
        read_text(each.get("type")): _Condition(
            each.get("status") == "True",
            read_text(each.get("reason")),
            read_text(each.get("message")),
        )
        for each in read_mappings(status.get("conditions"))
    }
    evicted = conditions.get("Evicted", _UNSET)
    quota = conditions.get("QuotaReserved", _UNSET)
    # At the end QuotaReserved and Admitted turn False, so Finished comes first. The Evicted
    # condition of a Workload that was activated again stays for a while, so it proves nothing.
    if (finished := conditions.get("Finished", _UNSET)).is_true:
        return QueueState(Stage.FINISHED, finished.reason, finished.message)
    if read_mapping(workload.get("spec")).get("active") is False:
        reason = evicted.reason if evicted.is_true else ""
        known = reason.startswith("Deactivated")
        return QueueState(
            Stage.DEACTIVATED, reason if known else "Deactivated", evicted.message if known else ""
        )
    if (admitted := conditions.get("Admitted", _UNSET)).is_true and not evicted.is_true:
        return QueueState(Stage.ADMITTED, admitted.reason, admitted.message)
    if quota.is_true and not evicted.is_true:
        checks = _open_checks(status) or quota.message
        return QueueState(Stage.RESERVED, quota.reason, checks)
    stage = Stage.BARRED if quota.reason == "Inadmissible" else Stage.WAITS
    # Just after an eviction, the message is that of the eviction.
    news = quota.message if quota.message != evicted.message and not quota.is_true else ""
    return QueueState(
        stage,
        quota.reason,
        news,
        eviction=evicted.words if evicted.is_true else "",
        returns=read_time(read_mapping(status.get("requeueState")).get("requeueAt")),
    )


def _open_checks(status: Mapping[str, Any]) -> str:
    """The admission checks that have not passed: `provisioning is Pending: no capacity yet`."""
    checks = [
        _joined(f"{read_text(each.get('name'))} is {state}", read_text(each.get("message")))
        for each in read_mappings(status.get("admissionChecks"))
        if (state := read_text(each.get("state"))) != "Ready"
    ]
    return "; ".join(checks)


def _joined(*texts: str) -> str:
    return ": ".join(text for text in texts if text)


# What Kueue says of jobs that it keeps in the queue although they can never be admitted.
_NEVER = re.compile("> maximum capacity|unavailable in ClusterQueue")


def queue_words(kind: JobKind, state: JobState, queue: QueueState) -> str:
    """What a queued job waits for. The words stay the same as long as that does."""
    job, said = kind.kind, one_line(queue.message).rstrip(".")
    if queue.stage is Stage.ABSENT:
        return _absent_words(kind, state)
    if queue.stage is Stage.NO_KUEUE:
        return (
            f"The {job} is suspended, and waits for queue {state.queue} in a cluster that has no "
            f"Kueue, so nobody will start it ({said}). Install Kueue, or omit queue_name."
        )
    if queue.stage is Stage.FORBIDDEN:
        return f"The {job} waits in queue {state.queue}. It is not known for what: {queue.message}"
    if queue.stage is Stage.RESERVED:
        return f"Kueue has reserved quota for the {job}, which waits for admission checks: {said}."
    if queue.stage in (Stage.ADMITTED, Stage.FINISHED):
        return f"Kueue has admitted the {job}, which is about to start."
    evicted = f"Kueue has evicted the {job} ({one_line(queue.eviction).rstrip('.')}). "
    return f"{evicted if queue.eviction else ''}{_waits(kind, state, queue, said)}"


def _waits(kind: JobKind, state: JobState, queue: QueueState, said: str) -> str:
    if queue.stage is Stage.BARRED:
        return (
            f"Kueue cannot admit the {kind.kind}: {said}. It waits until queue {state.queue} exists"
            " and is active; otherwise correct queue_name."
        )
    words = f"The {kind.kind} waits in queue {state.queue}"
    if queue.eviction:
        words += " again"
        words += f", from {moment(queue.returns)} on" if queue.returns else ""
    words = f"{words}{f': {said}' if said else ''}."
    if _NEVER.search(said):
        words += " Waiting does not help: request less, or choose another queue."
    return words


def _absent_words(kind: JobKind, state: JobState) -> str:
    causes = ["it is not running", f"it does not manage {kind.kind}s"]
    if state.queue_priority:
        causes.append(f"its priority class {state.queue_priority} does not exist")
    *others, last = causes
    return (
        f"The {kind.kind} is suspended, and waits for queue {state.queue}, but Kueue has not "
        f"created a Workload for it: {', '.join(others)}, or {last}."
    )


def deactivated_words(kind: JobKind, state: JobState, queue: QueueState) -> str:
    said = one_line(_joined(queue.reason, queue.message)).rstrip(".")
    return (
        f"Kueue no longer tries to run the {kind.kind} of queue {state.queue}, since its Workload "
        f"was deactivated ({said})."
    )
