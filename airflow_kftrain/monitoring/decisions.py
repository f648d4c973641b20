"""Decides what to do about a job now: (state, pods, timeouts, clock) -> Decision. Pure.

The state counts before the clock: a final state wins over every limit that has expired. Of several
expired limits the earliest one decides. So a caller that looks late, for example after a restart of
the triggerer, decides like one that looked in time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import NamedTuple

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.monitoring.failures import Failure, Fault, Weight, find_cause, find_failures
from airflow_kftrain.monitoring.pods import PodState, Trouble
from airflow_kftrain.monitoring.queues import QueueState, Stage, deactivated_words
from airflow_kftrain.monitoring.text import listed, moment, one_line, sentence
from airflow_kftrain.monitoring.waiting import (
    TROUBLES,
    by_severity,
    trouble_words,
    waiting_words,
    worst_trouble,
)
from airflow_kftrain.specs.timeouts import Timeouts

DEADLINE_GRACE = timedelta(seconds=60)
"""How long the operator has to end a job whose own active deadline has expired. Its verdict says
more than ours. But training-operator checks the deadline only when something else happens, which
may be never."""

_LONGEST_REASON = 63


class Verdict(str, Enum):
    WAIT = "wait"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    """A deadline of the author has expired: the execution timeout, or the job's active deadline."""


class Decision(NamedTuple):
    """What to do about a job, and why."""

    verdict: Verdict
    reason: str
    """One word: Kubernetes' own if there is one."""
    words: str
    """For the author. While the job waits, they say for what, and stay the same as long as that
    does."""
    fault: Fault | None = None
    """Where the cause lies; None if that is not known, or if nothing has failed."""
    retryable: bool = False
    until: datetime | None = None
    """While waiting: when the decision would change although the job does not; None: never."""


def decide(
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    timeouts: Timeouts,
    now: datetime,
    deadline: datetime | None = None,
    queue: QueueState | None = None,
) -> Decision:
    """Wait or end. `deadline` is the author's execution timeout; it also counts time in a queue.
    `queue` is what Kueue says, if that is known."""
    decision = judge(kind, state, pods, queue)
    if state.phase.is_final or decision.verdict is not Verdict.WAIT:
        return decision
    limits = sorted(
        (
            *_deadlines(kind, state, pods, deadline, decision.words),
            *_queue_limits(kind, state, timeouts, decision.words),
            *_trouble_limits(state, pods, timeouts),
            *_startup_limits(kind, state, pods, timeouts),
        ),
        key=lambda limit: limit.at,
    )
    if not limits:
        return decision
    if limits[0].at <= now:
        return limits[0].decision
    return decision._replace(until=limits[0].at)


def judge(
    kind: JobKind, state: JobState, pods: Sequence[PodState], queue: QueueState | None = None
) -> Decision:
    """What the resource itself and its queue say, without any clock. The pods only explain a
    failure."""
    if state.phase is Phase.SUCCEEDED:
        return Decision(Verdict.SUCCEEDED, "Succeeded", _success_words(kind, pods))
    if state.phase is Phase.GONE:
        words = (
            f"The {kind.kind} no longer exists, so its result is unknown: it was deleted by hand, "
            "by its TTL, or together with its namespace."
        )
        return Decision(Verdict.FAILED, "Gone", words, Fault.SYSTEM, retryable=True)
    if state.phase is Phase.FAILED:
        return _judge_failure(kind, state, pods)
    if state.phase is Phase.QUEUED and queue and queue.stage is Stage.DEACTIVATED:
        late = "MaximumExecutionTime" in queue.reason
        verdict = Verdict.TIMED_OUT if late else Verdict.FAILED
        reason = one_line(queue.reason, _LONGEST_REASON)
        return Decision(verdict, reason, deactivated_words(kind, state, queue), retryable=True)
    return Decision(Verdict.WAIT, state.phase.value, waiting_words(kind, state, pods, queue))


