"""The only reader of a job's status: any status of any kind -> JobState.

Pure and tolerant. It ignores unknown conditions, missing fields, nulls and nonsense: if it raised
an error, it would end a trigger and so lose a job. What the operators really write, and where that
is misleading, is explained at each rule below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_kftrain.kinds import PRIORITY_LABEL, QUEUE_LABEL, JobKind


class Phase(str, Enum):
    """How far a job has come."""

    QUEUED = "Queued"
    """Suspended, by its author or by a queue such as Kueue. Time in a queue is not startup time."""
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    """Pods have failed, and the operator has not given up: most operators replace them."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    GONE = "Gone"
    """The job existed and no longer does, so nobody can say how it ended."""

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.GONE})
_UNDER_WAY = frozenset({Phase.RUNNING, Phase.RESTARTING})
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
_INT64 = 2**63
_MOST_METRICS = 16


class ReplicaCount(NamedTuple):
    """What the operator says about one role. Only for display: it says `succeeded: 1` for a worker
    that exited with 1, and `active` stays 1 after a failure."""

    role: str
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Reported(NamedTuple):
    """The progress that the status of a TrainJob reports. Runtimes of Trainer 2.3 and later may."""

    percent: int | None = None
    remaining: int | None = None
    """Seconds until the training is done, as the trainer estimates."""
    metrics: tuple[tuple[str, str], ...] = ()
    """Names and values."""


class JobState(NamedTuple):
    """The state of a job at one moment, as far as its custom resource shows it."""

    phase: Phase
    reason: str = ""
    message: str = ""
    replicas: tuple[ReplicaCount, ...] = ()
    starting_since: datetime | None = None
    """Creation, or the last resume: time in a queue does not count."""
    restarting_since: datetime | None = None
    """When the operator reported it; None in every other phase."""
    queued_since: datetime | None = None
    """The suspension, or the creation; None in every other phase."""
    started: datetime | None = None
    finished: datetime | None = None
    deadline: datetime | None = None
    """When the job's own active deadline expires; None if it has none or is queued."""
    progress: Reported | None = None
    acknowledged: bool = False
    """Whether the operator has written anything. A status may stay empty for ever if there is no
    operator, or if it has rejected the job silently."""
    self_healing: bool = False
    """Elastic: it continues with fewer pods. A limit on restarts is something else: no restart
    corrects an image name or creates a Secret."""
    restarts_counted: bool = False
    """Whether the operator gives up by itself after so many crashes. Without a limit, an elastic
    job crashes for ever."""
    backoff_limit: int | None = None
    """The job's own limit on restarts; None if it has none."""
    queue: str = ""
    """The name of Kueue's queue; "" if the job has none."""
    queue_priority: str = ""

    def after(self, previous: JobState | None) -> JobState:
        """This state, if it was read after `previous` of the same job: phases do not go back.

        The counts of a TrainJob drop to zero for a moment just before it ends. A final state stays
        final when the object is deleted later.
        """
        if previous is None:
            return self
        if previous.phase.is_final:
            return previous
        if self.phase is not Phase.STARTING or previous.phase not in _UNDER_WAY:
            return self
        # Between two reads, a queue may have stopped and resumed the job: then it really starts
        # again.
        resumed = (self.starting_since or _LONG_AGO) > (previous.starting_since or _LONG_AGO)
        if resumed:
            return self
        return self._replace(phase=previous.phase, restarting_since=previous.restarting_since)


GONE = JobState(Phase.GONE, message="the job is no longer there")


