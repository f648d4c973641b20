"""Watches one job to its end, for a trigger, for a worker that waits, for a sensor: one engine.

Look at the state -> tell what is news -> decide -> wait for a change or for the next limit. Nothing
is polled: the shared feed wakes us. A verdict of ours on a living job is checked against the
cluster before it counts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timezone

from airflow_kftrain.errors import ClusterError, InvalidSpec, KfTrainError, Unreachable
from airflow_kftrain.job_state import GONE, JobState, Phase, read_mapping, read_state
from airflow_kftrain.messages import Outcome, ReplicaPod, WatchOrder
from airflow_kftrain.monitoring.decisions import Decision, Verdict, judge
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.report import write_report
from airflow_kftrain.monitoring.text import one_line
from airflow_kftrain.watching.course import Course, unreachable_for_too_long
from airflow_kftrain.watching.evidence import Evidence, replica_pods
from airflow_kftrain.watching.feeds import Subscription, subscribed
from airflow_kftrain.watching.logs import TAKEN_OVER, shown

LONGEST_AWAY = 3600.0
"""Seconds after which nobody waits any longer for a cluster that does not answer."""

_SURVEY_PAUSE = 10.0
"""Between looks at all pods of a job that does not come up."""
_ASK_AGAIN = 10.0
_SPREAD = 60.0
_CHECK_PATIENCE = 10.0

Tell = Callable[[str], None]
PodsKnown = Callable[[Sequence[ReplicaPod]], Awaitable[None]]


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
        async with subscribed(order, sweeps=sweeps) as subscription:
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
        retryable=getattr(error, "retryable", False),
    )


class _Watch:
    """One watch, from the first look to the end."""

    __slots__ = (
        "_away_told",
        "_course",
        "_distrust_until",
        "_look_at",
        "_loop",
        "_own",
        "_pods_known",
        "_pods_told",
        "_state",
        "_subscription",
        "_survey_at",
        "_surveyed",
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
        self._pods_known = pods_known
        self._loop = asyncio.get_running_loop()
        self._state: JobState | None = None
        self._look_at = 0.0
        """When to ask for the job by its name, if the feed does not know it."""
        self._survey_at: float | None = None
        self._surveyed = 0.0
        self._distrust_until = 0.0
        """Limits that seem to be up were checked, and are not."""
        self._pods_told: tuple[ReplicaPod, ...] = ()
        self._away_told = False
        self._told_errors: tuple[str, ...] = ()

    async def decision(self) -> Decision:
        """How it ends."""
        while True:
            await self._look()
            self._tell_news()
            decision = await self._decide()
            if decision.verdict is not Verdict.WAIT:
                return decision
            await self._survey()
            await self._subscription.wait(self._patience(decision))

    # ----- the state

    async def _look(self) -> None:
        """The feed knows the state; where it does not, the cluster is asked, once."""
        feed = self._subscription.feed
        found = self._subscription.state
        # A feed that failed for good never knows anything.
        knows_all = feed.jobs_stream.synced or feed.jobs_stream.problem is not None
        is_due = knows_all and not self._is_away and self._loop.time() >= self._look_at
        if found is None and is_due:
            self._look_at = self._loop.time() + self._course.order.poll_interval
            found = await self._ask()
        if found is not None:
            self._see(found)

    @property
    def _is_away(self) -> bool:
        return self._subscription.feed.is_away

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
            if not getattr(error, "retryable", False):
                raise
            self._look_at = self._loop.time() + _ASK_AGAIN
            return None
        uid = read_mapping(read_mapping(resource).get("metadata")).get("uid")
        if resource is None or order.job.uid not in ("", uid):
            return GONE if order.job.uid else None
        return read_state(self._course.kind, resource)

    def _see(self, found: JobState) -> None:
        before = self._state
        self._state = found.after(before)
        if before is None or before.phase is not self._state.phase:
            self._plan_survey(_SURVEY_PAUSE)
            if self._state.phase is Phase.RUNNING and self._pods_known is not None:
                self._survey_at = self._loop.time() + self._spread(before)

    def _spread(self, before: JobState | None) -> float:
        """A triggerer that takes over many jobs does not list the pods of all at once."""
        ordered = self._course.order.ordered
        taken_over = before is None and ordered and _now() - ordered > TAKEN_OVER
        return random.uniform(0.0, _SPREAD) if taken_over else 0.0

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
        problem = self._subscription.feed.jobs_stream.problem
        if problem is not None and self._loop.time() - problem.since > LONGEST_AWAY:
            return unreachable_for_too_long(self._course.title, str(problem.error))
        return decision

    def _known_pods(self) -> list[PodState]:
        return self._subscription.pods

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
                pods = self._known_pods()
            else:
                self._distrust(_SURVEY_PAUSE)
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
        return await self._all_pods()

    async def _all_pods(self) -> list[PodState]:
        feed = self._subscription.feed
        async with feed.hub.turn:
            raw = await feed.hub.hook.pods(
                self._course.kind, feed.key.namespace, self._subscription.name
            )
        return [read_pod(self._course.kind, pod) for pod in raw]

    def _distrust(self, seconds: float) -> None:
        self._distrust_until = self._loop.time() + seconds

    # ----- the pods

    def _plan_survey(self, seconds: float) -> None:
        at = max(self._loop.time(), self._surveyed) + seconds
        if self._survey_at is None or self._survey_at > at:
            self._survey_at = at

    async def _survey(self) -> None:
        """All pods of a job: what it waits for, and who its replicas are."""
        state = self._state
        if self._subscription.pods_changed:
            self._subscription.pods_changed = False
            self._plan_survey(_SURVEY_PAUSE)
        if state is None or self._survey_at is None or self._loop.time() < self._survey_at:
            return
        self._survey_at, self._surveyed = None, self._loop.time()
        if state.phase is Phase.RUNNING and not self._needs_survey():
            return
        try:
            pods = await self._all_pods()
        except KfTrainError:
            return
        if state.phase is not Phase.QUEUED:
            decision = judge(self._course.kind, state, pods)
            all_run = state.phase is Phase.RUNNING and all(pod.runs or pod.ends for pod in pods)
            for line in self._course.waiting_lines(decision, quiet=all_run):
                self._tell(line)
        await self._tell_pods(pods)
        if state.phase is not Phase.RUNNING and self._subscription.feed.pods_stream.problem:
            self._plan_survey(self._course.order.poll_interval)

    def _needs_survey(self) -> bool:
        return bool(self._subscription.pods) or self._pods_known is not None

    async def _tell_pods(self, pods: Sequence[PodState]) -> None:
        known = replica_pods(pods)
        if self._pods_known is not None and known and known != self._pods_told:
            self._pods_told = known
            await self._pods_known(known)

    # ----- waiting, and the end

    def _patience(self, decision: Decision) -> float | None:
        """Seconds until something has to be done although nothing changes."""
        now, loop_now = _now(), self._loop.time()
        due: list[float] = []
        if decision.until is not None:
            limit = (decision.until - now).total_seconds()
            due.append(max(limit, self._distrust_until - loop_now))
        if self._state is not None and self._course.has_untold(self._state):
            due.append((self._course.counts_due(now) - now).total_seconds())
        if self._survey_at is not None:
            due.append(self._survey_at - loop_now)
        if self._subscription.state is None:
            due.append(self._look_at - loop_now)
        problem = self._subscription.feed.jobs_stream.problem
        if problem is not None:
            due.append(problem.since + LONGEST_AWAY + 1 - loop_now)
        return max(min(due), 0.1) if due else None

    async def outcome(self, decision: Decision) -> Outcome:
        state = self._state or JobState(Phase.STARTING)
        evidence = Evidence(self._subscription)
        await evidence.gather(decision.verdict)
        if state.phase.is_final:
            decision = judge(self._course.kind, state, evidence.pods)
        known = replica_pods(evidence.pods)
        if self._pods_known is not None and known:
            await self._pods_known(known)
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
