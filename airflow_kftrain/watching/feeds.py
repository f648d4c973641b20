"""What all watches share. Each event loop has one hub per connection and cluster, and each hub has
one feed for all jobs of a kind in a namespace. N jobs cost one watch of the jobs and one of their
pods in trouble. A feed knows no task: each task holds a Subscription, and is woken when its job
changes."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from airflow_kftrain import stats
from airflow_kftrain.errors import ClusterError
from airflow_kftrain.hooks.api_calls import POD, AnyKind
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import JobState
from airflow_kftrain.kinds import JobKind, find_kind
from airflow_kftrain.manifests.identity import INSTANCE_LABEL
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.failures import Failure
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.queues import QueueState
from airflow_kftrain.watching.memory import Memory
from airflow_kftrain.watching.pods import RUNNING, TROUBLED, PodStore
from airflow_kftrain.watching.queues import Queues
from airflow_kftrain.watching.reading import read_tail
from airflow_kftrain.watching.store import JobStore, Waiter
from airflow_kftrain.watching.streams import Stream
from airflow_kftrain.watching.sweeping import Sweeper

T = TypeVar("T")

LINGER_SECONDS = 30.0
"""How long an unused feed stays: often the next job comes soon."""
READS_AT_ONCE = 12
"""How many reads of single jobs (pods, logs, events) may run at once on one connection."""

LONGEST_POLL = 300.0


class _Objects(NamedTuple):
    """What a stream follows: one selection of objects of one kind."""

    hook: AsyncTrainingJobHook
    kind: AnyKind
    namespace: str
    selector: str
    fields: str = ""

    async def snapshot(self) -> tuple[str, AsyncIterator[dict[str, Any]]]:
        return await self.hook.snapshot(self.kind, self.namespace, self.selector, self.fields)

    def watch(self, version: str, seconds: float) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        where = (self.namespace, self.selector)
        if isinstance(self.kind, JobKind):
            return self.hook.watch(self.kind, *where, version, seconds, self.fields)
        return self.hook.watch_pods(*where, self.fields, version, seconds)

    def broke(self, error: ClusterError) -> None:
        stats.watch_broke(self.kind.kind, error)


class FeedKey(NamedTuple):
    api_version: str
    kind: str
    namespace: str
    instance: str
    name: str = ""
    """Only for a job that somebody else has created, since it has no label of ours."""


class Feed:
    """All jobs of one kind, of one Airflow, in one namespace."""

    def __init__(self, hub: Hub, key: FeedKey) -> None:
        self.hub = hub
        self.kind = find_kind(key.api_version, key.kind)
        self.key = key
        self.task: asyncio.Task[None] | None = None
        self._poll_intervals: Counter[float] = Counter()
        """How many subscriptions have each interval."""
        label = self.kind.selectors.pods.partition("=")[0]
        ours = f"{INSTANCE_LABEL}={key.instance}"
        of_pods = f"{label}={key.name}" if key.name else f"{ours},{label}"
        fields = f"metadata.name={key.name}" if key.name else ""
        jobs = _Objects(hub.hook, self.kind, key.namespace, "" if key.name else ours, fields)
        troubled = _Objects(hub.hook, POD, key.namespace, of_pods, TROUBLED)
        running = _Objects(hub.hook, POD, key.namespace, of_pods, RUNNING)
        self.jobs = JobStore(self.kind, self._unattended)
        self.pods = PodStore(self.jobs, label, running, self._want_log)
        self.jobs_stream = Stream(jobs, self.jobs, self.poll_seconds)
        self.pods_stream = Stream(troubled, self.pods, self.poll_seconds)

    async def run(self) -> None:
        await asyncio.gather(
            self.jobs_stream.run(), self.pods_stream.run(), self.pods.look_for_crashes()
        )

    @property
    def queues(self) -> Queues:
        return self.hub.queues(self.key.namespace)

    @property
    def is_away(self) -> bool:
        """Whether the cluster does not answer at the moment."""
        problem = self.jobs_stream.problem
        return problem is not None and not problem.is_final

    def add(self, subscription: Subscription) -> None:
        self.jobs.add(subscription)
        if self.hub.sweeper is not None:
            self.hub.sweeper.forget(self.kind, self.key.namespace, subscription.name)
        self._poll_intervals[subscription.poll_interval] += 1

    def remove(self, subscription: Subscription) -> None:
        name = subscription.name
        if self.jobs.remove(subscription):
            self.pods.forget(name)
            entry = self.jobs.entries.get(name)
            if entry is not None:
                self._consider(name, entry.state, soon=True)
        self._poll_intervals -= Counter((subscription.poll_interval,))

    def poll_seconds(self) -> float:
        """The shortest interval of all subscriptions."""
        return min((LONGEST_POLL, *self._poll_intervals))

    def _unattended(self, name: str, state: JobState | None) -> None:
        if state is None or state.phase.is_final:
            self.pods.forget(name)
        if state is not None:
            self._consider(name, state)

    def _consider(self, name: str, state: JobState, *, soon: bool = False) -> None:
        """Tells the sweeper of a job that nobody waits for here: it may be an orphan. A job without
        our label has no owner."""
        if self.hub.sweeper is not None and self.key.instance:
            self.hub.sweeper.consider(self.kind, self.key.namespace, name, state, soon=soon)

    def _want_log(self, memory: Memory, pod: PodState, failure: Failure) -> None:
        """At once: a failed pod may soon be gone, and its log with it."""
        self.hub.start(self._keep_log(memory, pod, failure))

    async def _keep_log(self, memory: Memory, pod: PodState, failure: Failure) -> None:
        async with self.hub.log_turn:
            text = await read_tail(self.hub.hook, self.key.namespace, pod, failure)
        memory.keep_log(failure.log, text)


class Subscription(Waiter):
    """The subscription of one task to one job. It is its own context manager, since a generator
    would take as much memory as the whole subscription."""

    __slots__ = ("_queued_uid", "feed")

    def __init__(self, feed: Feed, name: str, uid: str, poll_interval: float) -> None:
        super().__init__(name, uid, poll_interval)
        self.feed = feed
        self._queued_uid = ""
        """That of the job while it waits in a queue."""
        feed.add(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.follow_queue(False)
        self.feed.remove(self)
        self.feed.hub.leave(self.feed)

    @property
    def state(self) -> JobState | None:
        """The state of the job; None if the feed does not know the job, or may no longer watch
        it."""
        if self.last_words is not None:
            return self.last_words
        if self.feed.jobs_stream.is_shut:
            return None
        entry = self.feed.jobs.entries.get(self.name)
        if entry is None or self.uid not in ("", entry.uid):
            return None
        return entry.state

    @property
    def pods(self) -> list[PodState]:
        """The pods in trouble; none if the feed may no longer watch pods."""
        return [] if self.feed.pods_stream.is_shut else self.feed.pods.of(self.name)

    def follow_queue(self, is_queued: bool) -> None:
        """Whether to ask Kueue about the job."""
        entry = self.feed.jobs.entries.get(self.name)
        uid = (self.uid or (entry.uid if entry else "")) if is_queued else ""
        if uid == self._queued_uid:
            return
        if self._queued_uid:
            self.feed.queues.remove(self._queued_uid, self)
        self._queued_uid = uid
        if uid:
            self.feed.queues.add(uid, self)

    @property
    def queue(self) -> QueueState | None:
        """What Kueue says about the job; None if that is not known, or if it is not queued."""
        return self.feed.queues.state_of(self._queued_uid) if self._queued_uid else None

    async def look_at_queue(self) -> None:
        """Asks Kueue now. Raises an error that may pass."""
        if self._queued_uid:
            await self.feed.queues.look([self._queued_uid])

    @property
    def memory(self) -> Memory:
        return self.feed.pods.memory_of(self.name)


class Hub:
    """All feeds of one event loop over one connection, of one cluster."""

    def __init__(self, connection: str | None, cluster: str = "") -> None:
        self.hook = AsyncTrainingJobHook(connection, cluster)
        self.turn = asyncio.Semaphore(READS_AT_ONCE)
        self.log_turn = asyncio.Semaphore(READS_AT_ONCE)
        """For logs that are shown or kept. Separate, since reading them takes long if a node is
        away, and that must not delay the end of a job."""
        self.sweeper: Sweeper | None = None
        self._feeds: dict[FeedKey, Feed] = {}
        self._queues: dict[str, Queues] = {}
        """By their namespaces."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._feeds)

    def feed(self, key: FeedKey) -> Feed:
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(self, key)
            feed.task = self.start(self._keep(feed))
        return feed

    def queues(self, namespace: str) -> Queues:
        if namespace not in self._queues:
            self._queues[namespace] = Queues(self.hook, self.turn, namespace, self.start)
        return self._queues[namespace]

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a background task and keeps a reference, since asyncio does not. Its log lines go
        to the log of the process, not to that of the task that happened to come first."""
        task = contextvars.Context().run(asyncio.get_running_loop().create_task, work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def leave(self, feed: Feed) -> None:
        """Called when a subscription ends."""
        if not feed.jobs.waiters:
            loop = asyncio.get_running_loop()
            loop.call_later(LINGER_SECONDS, self._end_if_idle, feed)

    def _end_if_idle(self, feed: Feed) -> None:
        if feed.jobs.waiters or feed.task is None or self._feeds.get(feed.key) is not feed:
            return
        # At once, although the feed takes a moment to end: a new subscription needs one that runs.
        del self._feeds[feed.key]
        feed.task.cancel()

    async def _keep(self, feed: Feed) -> None:
        """Runs the feed until it ends, at the latest with the event loop."""
        try:
            await feed.run()
        finally:
            if self._feeds.get(feed.key) is feed:
                del self._feeds[feed.key]
            if not self._feeds:
                # The hub refers to the loop, and would keep it in memory for ever.
                place = (self.hook.connection, self.hook.cluster)
                _HUBS.get(asyncio.get_running_loop(), {}).pop(place, None)


_Hubs = dict[tuple[str | None, str], Hub]
_HUBS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Hubs] = WeakKeyDictionary()


def hub_of(connection: str | None, cluster: str = "") -> Hub:
    """The hub of this event loop: `dag.test()` runs each trigger in a loop of its own."""
    hubs = _HUBS.setdefault(asyncio.get_running_loop(), {})
    place = (connection, cluster)
    if place not in hubs:
        hubs[place] = Hub(*place)
    return hubs[place]


def subscribed(order: WatchOrder, *, sweeps: bool = False) -> Subscription:
    """Subscribes to the job of an order. Use it in a `with`, which ends the subscription."""
    name = sys.intern(order.job.name)
    only = "" if order.instance else name
    hub = hub_of(order.connection, order.cluster)
    if sweeps and hub.sweeper is None:
        hub.sweeper = Sweeper(hub.hook)
    feed = hub.feed(
        FeedKey(order.api_version, order.job.kind, order.job.namespace, order.instance, only)
    )
    return Subscription(feed, name, order.job.uid, order.poll_interval)
