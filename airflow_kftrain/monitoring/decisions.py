"""What to do about a job now: (state, pods, timeouts, clock) -> Decision. Pure.

First the state is read, then the clock: a final state wins over every limit that is up. Of several
limits that are up the earliest one decides, so that a caller who looks late, after a restart of
the triggerer say, decides as one who looked in time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import NamedTuple

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.monitoring.failures import Fault, Weight, find_cause, find_failures
from airflow_kftrain.monitoring.pods import PodState, Trouble
from airflow_kftrain.monitoring.text import listed, moment, one_line, place, sentence
from airflow_kftrain.monitoring.waiting import SEVERITY, TROUBLES, trouble_words, waiting_words
from airflow_kftrain.specs.timeouts import Timeouts

DEADLINE_GRACE = timedelta(seconds=60)
"""How long the operator may take to end a job whose own active deadline is up. Its verdict goes
first, since it says more; but training-operator looks at the deadline only when something else
happens, which may be never."""

_LONGEST_REASON = 63


class Verdict(str, Enum):
    WAIT = "wait"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    """A deadline of the author is up: the execution timeout, or the job's active deadline."""


class Decision(NamedTuple):
    """What to do about a job, and why."""

    verdict: Verdict
    reason: str
    """One word, Kubernetes' own where it has one."""
    words: str
    """For the author. While waiting they say for what, and stay the same as long as that does."""
    fault: Fault | None = None
    retryable: bool = False
    until: datetime | None = None
    """While waiting: when the same job would be decided otherwise, None: never."""


def decide(
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    timeouts: Timeouts,
    now: datetime,
    deadline: datetime | None = None,
) -> Decision:
    """Wait or end. `deadline` is the author's execution timeout; it runs in a queue, too."""
    decision = judge(kind, state, pods)
    if state.phase.is_final:
        return decision
    limits = sorted(
        (
            *_deadlines(kind, state, deadline),
            *_trouble_limits(state, pods, timeouts),
            *_startup_limits(kind, state, pods, timeouts, decision.words),
        ),
        key=lambda limit: limit.at,
    )
    if not limits:
        return decision
    if limits[0].at <= now:
        return limits[0].decision
    return decision._replace(until=limits[0].at)


def judge(kind: JobKind, state: JobState, pods: Sequence[PodState]) -> Decision:
    """What the resource itself says, without any clock; pods and words explain a failure."""
    if state.phase is Phase.SUCCEEDED:
        return Decision(Verdict.SUCCEEDED, "Succeeded", _success_words(kind, pods))
    if state.phase is Phase.GONE:
        words = (
            f"The {kind.kind} is no longer there, so that nobody can say how it ended: it was "
            "deleted by hand, by its time to live, or together with its namespace."
        )
        return Decision(Verdict.FAILED, "Gone", words, Fault.SYSTEM, retryable=True)
    if state.phase is Phase.FAILED:
        return _judge_failure(kind, state, pods)
    return Decision(Verdict.WAIT, state.phase.value, waiting_words(kind, state, pods))


class _Limit(NamedTuple):
    """What will be decided at a moment, if nothing changes before."""

    at: datetime
    decision: Decision


_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


def _after(since: datetime | None, patience: timedelta | None) -> datetime | None:
    """When the patience is over; None: never, or nobody knows since when."""
    if patience is None:
        return None
    if since is None:
        return None if patience else _LONG_AGO
    try:
        return since + patience
    except OverflowError:
        return None


def _deadlines(kind: JobKind, state: JobState, deadline: datetime | None) -> Iterator[_Limit]:
    if deadline:
        words = (
            f"The {kind.kind} was not done at {moment(deadline)}, when the task's execution "
            "timeout was up. Raise execution_timeout, or make the training shorter."
        )
        yield _Limit(deadline, _timed_out("ExecutionTimeout", words))
    own = _after(state.deadline, DEADLINE_GRACE)
    if own and state.deadline:
        words = (
            f"The {kind.kind} was not done at {moment(state.deadline)}, when its active deadline "
            "was up. Raise active_deadline, or make the training shorter."
        )
        yield _Limit(own, _timed_out("DeadlineExceeded", words))


def _timed_out(reason: str, words: str) -> Decision:
    return Decision(Verdict.TIMED_OUT, reason, words, Fault.USER, retryable=True)