class _Limit(NamedTuple):
    """The decision at a certain time, if nothing changes before."""

    at: datetime
    decision: Decision


_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


def _after(since: datetime | None, patience: timedelta | None) -> datetime | None:
    """When the limit expires; None: never, or the start is unknown."""
    if patience is None:
        return None
    if since is None:
        return None if patience else _LONG_AGO
    try:
        return since + patience
    except OverflowError:
        return None


def _deadlines(
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    deadline: datetime | None,
    waits_for: str,
) -> Iterator[_Limit]:
    if deadline and state.phase is Phase.QUEUED:
        words = (
            f"The {kind.kind} was queued at {moment(deadline)}, when the task's execution timeout "
            f"was up. {waits_for}"
        )
        late = Decision(Verdict.TIMED_OUT, "ExecutionTimeout", words, retryable=True)
        yield _Limit(deadline, late)
        return
    seen = (kind, state, pods)
    if deadline:
        when = f"at {moment(deadline)}, when the task's execution timeout was up"
        late = _timed_out("ExecutionTimeout", *seen, when, "execution_timeout")
        yield _Limit(deadline, late)
    own = _after(state.deadline, DEADLINE_GRACE)
    if own and state.deadline:
        when = f"at {moment(state.deadline)}, when its active deadline was up"
        yield _Limit(own, _timed_out("DeadlineExceeded", *seen, when, "active_deadline"))


def _queue_limits(
    kind: JobKind, state: JobState, timeouts: Timeouts, waits_for: str
) -> Iterator[_Limit]:
    at = _after(state.queued_since, timeouts.queue)
    if at and state.phase is Phase.QUEUED:
        words = (
            f"The {kind.kind} did not leave its queue within {timeouts.queue} (Timeouts.queue). "
            f"{waits_for}"
        )
        yield _Limit(at, Decision(Verdict.FAILED, "QueueTimeout", words, retryable=True))


def _timed_out(
    reason: str, kind: JobKind, state: JobState, pods: Sequence[PodState], when: str, field: str
) -> Decision:
    if _waits(kind, state, pods):
        late = f"The {kind.kind} had not {_starts(state)}ed {when}."
        return _not_started(Verdict.TIMED_OUT, reason, kind, state, pods, late)
    words = f"The {kind.kind} was unfinished {when}. Raise {field}, or make the training shorter."
    return Decision(Verdict.TIMED_OUT, reason, words, retryable=True)


def _waits(kind: JobKind, state: JobState, pods: Sequence[PodState]) -> bool:
    """Whether the job certainly does not train yet."""
    starts = state.phase in (Phase.STARTING, Phase.RESTARTING) and state.starting_since is not None
    return starts and not _is_under_way(kind, pods)


def _starts(state: JobState) -> str:
    return "restart" if state.phase is Phase.RESTARTING else "start"


def _not_started(
    verdict: Verdict,
    reason: str,
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    late: str,
) -> Decision:
    """The cause first, if a pod shows one. If none does, nobody is blamed."""
    worst = worst_trouble(pods)
    if worst is None:
        words = f"{late} {waiting_words(kind, state, pods)}"
        return Decision(verdict, reason, words, retryable=True)
    words = f"{trouble_words(*worst)} {late}"
    return Decision(verdict, reason, words, TROUBLES[worst[0].what].fault, retryable=True)


