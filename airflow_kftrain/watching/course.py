"""What one who waits has been told of a job, and what to do about the job now. Pure: the state, the
pods and the time come in, lines and decisions go out; when to look, and at what, watcher.py says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.decisions import Decision, Verdict, decide
from airflow_kftrain.monitoring.failures import Fault, Weight, find_cause
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import one_line, place
from airflow_kftrain.specs.timeouts import Timeouts

FAIL_FAST_GRACE = timedelta(seconds=5)
"""How long the operator has the first word about a pod that failed: its verdict says more, and
ends the job by itself."""
COUNTS_PAUSE = timedelta(seconds=10)
"""Between lines that tell of nothing but other counts: replicas start and end one by one."""

_UNREAD = JobState(Phase.STARTING, acknowledged=True)
_NO_LIMITS = Timeouts(*(None for _ in Timeouts._fields))


class Course:
    """Of one job, for one who waits for it."""

    __slots__ = ("_failing_since", "_told_at", "_told_state", "_told_words", "kind", "order")

    def __init__(self, order: WatchOrder, kind: JobKind) -> None:
        self.order = order
        self.kind = kind
        self._failing_since: datetime | None = None
        self._told_at: datetime | None = None
        self._told_state: tuple[object, ...] = ()
        self._told_words = ""

    def decide(self, state: JobState | None, pods: Sequence[PodState], now: datetime) -> Decision:
        """Wait or end. Nothing but the deadline ends a job whose state was never read."""
        order = self.order
        if state is None:
            return decide(self.kind, _UNREAD, (), _NO_LIMITS, now, order.deadline)
        decision = decide(self.kind, state, pods, order.timeouts, now, order.deadline)
        if order.fail_fast and decision.verdict is Verdict.WAIT:
            return self._fail_fast(decision, pods, now)
        return decision

    def _fail_fast(self, decision: Decision, pods: Sequence[PodState], now: datetime) -> Decision:
        cause = find_cause(pods)
        if cause is None or cause.weight is not Weight.REAL:
            self._failing_since = None
            return decision
        self._failing_since = self._failing_since or now
        at = self._failing_since + FAIL_FAST_GRACE
        if now < at:
            return decision._replace(until=min(at, decision.until or at))
        where = place(cause.replica, cause.pod, cause.container)
        words = (
            f"The {self.kind.kind} is ended since {where} failed, with {cause.what}, and the task "
            f"does not wait for others after a failure (Lifecycle.fail_fast). {cause.advice}"
        )
        return Decision(
            Verdict.FAILED, one_line(cause.reason, 63), words, cause.fault, retryable=True
        )

    def state_lines(self, state: JobState, now: datetime) -> Iterator[str]:
        """A line if there is news of the state: at once of the phase, of counts now and then."""
        phase = (state.phase, state.reason)
        news = (*phase, state.replicas, state.progress)
        if news == self._told_state:
            return
        if phase == self._told_state[:2] and now < self.counts_due(now):
            return
        self._told_state, self._told_at = news, now
        yield f"{self.title}: {_state_words(state)}"

    def counts_due(self, now: datetime) -> datetime:
        """When counts that have changed may be told."""
        return self._told_at + COUNTS_PAUSE if self._told_at else now

    def has_untold(self, state: JobState) -> bool:
        return self._told_state != (state.phase, state.reason, state.replicas, state.progress)

    def waiting_lines(self, decision: Decision, *, quiet: bool) -> Iterator[str]:
        """What the job waits for, if that is news. `quiet`: it runs, and nothing is in its way."""
        words = "" if quiet else decision.words
        if words == self._told_words:
            return
        self._told_words = words
        if words:
            yield words

    @property
    def title(self) -> str:
        job = self.order.job
        return f"{job.kind} {job.namespace}/{job.name}"


def unreachable_for_too_long(title: str, problem: str) -> Decision:
    words = f"Nobody could look after {title} for too long: {problem}"
    return Decision(Verdict.FAILED, "Unreachable", words, Fault.SYSTEM, retryable=True)


def _state_words(state: JobState) -> str:
    counts = [
        f"{one_line(each.role)} {', '.join(numbers)}"
        for each in state.replicas
        if (
            numbers := [
                f"{number} {word}"
                for word, number in zip(each._fields[1:], each[1:], strict=True)
                if number
            ]
        )
    ]
    parts = [state.phase.value]
    if state.reason and state.reason != state.phase.value:
        parts.append(one_line(state.reason, 100))
    words = ", ".join(parts)
    if counts:
        words += f" ({'; '.join(counts)})"
    if state.progress is not None:
        words += f", {state.progress} % done"
    return words
