"""Watches one job until it ends. Triggers, waiting workers and sensors all use it.

Read the state -> log what has changed -> decide -> wait for a change or for the next limit. Nothing
is polled: the shared feed wakes us. Before a decision of ours ends a job, it is checked against the
cluster.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from math import inf

from airflow_kftrain import stats
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
from airflow_kftrain.job_state import GONE, JobState, Phase, Reported, read_mapping, read_state
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Decision, Verdict, judge
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.progress import Progress
from airflow_kftrain.monitoring.report import without_quoted, write_report
from airflow_kftrain.monitoring.text import one_line
from airflow_kftrain.watching.course import SILENT, Course, unreachable_for_too_long
from airflow_kftrain.watching.display import Display, Store, replicas
from airflow_kftrain.watching.evidence import Evidence
from airflow_kftrain.watching.feeds import Subscription, subscribed
from airflow_kftrain.watching.leader_log import LeaderLog
from airflow_kftrain.watching.logs import LogShow, shown
from airflow_kftrain.watching.masking import Mask, Tell, mask_for
from airflow_kftrain.watching.moves import follow, located
from airflow_kftrain.watching.survey import PodsKnown, Survey
from airflow_kftrain.watching.system_retries import disruption, paused, told_earlier

LONGEST_FORBIDDEN = 120.0
"""Seconds for which reading the job may be forbidden before the wait ends, and the job with it. An
API server that starts forbids everything until it has loaded its rules, people who change rules
make mistakes, and a secrets backend may be away. But it is useless to wait for a connection that
the triggerer never had."""
LONGEST_AWAY = 3600.0
"""Seconds after which the wait for a cluster that does not answer ends."""

_NO_PROGRESS = Progress()
"""Shared by all watches that show none: there may be thousands."""
_ASK_AGAIN = 10.0
_LONGEST_WAIT = 3600.0
_CHECK_PATIENCE = 10.0


async def watch_job(
    order: WatchOrder,
    *,
    tell: Tell,
    pods_known: PodsKnown | None = None,
    store: Store | None = None,
    live: bool = False,
    follow_logs: bool = False,
    sweeps: bool = False,
) -> Outcome:
    """Returns how the job ended. Raises only CancelledError.

    `tell` writes to the task's log; with `follow_logs` the logs of pods are shown there as they are
    written. `store` writes the XCom `kftrain`: at the end, and with `live` also before. `sweeps`:
    this process also looks after jobs that nobody waits for, as triggerers do.
    """
    try:
        if not order.job.name or not order.job.namespace:
            raise InvalidSpec("", "the order to watch a job cannot be read: it names no job")
        order = await located(order)
        course = Course(order, order.kind)
        mask = mask_for(order)
        tell = mask.telling(tell)
        with subscribed(order, sweeps=sweeps) as subscription:
            display = Display(store) if store and (live or order.progress) else None
            in_gauge = sweeps and bool(order.owner)
            with _Watch(course, subscription, tell, mask, pods_known, display, in_gauge) as watch:
                if order.show_logs == "off":
                    outcome = await watch.outcome(await watch.decision(), store)
                else:
                    hub = subscription.feed.hub
                    async with shown(hub, order, tell, mask, stream=follow_logs) as show:
                        decision = await watch.decision()
                    outcome = await watch.outcome(decision, store, show)
        return await paused(order, _counted(order, outcome), tell)
    except KfTrainError as error:
        return _counted(order, _failed(error))
    except Exception as error:  # noqa: BLE001  # whatever it is, the task must not hang
        text = one_line(f"{type(error).__name__}: {error}")
        failed = _failed(ClusterError("watch the job", f"{text}, a bug in airflow-kftrain"))
        return _counted(order, failed)


def _counted(order: WatchOrder, outcome: Outcome) -> Outcome:
    """The job of a sensor is counted by the task that has submitted it."""
    if order.owner:
        fault = outcome.fault.value if outcome.fault else None
        stats.job_ended(order.job.kind, outcome.verdict.value, fault)
    return outcome


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
    """One watch, from the first read to the end. It is its own context manager, as a subscription
    is."""

    __slots__ = (
        "_away_told",
        "_course",
        "_display",
        "_in_gauge",
        "_leader_log",
        "_recheck_at",
        "_look_at",
        "_loop",
        "_mask",
        "_progress",
        "_reported",
        "_no_answer",
        "_unanswered_since",
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
        mask: Mask,
        pods_known: PodsKnown | None,
        display: Display | None,
        in_gauge: bool,
    ) -> None:
        self._in_gauge = in_gauge
        """Whether its job is counted among those that this process watches."""
        self._course = course
        self._subscription = subscription
        self._tell = tell
        self._mask = mask
        self._display = display
        self._survey = Survey(course, subscription, tell, mask, pods_known, display)
        order = course.order
        reads = order.progress or order.timeouts.silence is not None
        self._progress = Progress() if order.progress or display is not None else _NO_PROGRESS
        self._reported: Reported | None = None
        self._leader_log = LeaderLog(order, subscription, mask, self._progress) if reads else None
        self._loop = asyncio.get_running_loop()
        self._state: JobState | None = None
        self._look_at = 0.0
        """When to read the job by its name, if the feed does not know it; or to read where the
        connection leads, if the cluster is away."""
        self._recheck_at = 0.0
        """Until then, decisions that the cluster did not confirm are not checked again."""
        self._unanswered_since: float | None = None
        self._no_answer = ""
        """Why."""
        self._away_told = False
        self._told_errors: tuple[str, ...] = ()

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._move(self._state, None)

    async def decision(self) -> Decision:
        """The decision that ends the wait."""
        while True:
            await self._look()
            self._tell_news()
            await self._survey.look(self._state)
            await self._look_closer()
            decision = await self._decide()
            if decision.verdict is not Verdict.WAIT:
                return decision
            await self._subscription.wait(self._patience(decision))

    # ----- the state

    async def _look(self) -> None:
        """Takes the state from the feed; if the feed does not know it, reads the job once."""
        found = self._subscription.state
        if self._is_due and self._is_away:
            self._plan_look()
            hub = self._subscription.feed.hub
            async with hub.turn:
                await follow(hub.hook, self._course.order)
        elif self._is_due and self._may_ask and found is None:
            self._plan_look()
            found = await self._ask_again()
        if found is not None:
            self._see(found)

    @property
    def _is_due(self) -> bool:
        return self._loop.time() >= self._look_at

    def _plan_look(self) -> None:
        self._look_at = self._loop.time() + self._course.order.poll_interval

    @property
    def _is_away(self) -> bool:
        return self._subscription.feed.is_away

    @property
    def _may_ask(self) -> bool:
        """Whether to read the job: only if the feed has listed all jobs, or has failed for good."""
        stream = self._subscription.feed.jobs_stream
        return not self._is_away and (stream.synced or stream.problem is not None)

    @property
    def _given_up_at(self) -> float:
        """When to give up because there was no answer for too long."""
        problem = self._subscription.feed.jobs_stream.problem
        since = problem.since if problem and self._is_away else self._unanswered_since
        return inf if since is None else since + LONGEST_AWAY

    async def _ask_again(self) -> JobState | None:
        """Like `_ask`. But once the state was known, a lost permission may come back, and the job
        continues meanwhile."""
        try:
            return await self._ask()
        except ClusterError as error:
            if self._state is None:
                raise
            self._no_answer = str(error)
            self._unanswered_since = self._unanswered_since or self._loop.time()
            return None

    async def _ask(self) -> JobState | None:
        """Reads the job. Raises an error that cannot pass by itself."""
        order = self._course.order
        hub = self._subscription.feed.hub
        try:
            async with hub.turn:
                resource = await hub.hook.get(
                    self._course.kind, order.job.namespace, order.job.name
                )
        except KfTrainError as error:
            now = self._loop.time()
            self._unanswered_since = self._unanswered_since or now
            if not self._may_pass(error, now - self._unanswered_since):
                raise
            self._look_at, self._no_answer = now + _ASK_AGAIN, str(error)
            return None
        self._unanswered_since = None
        uid = read_mapping(read_mapping(resource).get("metadata")).get("uid")
        if resource is None or order.job.uid not in ("", uid):
            if order.job.uid:
                return GONE
            for line in self._course.missing_lines():
                self._say(line)
            return None
        return read_state(self._course.kind, resource)

    def _may_pass(self, error: KfTrainError, seconds: float) -> bool:
        """Whether the error may pass. What was possible when the job was created may become
        possible again: a secrets backend that is away for a while is no reason to give up a
        training."""
        passing = (BadConnection, NotServed) if self._course.order.job.uid else ()
        if isinstance(error, (Forbidden, Refused, *passing)):
            return seconds < LONGEST_FORBIDDEN
        return error.retryable

    def _see(self, found: JobState) -> None:
        before = self._state
        self._state = found.after(before)
        self._move(before, self._state)
        self._survey.plan(before, self._state, _now())
        is_queued = self._state.phase is Phase.QUEUED and bool(self._state.queue)
        self._subscription.follow_queue(is_queued)

    def _move(self, before: JobState | None, after: JobState | None) -> None:
        if self._in_gauge:
            stats.job_moved(self._course.kind.kind, _unfinished(before), _unfinished(after))

    # ----- the log

    def _say(self, line: str) -> None:
        self._tell(self._mask.own_line(line))

    def _tell_news(self) -> None:
        self._tell_of_the_cluster()
        if self._state is None:
            return
        for line in self._course.state_lines(self._state, _now()):
            self._say(line)
        if self._state.phase is Phase.QUEUED:
            decision = judge(self._course.kind, self._state, (), self._subscription.queue)
            for line in self._course.queue_lines(decision):
                self._say(line)

    def _tell_of_the_cluster(self) -> None:
        """Logs once each: what the cluster forbids or allows again, that it is away, that it is
        back."""
        feed = self._subscription.feed
        every = f"Until this is fixed, the job is polled every {feed.poll_seconds():.0f} s."
        self._tell_once(feed.jobs_stream.shut, every)
        self._tell_once(
            feed.pods_stream.shut, "Until this is fixed, problems of its pods are noticed late."
        )
        self._tell_of_what_is_allowed_again()
        problem = feed.jobs_stream.problem
        if problem is not None and not problem.is_final:
            self._no_answer = str(problem.error)
            if not self._away_told:
                self._away_told = True
                self._say(f"{problem.error} The job may still be running; waiting for the cluster.")
        elif self._away_told:
            self._away_told = False
            self._look_at = 0.0
            self._say("The cluster answers again.")

    def _tell_of_what_is_allowed_again(self) -> None:
        feed = self._subscription.feed
        streams = (feed.jobs_stream, feed.pods_stream)
        if self._told_errors and not any(each.problem or each.polls for each in streams):
            self._told_errors = ()
            self._say("Jobs and pods can be watched again.")

    def _tell_once(self, error: KfTrainError | None, then: str) -> None:
        if error is not None and str(error) not in self._told_errors:
            self._told_errors = (*self._told_errors, str(error))
            self._say(f"{error} {then}")

    async def _look_closer(self) -> None:
        """What only some tasks ask for: the end of the leader's log, and the XCom while it runs."""
        reader, display, state = self._leader_log, self._display, self._state
        news = reader is not None and reader.look(state)
        if news:
            self._tell(f"Progress: {self._progress.words()}.")
        if display is None or state is None:
            return
        display.see(state)
        display.put("queue", self._queue_shown(state))
        if state.progress is not None and state.progress != self._reported:
            self._reported = state.progress
            self._progress.take_status(state.progress, _now())
            news = True
        if news:
            display.progress(self._progress.to_dict)
        await display.write_if_due(self._course.order.job.uid)

    def _queue_shown(self, state: JobState) -> dict[str, str]:
        if state.phase is not Phase.QUEUED:
            return {}
        decision = judge(self._course.kind, state, (), self._subscription.queue)
        return {"name": state.queue, "words": decision.words}

    # ----- decisions

    async def _decide(self) -> Decision:
        state, now = self._state, _now()
        decision = self._course.decide(state, self._known_pods(), now, self._subscription.queue)
        if state is not None and state.phase.is_final:
            return decision
        if decision.verdict is not Verdict.WAIT:
            if self._loop.time() < self._recheck_at:
                return _wait(decision)
            return await self._checked(decision)
        if self._loop.time() >= self._given_up_at:
            return unreachable_for_too_long(self._course.title, self._no_answer)
        if self._leader_log is not None and self._leader_log.is_silent:
            return self._course.silent()
        return decision

    def _known_pods(self) -> list[PodState]:
        """The pods in trouble. Those from the feed are newer."""
        pods = {pod.name: pod for pod in (*self._survey.troubled, *self._subscription.pods)}
        return self._survey.with_volume_troubles(pods.values())

    async def _checked(self, decision: Decision) -> Decision:
        """Checks a decision that would end an unfinished job: the feed knows only some of the pods,
        and may lag behind. The author's deadline applies in any case."""
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
                self._recheck_in(_ASK_AGAIN)
                return _wait(decision)
        checked = self._course.decide(self._state, pods, _now(), self._subscription.queue)
        if checked.verdict is Verdict.WAIT:
            self._recheck_in(order.poll_interval)
        return checked

    async def _ask_for_all(self) -> list[PodState]:
        found = await self._ask()
        if found is None:
            raise Unreachable("check the state of the job", "no response")
        self._see(found)
        await self._subscription.look_at_queue()
        return await self._survey.all_pods()

    def _recheck_in(self, seconds: float) -> None:
        self._recheck_at = self._loop.time() + seconds

    # ----- waiting, and the end

    def _patience(self, decision: Decision) -> float:
        """Seconds until something has to be done even if nothing changes."""
        now, loop_now = _now(), self._loop.time()
        due: list[float] = []
        if decision.until is not None:
            limit = (decision.until - now).total_seconds()
            due.append(max(limit, self._recheck_at - loop_now))
        if self._state is not None and self._course.has_unlogged(self._state):
            due.append((self._course.counts_due(now) - now).total_seconds())
        if self._survey.due is not None:
            due.append(self._survey.due - loop_now)
        if self._is_away or (self._subscription.state is None and self._may_ask):
            due.append(self._look_at - loop_now)
        if self._leader_log is not None and self._leader_log.due is not None:
            due.append(self._leader_log.due - loop_now)
        if self._display is not None and self._display.waits:
            due.append(self._display.due - loop_now)
        due.append(self._given_up_at - loop_now)
        # Limited, since a clock may be set and a machine may sleep.
        return min(max(min(due), 0.1), _LONGEST_WAIT)

    async def outcome(
        self, decision: Decision, store: Store | None, show: LogShow | None = None
    ) -> Outcome:
        state, order = self._state or JobState(Phase.STARTING), self._course.order
        evidence = Evidence(self._subscription, self._mask, show)
        await evidence.gather(decision.verdict)
        if decision.reason == SILENT and not state.phase.is_final:
            await evidence.gather_last_words(order)
        if state.phase.is_final:
            decision = judge(self._course.kind, state, evidence.pods)
        known = await self._survey.tell_pods(evidence.pods)
        succeeded = decision.verdict is Verdict.SUCCEEDED
        report = write_report(
            self._course.kind,
            state,
            evidence.pods,
            decision=decision,
            logs=evidence.logs,
            last_words=evidence.last_words,
            events=evidence.events,
        )
        report += told_earlier(order)
        outcome = Outcome(
            verdict=decision.verdict,
            reason=decision.reason,
            words=decision.words,
            report=report,
            phase=self._state.phase if self._state else None,
            fault=decision.fault,
            retryable=decision.retryable,
            exit_code=None if succeeded else evidence.exit_code(),
            result=evidence.result(state) if succeeded else "",
            tail=without_quoted(evidence.tail, report),
            pods=known,
            finished=state.finished or _now(),
            disruption=disruption(order, decision.verdict, state, evidence.pods),
        )
        outcome = self._mask.outcome(outcome)
        if store is not None:
            await self._write_end(store, state, evidence, outcome)
        return outcome

    async def _write_end(
        self, store: Store, state: JobState, evidence: Evidence, outcome: Outcome
    ) -> None:
        order, usage = self._course.order, evidence.usage(state, self._course.order.ordered)
        stats.job_lasted(self._course.kind.kind, usage)
        self._tell(f"The job has used {usage.words()}.")
        display = self._display or Display(store)
        parts = {
            "replicas": replicas(evidence.pods),
            "usage": {**usage.to_dict(), "system_retries": order.generation},
            "verdict": outcome.verdict.value,
            "headline": "" if outcome.verdict is Verdict.SUCCEEDED else outcome.words,
            "finished": outcome.finished and outcome.finished.isoformat(timespec="seconds"),
        }
        if order.progress and self._leader_log is not None:
            await self._leader_log.finish(evidence.pods)
        if self._progress.is_known:
            parts["progress"] = self._progress.to_dict()
        await display.write_end(order.job.uid, state, parts)


def _wait(decision: Decision) -> Decision:
    """Wait after all: something has to be checked first."""
    return Decision(Verdict.WAIT, decision.reason, decision.words, until=_now())


def _unfinished(state: JobState | None) -> str:
    """The phase of a job that has not ended."""
    return "" if state is None or state.phase.is_final else state.phase.value


def _now() -> datetime:
    return datetime.now(timezone.utc)
