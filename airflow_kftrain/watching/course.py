"""What a watch knows about its job, what it has logged, and what to do about the job now. Pure:
takes the state, the pods and the time, returns log lines and decisions. watcher.py decides when to
look."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.decisions import Decision, Verdict, decide
from airflow_kftrain.monitoring.failures import Fault, Weight, find_cause
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.queues import QueueState
from airflow_kftrain.monitoring.text import duration, one_line
from airflow_kftrain.specs.timeouts import Timeouts

FAIL_FAST_GRACE = timedelta(seconds=5)
"""How long the operator may act first on a failed pod: its verdict says more, and then the job ends
by itself."""
COUNTS_PAUSE = timedelta(seconds=10)
"""Minimum time between two log lines that differ only in counts: replicas start and end one by
one."""

SILENT = "Silent"
"""The reason of a job whose leader has written nothing for too long."""

_NUMBER = re.compile("[0-9]+")
_UNREAD = JobState(Phase.STARTING, acknowledged=True)
_NO_LIMITS = Timeouts(*(None for _ in Timeouts._fields))


class Course:
    """Decides about one job, and knows which lines have been logged."""

    __slots__ = ("_failing_since", "_told_at", "_told_state", "_told_words", "kind", "order")

    def __init__(self, order: WatchOrder, kind: JobKind) -> None:
        self.order = order
        self.kind = kind
        self._failing_since: datetime | None = None
        self._told_at: datetime | None = None
        self._told_state: tuple[object, ...] = ()
        self._told_words = ""

    def decide(
        self,
        state: JobState | None,
        pods: Sequence[PodState],
        now: datetime,
        queue: QueueState | None = None,
    ) -> Decision:
        """Waits or ends. If the state was never read, only the deadline ends the job."""
        order = self.order
        if state is None:
            decision = decide(self.kind, _UNREAD, (), _NO_LIMITS, now, order.deadline)
            if decision.verdict is Verdict.WAIT or self._told_words != self._missing:
                return decision
            words = f"{self.title} had not appeared when the task's execution timeout was up."
            return decision._replace(words=words)
        decision = decide(self.kind, state, pods, order.timeouts, now, order.deadline, queue)
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
        words = (
            f"The {self.kind.kind} is ended: {cause.what} in {one_line(cause.replica)}, and the "
            "task does not wait for other replicas after a failure (Lifecycle.fail_fast). "
            f"{cause.advice}"
        )
        return Decision(
            Verdict.FAILED, one_line(cause.reason, 63), words, cause.fault, retryable=True
        )

    def silent(self) -> Decision:
        """Ends a running job whose leader has written nothing for too long."""
        limit = self.order.timeouts.silence or timedelta()
        words = (
            f"The {self.kind.kind} runs, but its leader has written nothing to its log for "
            f"{duration(limit.total_seconds())} (Timeouts.silence), so it probably hangs."
        )
        return Decision(Verdict.FAILED, SILENT, words, None, retryable=True)

    def state_lines(self, state: JobState, now: datetime) -> Iterator[str]:
        """A log line if the state has changed: at once if the phase has, now and then if only
        counts have."""
        phase = (state.phase, state.reason)
        news = (*phase, state.replicas, state.progress)
        if news == self._told_state:
            return
        if phase == self._told_state[:2] and now < self.counts_due(now):
            return
        self._told_state, self._told_at = news, now
        yield f"{self.title}: {_state_words(self.kind, state)}"

    def counts_due(self, now: datetime) -> datetime:
        """When changed counts may be logged next."""
        return self._told_at + COUNTS_PAUSE if self._told_at else now

    def has_unlogged(self, state: JobState) -> bool:
        return self._told_state != (state.phase, state.reason, state.replicas, state.progress)

    def waiting_lines(self, decision: Decision, *, quiet: bool) -> Iterator[str]:
        """What the job waits for, if that has changed. `quiet`: the job runs and nothing blocks
        it."""
        words = "" if quiet else decision.words
        if words == self._told_words:
            return
        self._told_words = words
        if words:
            yield words

    def queue_lines(self, decision: Decision) -> Iterator[str]:
        """What the job waits for in its queue, if that has changed. How much is missing changes
        with each job that comes or goes, so numbers alone are no news."""
        before, now = (_NUMBER.sub("#", words) for words in (self._told_words, decision.words))
        if decision.verdict is Verdict.WAIT and now != before:
            yield from self.waiting_lines(decision, quiet=False)

    def missing_lines(self) -> Iterator[str]:
        """Says once that the job does not exist yet."""
        if self._told_words != self._missing:
            self._told_words = self._missing
            yield self._missing

    @property
    def _missing(self) -> str:
        return missing_words(self.title)

    @property
    def title(self) -> str:
        job = self.order.job
        return f"{job.kind} {job.namespace}/{job.name}"


def missing_words(title: str) -> str:
    return f"{title} has not appeared yet; waiting for it."


def unreachable_for_too_long(title: str, problem: str) -> Decision:
    words = f"{title} could not be watched for too long: {problem}"
    return Decision(Verdict.FAILED, "Unreachable", words, Fault.SYSTEM, retryable=True)


def _state_words(kind: JobKind, state: JobState) -> str:
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
    words = state.phase.value
    # PyTorchJobSucceeded says nothing more than Succeeded.
    if state.reason not in ("", words, f"{kind.kind}{words}"):
        words += f", {one_line(state.reason, 100)}"
    if counts:
        words += f" ({'; '.join(counts)})"
    if state.progress is not None and state.progress.percent is not None:
        words += f", {state.progress.percent} % done"
    return words