def _startup_limits(
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    timeouts: Timeouts,
) -> Iterator[_Limit]:
    """Only while STARTING or RESTARTING: in a queue the clock stops, and it starts again at the
    resume. A job whose pods show that it runs has no such limit, whatever its status says."""
    restarts = state.phase is Phase.RESTARTING
    if not restarts and state.phase is not Phase.STARTING:
        return
    since = state.restarting_since if restarts else state.starting_since
    at = _after(_last_end(kind, since, pods), timeouts.startup)
    if at and not _is_under_way(kind, pods):
        late = (
            f"The {kind.kind} did not {_starts(state)} within {timeouts.startup} "
            "(Timeouts.startup)."
        )
        decision = _not_started(Verdict.FAILED, "StartupTimeout", kind, state, pods, late)
        yield _Limit(at, decision)
    at = _after(state.starting_since, timeouts.operator)
    # If services cannot be created, the status stays empty although pods run.
    if at and not state.acknowledged and not pods:
        words = (
            f"No operator processed the {kind.kind} within {timeouts.operator} "
            f"(Timeouts.operator). Check that {kind.operator} is installed, serves "
            f"{kind.api_version} and watches this namespace. It may also have rejected the job: "
            "see its log and the job's events."
        )
        yield _Limit(at, Decision(Verdict.FAILED, "OperatorTimeout", words, retryable=True))


def _is_under_way(kind: JobKind, pods: Sequence[PodState]) -> bool:
    """Whether the leader runs, or a step before the training, or all pods that exist.

    mpi-operator says that a job runs only when all workers run, even if the launcher has long been
    training with fewer. An operator that is down says nothing. A model may take hours to download.
    """
    present = [pod for pod in pods if pod.deleted is None]
    if any(pod.runs and _holds_the_clock(kind, pod) for pod in present):
        return True
    # MPI workers run from the beginning, but only wait for a launcher, which may never come.
    idle = {role.field for role in kind.roles if not role.runs_command}
    return all(pod.runs for pod in present) and any(pod.role not in idle for pod in present)


def _last_end(kind: JobKind, since: datetime | None, pods: Sequence[PodState]) -> datetime | None:
    """The clock stops while these pods run, and starts again when they end.

    No status says when the data was complete and the training could start.
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


def _trouble_limits(
    state: JobState, pods: Sequence[PodState], timeouts: Timeouts
) -> Iterator[_Limit]:
    """Sorted so that among simultaneous limits the most permanent trouble comes first."""
    found = [
        (trouble, pod) for pod in pods for trouble in pod.troubles if _counts(state, trouble, pods)
    ]
    for trouble, pod in sorted(found, key=by_severity):
        patience: timedelta | None = getattr(timeouts, trouble.what)
        at = _after(trouble.since or state.starting_since, patience)
        if at:
            yield _Limit(at, _trouble_decision(trouble, pod, pods))


def _counts(state: JobState, trouble: Trouble, pods: Sequence[PodState]) -> bool:
    """Whether a trouble of a pod may end the job.

    QUEUED      no: the queue deletes the pods.
    STARTING    yes, in any container, since a pod has started only when all its containers have.
                Also in an elastic job: a second pod does not make an image name valid.
    RUNNING     yes, since all pods are needed. But a sidecar that fails beside a main container
                that trains does not end the training. In an elastic job no: it continues with
                fewer pods while others are pending.
    RESTARTING  as RUNNING: a new pod may wait in vain, too. But a crash does not count: the restart
                is the answer to it.

    With a limit on restarts, only crash loops are left to the operator: an image that cannot be
    pulled never restarts. Init containers are not left to it: training-operator counts only
    restarts in pods that are Running, and of an MPIJob only those of the launcher.
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
    """While one pod of an elastic job trains, the others may come back. If all of them crash, and
    nobody counts, they would crash for ever."""
    return all(_crashes(pod) for pod in pods if pod.deleted is None)


def _crashes(pod: PodState) -> bool:
    return any(trouble.what == "crash_loop" for trouble in pod.troubles)


def _trouble_decision(trouble: Trouble, pod: PodState, pods: Sequence[PodState]) -> Decision:
    rule = TROUBLES[trouble.what]
    reason = one_line(trouble.reason or trouble.what, _LONGEST_REASON)
    cause = find_cause(pods) if trouble.what == "crash_loop" else None
    if cause is None or cause.raised is None:
        words = trouble_words(trouble, pod)
        return Decision(Verdict.FAILED, reason, words, rule.fault, rule.retryable)
    # What a function raised says more than that its pod, or another one after it, keeps crashing.
    words = f"{one_line(cause.replica)} {rule.ended}, last with {cause.what}. {cause.advice}"
    return Decision(Verdict.FAILED, reason, words, cause.fault, retryable=not cause.fatal)