def read_state(kind: JobKind, resource: object) -> JobState:
    """The state of a resource (a dict as the API server sends it). Never raises."""
    root = read_mapping(resource)
    status = read_mapping(root.get("status"))
    spec = read_mapping(root.get("spec"))
    metadata = read_mapping(root.get("metadata"))
    labels = read_mapping(metadata.get("labels"))
    created = read_time(metadata.get("creationTimestamp"))
    conditions = _read_conditions(status)
    resumed = _last_resume(conditions)
    verdict = _verdict(kind, status, conditions)
    current = verdict or _current(kind, status, spec, _said_since(resumed, conditions))
    starting_since = max((time for time in (created, resumed) if time), default=None)
    started = read_time(status.get("startTime"))
    backoff_limit = read_number(_at(spec, kind.run_policy.get("backoff_limit", "")))
    return JobState(
        phase=current.phase,
        reason=current.reason,
        message=current.message,
        replicas=tuple(_replicas(kind, status)),
        starting_since=starting_since,
        restarting_since=current.time if current.phase is Phase.RESTARTING else None,
        queued_since=(current.time or created) if current.phase is Phase.QUEUED else None,
        started=started,
        finished=(read_time(status.get("completionTime")) or current.time) if verdict else None,
        deadline=_deadline(kind, spec, started or starting_since, current.phase),
        progress=_progress(read_mapping(status.get("trainerStatus"))),
        acknowledged=any(status.values()),
        self_healing=isinstance(_at(spec, kind.elastic_key), dict),
        restarts_counted=kind.backoff_counts == "pods" or backoff_limit is not None,
        backoff_limit=backoff_limit,
        queue=read_text(labels.get(QUEUE_LABEL)),
        queue_priority=read_text(labels.get(PRIORITY_LABEL)),
    )


def read_time(value: object) -> datetime | None:
    """A Kubernetes time in UTC; None for anything else."""
    return _parse_time(value) if isinstance(value, str) else None


@lru_cache(maxsize=1024)
def _parse_time(value: str) -> datetime | None:
    """Cached, since lists and changes of a job repeat the same times."""
    try:
        # Python 3.10 cannot parse the Z.
        time = datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value)
        return time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        return None


