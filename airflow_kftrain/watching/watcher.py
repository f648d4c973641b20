"""Watches one job to its end, for a trigger, for a worker that waits, for a sensor: one engine.

Look at the state -> tell what is news -> decide -> wait for a change or for the next limit. Nothing
is polled: the shared feed wakes us. A verdict of ours on a living job is checked against the
cluster before it counts.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from math import inf

from airflow_kftrain.errors import (
    BadConnection,
    ClusterError,
    Forbidden,
    InvalidSpec,
    KfTrainError,
    NotServed,
    Refused,
    Unreachable,
)
from airflow_kftrain.job_state import GONE, JobState, Phase, read_mapping, read_state
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Decision, Verdict, judge
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.report import write_report
from airflow_kftrain.monitoring.text import one_line
from airflow_kftrain.watching.course import Course, unreachable_for_too_long
from airflow_kftrain.watching.evidence import Evidence
from airflow_kftrain.watching.feeds import subscribed
from airflow_kftrain.watching.logs import Tell, shown
from airflow_kftrain.watching.subscription import Subscription
from airflow_kftrain.watching.survey import PodsKnown, Survey

LONGEST_FORBIDDEN = 120.0
"""Seconds for which a job may not be read before that ends the wait, and the job: API servers that
start forbid everything until they know their rules, people who change rules err, and a store of
secrets may be away. But a triggerer that never had the connection should not be waited for."""
LONGEST_AWAY = 3600.0
"""Seconds after which nobody waits any longer for a cluster that does not answer."""

_ASK_AGAIN = 10.0
_LONGEST_WAIT = 3600.0
_CHECK_PATIENCE = 10.0


async def watch_job(
    order: WatchOrder,
    *,
    tell: Tell,
    pods_known: PodsKnown | None = None,
    follow_logs: bool = False,
    sweeps: bool = False,
) -> Outcome:
    """How the job ended. Raises nothing but CancelledError.

    `tell` writes to the task's log; `follow_logs` shows there what the pods write, too. `sweeps`:
    this process looks after jobs that nobody waits for, as triggerers do.
    """
    try:
        if not order.job.name or not order.job.namespace:
            raise InvalidSpec("", "the order to watch a job cannot be read: it names no job")
        course = Course(order, order.kind)
        with subscribed(order, sweeps=sweeps) as subscription:
            watch = _Watch(course, subscription, tell, pods_known)
            if order.show_logs == "off":
                return await watch.outcome(await watch.decision())
            async with shown(subscription.feed.hub, order, tell, stream=follow_logs):
                decision = await watch.decision()
            return await watch.outcome(decision)
    except KfTrainError as error:
        return _failed(error)
    except Exception as error:  # noqa: BLE001  # whatever it is, the task must not hang
        text = one_line(f"{type(error).__name__}: {error}")
        return _failed(ClusterError("watch the job", f"{text}, a fault of airflow-kftrain"))


def _failed(error: KfTrainError) -> Outcome:
    words = str(error)
    return Outcome(
        Verdict.FAILED,
        type(error).__name__,
        words,
        words,
        fault=Fault.USER if isinstance(error, InvalidSpec) else Fault.SYSTEM,
        retryable=error.retryable,
    )


class _Watch:
    """One watch, from the first look to the end."""

    __slots__ = (
        "_away_told",
        "_course",
        "_distrust_until",
        "_look_at",
        "_loop",
        "_silence",
        "_silent_since",
        "_state",
        "_subscription",
        "_survey",
        "_tell",
        "_told_errors",
    )

    def __init__(
        self,
        course: Course,
        subscription: Subscription,
        tell: Tell,
        pods_known: PodsKnown | None,
    ) -> None:
        self._course = course
        self._subscription = subscription
        self._tell = tell
        self._survey = Survey(course, subscription, tell, pods_known)
        self._loop = asyncio.get_running_loop()
        self._state: JobState | None = None
        self._look_at = 0.0
        """When to ask for the job by its name, if the feed does not know it."""
        self._distrust_until = 0.0
        """Limits that seem to be up were checked, and are not."""
        self._silent_since: float | None = None
        self._silence = ""
        """Why nobody answers."""
        self._away_told = False
        self._told_errors: tuple[str, ...] = ()

    async def decision(self) -> Decision:
        """How it ends."""
        while True:
            await self._look()
            self._tell_news()
            await self._survey.look(self._state)
            decision = await self._decide()
            if decision.verdict is not Verdict.WAIT:
                return decision
            await self._subscription.wait(self._patience(decision))

    # ----- the state

    async def _look(self) -> None:
        """The feed knows the state; where it does not, the cluster is asked, once."""
        found = self._subscription.state
        if found is None and self._may_ask and self._loop.time() >= self._look_at:
            self._look_at = self._loop.time() + self._course.order.poll_interval
            found = await self._ask_again()
        if found is not None:
            self._see(found)

    @property
    def _is_away(self) -> bool:
        return self._subscription.feed.is_away

    @property
    def _may_ask(self) -> bool:
        """A feed that has listed all jobs has no more to say, nor has one that failed for good."""
        stream = self._subscription.feed.jobs_stream
        return not self._is_away and (stream.synced or stream.problem is not None)

    @property
    def _given_up_at(self) -> float:
        """When nobody has answered for too long."""
        problem = self._subscription.feed.jobs_stream.problem
        since = problem.since if problem and self._is_away else self._silent_since
        return inf if since is None else since + LONGEST_AWAY

    async def _ask_again(self) -> JobState | None:
        """As `_ask`; but a right that was there and is taken away may be given back, and the job
        goes on meanwhile."""
        try:
            return await self._ask()
        except ClusterError as error:
            if self._state is None:
                raise
            self._silence = str(error)
            self._silent_since = self._silent_since or self._loop.time()
            return None

    async def _ask(self) -> JobState | None:
        """Raises what no waiting heals."""
        order = self._course.order
        hub = self._subscription.feed.hub
        try:
            async with hub.turn:
                resource = await hub.hook.get(
                    self._course.kind, order.job.namespace, order.job.name
                )
        except KfTrainError as error:
            now = self._loop.time()
            self._silent_since = self._silent_since or now
            if not self._may_pass(error, now - self._silent_since):
                raise
            self._look_at, self._silence = now + _ASK_AGAIN, str(error)
            return None
        self._silent_since = None
        uid = read_mapping(read_mapping(resource).get("metadata")).get("uid")
        if resource is None or order.job.uid not in ("", uid):
            return GONE if order.job.uid else None
        return read_state(self._course.kind, resource)

    def _may_pass(self, error: KfTrainError, seconds: float) -> bool:
        """What was possible when the job was made may be so again: a store of secrets that is away
        for a while is no reason to give up a training."""
        passing = (BadConnection, NotServed) if self._course.order.job.uid else ()
        if isinstance(error, (Forbidden, Refused, *passing)):
            return seconds < LONGEST_FORBIDDEN
        return error.retryable

    def _see(self, found: JobState) -> None:
        before = self._state
        self._state = found.after(before)
        self._survey.plan(before, self._state, _now())

    # ----- what is told

    def _tell_news(self) -> None:
        self._tell_of_the_cluster()
        if self._state is None:
            return
        for line in self._course.state_lines(self._state, _now()):
            self._tell(line)
        if self._state.phase is Phase.QUEUED:
            decision = judge(self._course.kind, self._state, ())
            for line in self._course.waiting_lines(decision, quiet=False):
                self._tell(line)

    def _tell_of_the_cluster(self) -> None:
        """Once each: what it forbids, that it is away, that it is back."""
        feed = self._subscription.feed
        every = f"Until then the job is looked at every {feed.poll_seconds():.0f} s."
        self._tell_once(feed.jobs_stream.shut, every)
        self._tell_once(feed.pods_stream.shut, "Until then troubles of its pods are seen late.")
        problem = feed.jobs_stream.problem
        if problem is not None and not problem.is_final:
            self._silence = str(problem.error)
            if not self._away_told:
                self._away_told = True
                self._tell(f"{problem.error} The job may well go on; waiting for the cluster.")
        elif self._away_told:
            self._away_told = False
            self._tell("The cluster answers again.")

    def _tell_once(self, error: KfTrainError | None, then: str) -> None:
        if error is not None and str(error) not in self._told_errors:
            self._told_errors = (*self._told_errors, str(error))
            self._tell(f"{error} {then}")

    # ----- decisions

    async def _decide(self) -> Decision:
        state, now = self._state, _now()
        decision = self._course.decide(state, self._known_pods(), now)
        if state is not None and state.phase.is_final:
            return decision
        if decision.verdict is not Verdict.WAIT:
            if self._loop.time() < self._distrust_until:
                return _wait(decision)
            return await self._checked(decision)
        if self._loop.time() >= self._given_up_at:
            return unreachable_for_too_long(self._course.title, self._silence)
        return decision

    def _known_pods(self) -> list[PodState]:
        """Those in trouble; what the feed says of one is newer."""
        pods = {pod.name: pod for pod in (*self._survey.troubled, *self._subscription.pods)}
        return list(pods.values())

    async def _checked(self, decision: Decision) -> Decision:
        """A verdict of ours ends a living job, so the cluster is asked whether it is true: the feed
        knows only some of the pods, and may lag behind. The author's deadline holds all the same.
        """
        order = self._course.order
        is_late = order.deadline is not None and _now() >= order.deadline
        if is_late and self._is_away:
            return decision
        try:
            pods = await asyncio.wait_for(self._ask_for_all(), _CHECK_PATIENCE)
        except (ClusterError, asyncio.TimeoutError) as error:
            if is_late:
                return decision
            if isinstance(error, ClusterError) and not error.retryable:
                pods = self._subscription.pods
            else:
                self._distrust(_ASK_AGAIN)
                return _wait(decision)
        checked = self._course.decide(self._state, pods, _now())
        if checked.verdict is Verdict.WAIT:
            self._distrust(order.poll_interval)
        return checked

    async def _ask_for_all(self) -> list[PodState]:
        found = await self._ask()
        if found is None:
            raise Unreachable("check the state of the job", "nobody answers")
        self._see(found)
        return await self._survey.all_pods()

    def _distrust(self, seconds: float) -> None:
        self._distrust_until = self._loop.time() + seconds

    # ----- waiting, and the end

    def _patience(self, decision: Decision) -> float:
        """Seconds until something has to be done although nothing changes."""
        now, loop_now = _now(), self._loop.time()
        due: list[float] = []
        if decision.until is not None:
            limit = (decision.until - now).total_seconds()
            due.append(max(limit, self._distrust_until - loop_now))
        if self._state is not None and self._course.has_untold(self._state):
            due.append((self._course.counts_due(now) - now).total_seconds())
        if self._survey.due is not None:
            due.append(self._survey.due - loop_now)
        if self._subscription.state is None and self._may_ask:
            due.append(self._look_at - loop_now)
        due.append(self._given_up_at - loop_now)
        # Never for ever: a clock may be set, and a machine may sleep.
        return min(max(min(due), 0.1), _LONGEST_WAIT)

    async def outcome(self, decision: Decision) -> Outcome:
        state = self._state or JobState(Phase.STARTING)
        evidence = Evidence(self._subscription)
        await evidence.gather(decision.verdict)
        if state.phase.is_final:
            decision = judge(self._course.kind, state, evidence.pods)
        known = await self._survey.tell_pods(evidence.pods)
        succeeded = decision.verdict is Verdict.SUCCEEDED
        return Outcome(
            verdict=decision.verdict,
            reason=decision.reason,
            words=decision.words,
            report=write_report(
                self._course.kind,
                state,
                evidence.pods,
                decision=decision,
                logs=evidence.logs,
                events=evidence.events,
            ),
            phase=self._state.phase if self._state else None,
            fault=decision.fault,
            retryable=decision.retryable,
            exit_code=None if succeeded else evidence.exit_code(),
            result=evidence.result(state) if succeeded else "",
            tail=evidence.tail,
            pods=known,
            finished=state.finished or _now(),
        )


def _wait(decision: Decision) -> Decision:
    """Not yet: something has to be made sure of."""
    return Decision(Verdict.WAIT, decision.reason, decision.words, until=_now())


def _now() -> datetime:
    return datetime.now(timezone.utc)