def _startup_limits(
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    timeouts: Timeouts,
    waits_for: str,
) -> Iterator[_Limit]:
    """Only while STARTING or RESTARTING: in a queue the clock stands still, and starts anew at the
    resume. What is under way as its pods show has no such limit, whatever the status says."""
    restarts = state.phase is Phase.RESTARTING
    if not restarts and state.phase is not Phase.STARTING:
        return
    since = state.restarting_since if restarts else state.starting_since
    at = _after(_last_end(kind, since, pods), timeouts.startup)
    if at and not _is_under_way(kind, pods):
        words = (
            f"The {kind.kind} did not {'come back' if restarts else 'start'} within "
            f"{timeouts.startup} (Timeouts.startup). {waits_for}"
        )
        yield _Limit(at, _not_started("StartupTimeout", words))
    at = _after(state.starting_since, timeouts.operator)
    # A status may stay empty although pods run, where services could not be created.
    if at and not state.acknowledged and not pods:
        words = (
            f"Nobody took up the {kind.kind} within {timeouts.operator} (Timeouts.operator). That "
            f"is the work of {kind.operator}: see that it is installed, serves {kind.api_version} "
            "and watches this namespace. It may have refused the job, too: its log and the job's "
            "events say so."
        )
        yield _Limit(at, _not_started("OperatorTimeout", words))


def _is_under_way(kind: JobKind, pods: Sequence[PodState]) -> bool:
    """The leader runs, or what comes before the training does, or all pods there are.

    mpi-operator calls a job running only when all workers run, however long the launcher has
    trained with fewer; an operator that is down calls it nothing; a model may take hours to fetch.
    """
    present = [pod for pod in pods if pod.deleted is None]
    if any(pod.runs and _holds_the_clock(kind, pod) for pod in present):
        return True
    # MPI workers run from the first, only to wait for a launcher that may never come.
    idle = {role.field for role in kind.roles if not role.runs_command}
    return all(pod.runs for pod in present) and any(pod.role not in idle for pod in present)


def _last_end(kind: JobKind, since: datetime | None, pods: Sequence[PodState]) -> datetime | None:
    """The clock stood still while these ran, and starts anew when they end.

    No status has the time at which the data were there and the training could start.
    """
    ends = (
        end.finished
        for pod in pods
        if _holds_the_clock(kind, pod)
        for end in pod.ends
        if end.part == "main" and end.finished
    )
    return max((since, *ends)) if since else None


def _holds_the_clock(kind: JobKind, pod: PodState) -> bool:
    return pod.leads or pod.role in kind.status.before_training


def _not_started(reason: str, words: str) -> Decision:
    return Decision(Verdict.FAILED, reason, words, Fault.SYSTEM, retryable=True)


def _trouble_limits(
    state: JobState, pods: Sequence[PodState], timeouts: Timeouts
) -> Iterator[_Limit]:
    """Sorted so that of limits at one moment the one that can heal least comes first."""
    found = [
        (trouble, pod) for pod in pods for trouble in pod.troubles if _counts(state, trouble, pods)
    ]
    for trouble, pod in sorted(found, key=_by_severity):
        patience: timedelta | None = getattr(timeouts, trouble.what)
        at = _after(trouble.since or state.starting_since, patience)
        if at:
            yield _Limit(at, _trouble_decision(trouble, pod))


def _by_severity(item: tuple[Trouble, PodState]) -> tuple[object, ...]:
    trouble, pod = item
    return (SEVERITY[trouble.what], pod.replica, pod.name, trouble.container, trouble.reason)


def _counts(state: JobState, trouble: Trouble, pods: Sequence[PodState]) -> bool:
    """Whether a pod's trouble may end the job.

    QUEUED      no: the queue takes the pods away.
    STARTING    yes, whatever the container, since a pod is not up before all of its containers
                are. Also in an elastic job: no second pod makes an image name valid.
    RUNNING     yes, since all pods are needed; but a sidecar that fails beside a container that
                trains is not worth the training. In an elastic job no: it goes on with fewer pods
                while others are pending.
    RESTARTING  as RUNNING: a new pod may wait in vain, too. But a crash is what is being mended.

    A limit of restarts leaves only crash loops to the operator, since an image that cannot be
    pulled never restarts. Nor are init containers left to it: training-operator counts only in
    pods that are Running, and an MPIJob's launcher is counted, but not its workers.
    """
    if state.phase is Phase.QUEUED:
        return False
    if trouble.what == "crash_loop":
        if trouble.part != "init" and _is_left_to_operator(state):
            return False
        if state.self_healing and state.phase is not Phase.RESTARTING:
            return _all_crash(pods)
    if state.phase is Phase.STARTING:
        return True
    return not state.self_healing and trouble.part != "sidecar"