def read_number(value: object) -> int | None:
    """A whole number as in Kubernetes (64 bits); None for anything else, even True."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -_INT64 <= value < _INT64 else None


def read_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def read_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def read_mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class _Condition(NamedTuple):
    type: str
    is_true: bool
    reason: str
    message: str
    time: datetime | None


class _Current(NamedTuple):
    phase: Phase
    reason: str = ""
    message: str = ""
    time: datetime | None = None


# Times are in whole seconds, so several conditions often have the same one. Then the later phase
# wins, whatever their order: mpi-operator does not sort them by time.
_PHASES = {
    "Created": (0, Phase.STARTING),
    "Running": (1, Phase.RUNNING),
    "Restarting": (2, Phase.RESTARTING),
    "Suspended": (3, Phase.QUEUED),
    # Only reached if a Failed condition is not yet final: mpi-operator sets one when a worker is
    # evicted, but the job may still succeed.
    "Failed": (4, Phase.RESTARTING),
}
_NO_PHASE = (-1, Phase.STARTING)


def _verdict(
    kind: JobKind, status: Mapping[str, Any], conditions: list[_Condition]
) -> _Current | None:
    """The final condition. Failed wins over Succeeded: training-operator leaves both True if a
    worker fails while it processes the success of the chief."""
    failed_is_final = not kind.status.failed_needs_completion or bool(status.get("completionTime"))
    wanted = [("Failed", Phase.FAILED)] if failed_is_final else []
    wanted.append((kind.status.succeeded, Phase.SUCCEEDED))
    for name, phase in wanted:
        found = _newest(condition for condition in conditions if condition.type == name)
        if found:
            return _Current(phase, found.reason, found.message, found.time)
    return None


def _current(
    kind: JobKind,
    status: Mapping[str, Any],
    spec: Mapping[str, Any],
    conditions: list[_Condition],
) -> _Current:
    """The newest condition that is True decides; without one, the counts and the spec do."""
    newest = _newest(condition for condition in conditions if condition.type in _PHASES)
    current = (
        _Current(_PHASES[newest.type][1], newest.reason, newest.message, newest.time)
        if newest
        else _Current(Phase.STARTING)
    )
    if current.phase is not Phase.STARTING:
        return current
    if _counts_show_running(kind, status):
        return _Current(Phase.RUNNING)
    if _at(spec, kind.run_policy.get("suspend", "")) is True:
        # Kueue suspends a job at admission, before any operator has written a condition.
        return _Current(Phase.QUEUED, "Suspended", "the job is suspended")
    return current


def _last_resume(conditions: Iterable[_Condition]) -> datetime | None:
    times = (item.time for item in conditions if item.type == "Suspended" and not item.is_true)
    return max((time for time in times if time), default=None)


def _said_since(resumed: datetime | None, conditions: list[_Condition]) -> list[_Condition]:
    """A condition from before the last resume is outdated: Restarting stays True through a
    suspension.

    A condition from the very second of the resume counts, since a fast job may run by then.
    """
    if resumed is None:
        return conditions
    return [item for item in conditions if (item.time or _LONG_AGO) >= resumed]


def _newest(conditions: Iterable[_Condition]) -> _Condition | None:
    """The newest condition that is True, whatever their order."""
    return max(
        (condition for condition in conditions if condition.is_true),
        key=lambda item: (
            item.time is not None,
            item.time or _LONG_AGO,
            _PHASES.get(item.type, _NO_PHASE)[0],
            item.reason,
            item.message,
        ),
        default=None,
    )


def _counts_show_running(kind: JobKind, status: Mapping[str, Any]) -> bool:
    """For kinds without a Running condition. `active` alone proves nothing, since it counts pods
    that are still Pending. A child job before the training proves nothing either: the training may
    wait for a node long after the data is complete."""
    if kind.status.running == "condition":
        return False
    counted = [status]
    if kind.status.running == "child jobs":
        counted = [
            child
            for child in read_mappings(status.get("jobsStatus"))
            if child.get("name") not in kind.status.before_training
        ]
    return any(_count(item, key) for item in counted for key in ("ready", "succeeded", "failed"))


def _deadline(
    kind: JobKind, spec: Mapping[str, Any], since: datetime | None, phase: Phase
) -> datetime | None:
    seconds = read_number(_at(spec, kind.run_policy.get("active_deadline", "")))
    if seconds is None or since is None or phase is Phase.QUEUED:
        return None
    try:
        return since + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _replicas(kind: JobKind, status: Mapping[str, Any]) -> Iterator[ReplicaCount]:
    for role, counts in read_mapping(status.get("replicaStatuses")).items():
        yield _replica(read_text(role), read_mapping(counts))
    for child in read_mappings(status.get("jobsStatus")):
        yield _replica(read_text(child.get("name")), child)
    if kind.status.running == "ready pods" and status:
        yield _replica(kind.roles[0].name, status)


def _replica(role: str, counts: Mapping[str, Any]) -> ReplicaCount:
    return ReplicaCount(
        role, _count(counts, "active"), _count(counts, "succeeded"), _count(counts, "failed")
    )


def _read_conditions(status: Mapping[str, Any]) -> list[_Condition]:
    return [
        _Condition(
            type=read_text(item.get("type")),
            is_true=item.get("status") == "True",
            reason=read_text(item.get("reason")),
            message=read_text(item.get("message")),
            time=read_time(item.get("lastTransitionTime")) or read_time(item.get("lastUpdateTime")),
        )
        for item in read_mappings(status.get("conditions"))
    ]


def _progress(said: Mapping[str, Any]) -> Reported | None:
    remaining = read_number(said.get("estimatedRemainingSeconds"))
    reported = Reported(
        _percent(said.get("progressPercentage")),
        remaining if remaining is not None and remaining >= 0 else None,
        tuple(
            (read_text(each.get("name")), read_text(each.get("value")))
            for each in read_mappings(said.get("metrics"))[:_MOST_METRICS]
        ),
    )
    return reported if reported != Reported() else None


def _percent(value: object) -> int | None:
    number = read_number(value)
    return number if number is not None and 0 <= number <= 100 else None


def _at(spec: Mapping[str, Any], path: str) -> object:
    """The value at a dotted path; an empty path has none."""
    found: object = spec if path else None
    for key in path.split("."):
        found = read_mapping(found).get(key)
    return found


def _count(counts: Mapping[str, Any], key: str) -> int:
    return read_number(counts.get(key)) or 0