class _Said(NamedTuple):
    """What the message of a Failed condition means."""

    words: re.Pattern[str]
    verdict: Verdict
    reason: str
    fault: Fault | None
    advice: str
    retryable: bool = True
    yields: bool = False
    """Whether a real failure of a pod says more than this condition."""


# training-operator gives all failures the same reason, so the messages have to be recognised.
_CONDITIONS: tuple[_Said, ...] = (
    _Said(
        re.compile(r"DeadlineExceeded|active longer than specified deadline"),
        Verdict.TIMED_OUT,
        "DeadlineExceeded",
        None,
        "Raise active_deadline, or make the training shorter.",
    ),
    _Said(
        re.compile(r"TrainingRuntimeNotSupported"),
        Verdict.FAILED,
        "TrainingRuntimeNotSupported",
        Fault.USER,
        "Use a runtime that this cluster has.",
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


_FIRST_FAILED_JOB = re.compile(r"first failed job: ([^\s)]+)")


def _judge_failure(kind: JobKind, state: JobState, pods: Sequence[PodState]) -> Decision:
    """The condition if it names the cause, else the pods."""
    said = sentence(one_line(state.message or state.reason) or "the cause is unknown")
    told = f"{state.reason}: {state.message}"
    row = next((row for row in _CONDITIONS if row.words.search(told)), None)
    cause = find_cause(pods)
    explained = cause is not None and cause.weight < Weight.CONSEQUENCE
    if row and not (row.yields and explained):
        words = f"The {kind.kind} failed: {said} {row.advice}"
        return Decision(row.verdict, row.reason, words, row.fault, row.retryable)
    if cause is None or (not explained and _is_about_another(state, cause)):
        words = f"The {kind.kind} failed: {said} Look at the logs of the pods."
        reason = one_line(state.reason or "Failed", _LONGEST_REASON)
        return Decision(Verdict.FAILED, reason, words, Fault.USER, retryable=True)
    where = f"{cause.what} in {one_line(cause.replica)}"
    if not explained:
        where += ", which was ended from outside, and nothing else is known"
    elif row and state.backoff_limit != 0:
        where += f", and {_limit_of_restarts(state)} was reached"
    words = f"The {kind.kind} failed: {where}. {cause.advice}"
    # The kubelet says this if the pod has a deadline of its own in addition to the job's.
    late = cause.reason == "DeadlineExceeded"
    verdict = Verdict.TIMED_OUT if late else Verdict.FAILED
    fault = None if late else cause.fault
    reason = one_line(cause.reason, _LONGEST_REASON)
    return Decision(verdict, reason, words, fault, retryable=not cause.fatal)


def _is_about_another(state: JobState, cause: Failure) -> bool:
    """Whether the condition names a Job that has failed, and this pod is not of that Job: it was
    ended with it. The pods of the other Job may be deleted before anybody reads them."""
    first = _FIRST_FAILED_JOB.search(state.message)
    return first is not None and not cause.pod.startswith(f"{first[1]}-")


def _limit_of_restarts(state: JobState) -> str:
    """The limit of a TrainJob is that of its runtime, which the job does not show."""
    if state.backoff_limit is None:
        return "the limit of restarts"
    return f"backoff_limit={state.backoff_limit}"


def _success_words(kind: JobKind, pods: Sequence[PodState]) -> str:
    killed = [item.replica for item in find_failures(pods) if item.reason == "OOMKilled"]
    if not killed:
        return f"The {kind.kind} succeeded."
    return (
        f"The {kind.kind} succeeded, although {listed(killed)} ran out of memory before: "
        "check that the result is complete."
    )