def _is_left_to_operator(state: JobState) -> bool:
    return state.restarts_counted or state.phase is Phase.RESTARTING


def _all_crash(pods: Sequence[PodState]) -> bool:
    """As long as one pod of an elastic job trains, the others may come back; when all of them
    crash, and nobody counts, this would go on for ever."""
    return all(_crashes(pod) for pod in pods if pod.deleted is None)


def _crashes(pod: PodState) -> bool:
    return any(trouble.what == "crash_loop" for trouble in pod.troubles)


def _trouble_decision(trouble: Trouble, pod: PodState) -> Decision:
    rule = TROUBLES[trouble.what]
    reason = one_line(trouble.reason or trouble.what, _LONGEST_REASON)
    words = trouble_words(trouble, pod)
    return Decision(Verdict.FAILED, reason, words, rule.fault, rule.retryable)


class _Said(NamedTuple):
    """What a Failed condition gives away by itself."""

    words: re.Pattern[str]
    verdict: Verdict
    reason: str
    fault: Fault
    advice: str
    retryable: bool = True
    yields: bool = False
    """A real failure of a pod tells more."""


# All failures of training-operator have one reason, so that its messages have to be known.
_CONDITIONS: tuple[_Said, ...] = (
    _Said(
        re.compile(r"DeadlineExceeded|active longer than specified deadline"),
        Verdict.TIMED_OUT,
        "DeadlineExceeded",
        Fault.USER,
        "Raise active_deadline, or make the training shorter.",
    ),
    _Said(
        re.compile(r"TrainingRuntimeNotSupported"),
        Verdict.FAILED,
        "TrainingRuntimeNotSupported",
        Fault.USER,
        "Name a runtime that this cluster has.",
        retryable=False,
    ),
    _Said(
        re.compile(r"Evicted|Preempt|NodeLost|Shutdown"),
        Verdict.FAILED,
        "Evicted",
        Fault.SYSTEM,
        "Nothing in the job has to change.",
    ),
    _Said(
        re.compile(r"backoff limit|BackoffLimitExceeded|ReachedMaxRestarts"),
        Verdict.FAILED,
        "BackoffLimitExceeded",
        Fault.USER,
        "Look at the logs of the pods.",
        yields=True,
    ),
)


def _judge_failure(kind: JobKind, state: JobState, pods: Sequence[PodState]) -> Decision:
    """The condition where it gives the cause away, else the pods."""
    said = sentence(one_line(state.message or state.reason) or "nothing is said of the cause")
    told = f"{state.reason}: {state.message}"
    row = next((row for row in _CONDITIONS if row.words.search(told)), None)
    cause = find_cause(pods)
    explained = cause is not None and cause.weight < Weight.CONSEQUENCE
    if row and not (row.yields and explained):
        words = f"The {kind.kind} failed: {said} {row.advice}"
        return Decision(row.verdict, row.reason, words, row.fault, row.retryable)
    if cause is None:
        words = f"The {kind.kind} failed: {said} Look at the logs of the pods."
        reason = one_line(state.reason or "Failed", _LONGEST_REASON)
        return Decision(Verdict.FAILED, reason, words, Fault.USER, retryable=True)
    where = place(cause.replica, cause.pod, cause.container)
    first = "ended first" if explained else "was ended from outside, and nothing else is known"
    words = f"The {kind.kind} failed: {where} {first}, with {cause.what}. {cause.advice}"
    # The kubelet's verdict on a deadline that the pod was given beside the job's.
    late = cause.reason == "DeadlineExceeded"
    verdict = Verdict.TIMED_OUT if late else Verdict.FAILED
    reason = one_line(cause.reason, _LONGEST_REASON)
    return Decision(verdict, reason, words, cause.fault, retryable=True)


def _success_words(kind: JobKind, pods: Sequence[PodState]) -> str:
    killed = [item.replica for item in find_failures(pods) if item.reason == "OOMKilled"]
    if not killed:
        return f"The {kind.kind} succeeded."
    return (
        f"The {kind.kind} succeeded, although {listed(killed)} ran out of memory on the way: "
        "see that the result is whole."
    )
