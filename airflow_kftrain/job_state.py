"""The only reader of a custom resource's status: any status of any kind -> JobState.

Pure and tolerant: unknown conditions, missing fields, nulls and nonsense are passed over, since a
reader that raises would end a trigger and so lose a job. What the operators really write, and
where they lie, stands with each rule below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_kftrain.kinds import JobKind


class Phase(str, Enum):
    """Where a job is on its way."""

    QUEUED = "Queued"
    """Suspended, by its author or by a queue such as Kueue: waiting is not starting."""
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    """Pods failed, and the operator has not given the job up: most replace them."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    GONE = "Gone"
    """The uid was known and is no more, so that nobody can say how it ended."""

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.GONE})
_UNDER_WAY = frozenset({Phase.RUNNING, Phase.RESTARTING})
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
_INT64 = 2**63


class ReplicaCount(NamedTuple):
    """What the operator says of one role. For show only: it says `succeeded: 1` of a worker that
    exited with 1, and leaves `active` at 1 after a failure."""

    role: str
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class JobState(NamedTuple):
    """One moment of a job, as far as its custom resource tells."""

    phase: Phase
    reason: str = ""
    message: str = ""
    replicas: tuple[ReplicaCount, ...] = ()
    starting_since: datetime | None = None
    """Creation, or the last resume: time in a queue does not count as starting."""
    restarting_since: datetime | None = None
    """When the operator said so, None in every other phase."""
    started: datetime | None = None
    finished: datetime | None = None
    deadline: datetime | None = None
    """When the job's own active deadline is up, None where it has none or is queued."""
    progress: int | None = None
    """Percent, where the kind reports it."""
    acknowledged: bool = False
    """The operator has written something. An empty status can last for ever: no operator, or one
    that refused the job in silence."""
    self_healing: bool = False
    """Elastic: it goes on with fewer pods. A limit of restarts is something else, since no restart
    mends an image name or makes a Secret appear."""
    restarts_counted: bool = False
    """The operator gives up by itself after so many crashes. Without a limit an elastic job
    crashes for ever."""

    def after(self, previous: JobState | None) -> JobState:
        """This state, seen after `previous` of the same job: phases do not step back.

        A TrainJob's counts flicker to zero just before it ends; a final state stays final when the
        object is deleted later.
        """
        if previous is None:
            return self
        if previous.phase.is_final:
            return previous
        if self.phase is not Phase.STARTING or previous.phase not in _UNDER_WAY:
            return self
        # A queue may have stopped and resumed the job between two looks: then it really starts.
        resumed = (self.starting_since or _LONG_AGO) > (previous.starting_since or _LONG_AGO)
        if resumed:
            return self
        return self._replace(phase=previous.phase, restarting_since=previous.restarting_since)


GONE = JobState(Phase.GONE, message="the job is no longer there")


def read_state(kind: JobKind, resource: object) -> JobState:
    """The state that a resource (a dict as the API server sends it) is in. Never raises."""
    root = read_mapping(resource)
    status = read_mapping(root.get("status"))
    spec = read_mapping(root.get("spec"))
    created = read_time(read_mapping(root.get("metadata")).get("creationTimestamp"))
    conditions = _read_conditions(status)
    resumed = _last_resume(conditions)
    verdict = _verdict(kind, status, conditions)
    current = verdict or _current(kind, status, spec, _said_since(resumed, conditions))
    starting_since = max((time for time in (created, resumed) if time), default=None)
    started = read_time(status.get("startTime"))
    return JobState(
        phase=current.phase,
        reason=current.reason,
        message=current.message,
        replicas=tuple(_replicas(kind, status)),
        starting_since=starting_since,
        restarting_since=current.time if current.phase is Phase.RESTARTING else None,
        started=started,
        finished=(read_time(status.get("completionTime")) or current.time) if verdict else None,
        deadline=_deadline(kind, spec, started or starting_since, current.phase),
        progress=_percent(read_mapping(status.get("trainerStatus")).get("progressPercentage")),
        acknowledged=any(status.values()),
        self_healing=isinstance(_at(spec, kind.elastic_key), dict),
        restarts_counted=_restarts_counted(kind, spec),
    )


def read_time(value: object) -> datetime | None:
    """A Kubernetes time, in UTC; None for anything else."""
    return _parse_time(value) if isinstance(value, str) else None


@lru_cache(maxsize=1024)
def _parse_time(value: str) -> datetime | None:
    """Most are read again and again: lists and changes of a job tell all of its times each time."""
    try:
        # Python 3.10 does not read the Z.
        time = datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value)
        return time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        return None


def read_number(value: object) -> int | None:
    """A whole number as Kubernetes has them (64 bits); None for anything else, True among it."""
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


# Times have whole seconds only, so that several conditions often share one. The later phase wins
# then, whatever the order of the list: mpi-operator's is not that of time.
_PHASES = {
    "Created": (0, Phase.STARTING),
    "Running": (1, Phase.RUNNING),
    "Restarting": (2, Phase.RESTARTING),
    "Suspended": (3, Phase.QUEUED),
    # Only reached where a Failed condition is not yet final: mpi-operator sets it when a worker is
    # evicted, and the job may still go on and succeed.
    "Failed": (4, Phase.RESTARTING),
}
_NO_PHASE = (-1, Phase.STARTING)


def _verdict(
    kind: JobKind, status: Mapping[str, Any], conditions: list[_Condition]
) -> _Current | None:
    """The final condition. Failed wins over Succeeded: training-operator leaves both True when a
    worker fails in the very pass in which the chief succeeds."""
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
    """The newest condition that is True decides; without one the counts and the spec do."""
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
        # Kueue suspends at admission, before any operator has written a condition.
        return _Current(Phase.QUEUED, "Suspended", "the job is suspended")
    return current


def _last_resume(conditions: Iterable[_Condition]) -> datetime | None:
    times = (item.time for item in conditions if item.type == "Suspended" and not item.is_true)
    return max((time for time in times if time), default=None)


def _said_since(resumed: datetime | None, conditions: list[_Condition]) -> list[_Condition]:
    """What was said before the last resume is over: Restarting stays True through a suspension.

    What was said in the very second of the resume counts, since a job that is quick may run then.
    """
    if resumed is None:
        return conditions
    return [item for item in conditions if (item.time or _LONG_AGO) >= resumed]


def _newest(conditions: Iterable[_Condition]) -> _Condition | None:
    """The newest that is True, whatever the order of the list."""
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
    """For kinds without a Running condition. `active` alone shows nothing: it counts pods that
    are still Pending. A child job that comes before the training shows nothing either: the
    training may wait for a node long after the data are there."""
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


def _restarts_counted(kind: JobKind, spec: Mapping[str, Any]) -> bool:
    if kind.backoff_counts == "pods":
        return True
    return read_number(_at(spec, kind.run_policy.get("backoff_limit", ""))) is not None


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


def _percent(value: object) -> int | None:
    number = read_number(value)
    return number if number is not None and 0 <= number <= 100 else None


def _at(spec: Mapping[str, Any], path: str) -> object:
    """What stands at a dotted path; the empty path leads nowhere."""
    found: object = spec if path else None
    for key in path.split("."):
        found = read_mapping(found).get(key)
    return found


def _count(counts: Mapping[str, Any], key: str) -> int:
    return read_number(counts.get(key)) or 0
