"""What is shared by all who wait: for each event loop and connection one hub, and in it one feed
for all jobs of a kind in a namespace. N jobs cost one watch of the jobs and one of their pods that
are in trouble.

A feed keeps of each job its state only, and of pods those that are in trouble. It knows no task;
who waits holds a Subscription and is woken when something of its job has changed.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from airflow_kftrain.hooks.api_calls import POD, AnyKind
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import JobState, ReplicaCount, read_mapping, read_state, read_text
from airflow_kftrain.kinds import JobKind, find_kind
from airflow_kftrain.manifests.identity import INSTANCE_LABEL
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.watching.pods import RUNNING, TROUBLED, PodBook
from airflow_kftrain.watching.streams import Stream
from airflow_kftrain.watching.subscription import Subscription
from airflow_kftrain.watching.sweeping import Sweeper

LINGER_SECONDS = 30.0
"""A feed that nobody uses stays for so long: the next job often comes at once."""
READS_AT_ONCE = 12
"""Reads for single jobs (pods, logs, events) on one connection."""

LONGEST_POLL = 300.0

_WOKEN_AT_ONCE = 20


class Entry(NamedTuple):
    """A job, as far as it is remembered."""

    uid: str
    state: JobState
    restarts: bool
    """Containers of its pods may be started again in place."""


class _Objects(NamedTuple):
    """The source of a stream: one selection of one kind."""

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


class FeedKey(NamedTuple):
    api_version: str
    kind: str
    namespace: str
    instance: str
    name: str = ""
    """For a job that somebody else made, and that bears no label of ours."""


class Feed:
    """All jobs of one kind, of one Airflow, in one namespace."""

    def __init__(self, hub: Hub, key: FeedKey) -> None:
        self.hub = hub
        self.kind = find_kind(key.api_version, key.kind)
        self.key = key
        self.entries: dict[str, Entry] = {}
        self.subscriptions: dict[str, list[Subscription]] = {}
        self.task: asyncio.Task[None] | None = None
        self._listed: set[str] = set()
        self._poll_interval = LONGEST_POLL
        label = self.kind.selectors.pods.partition("=")[0]
        ours = f"{INSTANCE_LABEL}={key.instance}"
        of_pods = f"{label}={key.name}" if key.name else f"{ours},{label}"
        fields = f"metadata.name={key.name}" if key.name else ""
        jobs = _Objects(hub.hook, self.kind, key.namespace, "" if key.name else ours, fields)
        self.pods = PodBook(self, label)
        troubled = _Objects(hub.hook, POD, key.namespace, of_pods, TROUBLED)
        self.running_pods = _Objects(hub.hook, POD, key.namespace, of_pods, RUNNING)
        self.jobs_stream = Stream(jobs, self, self.poll_seconds)
        self.pods_stream = Stream(troubled, self.pods, self.poll_seconds)

    async def run(self) -> None:
        await asyncio.gather(
            self.jobs_stream.run(), self.pods_stream.run(), self.pods.look_for_crashes()
        )

    @property
    def is_away(self) -> bool:
        """The cluster does not answer, and may again."""
        problem = self.jobs_stream.problem
        return problem is not None and not problem.is_final

    # ----- who waits

    def add(self, subscription: Subscription, poll_interval: float) -> None:
        self.subscriptions.setdefault(subscription.name, []).append(subscription)
        if self.hub.sweeper is not None:
            self.hub.sweeper.forget(self.kind, self.key.namespace, subscription.name)
        self._poll_interval = min(poll_interval, self._poll_interval)

    def remove(self, subscription: Subscription) -> None:
        others = self.subscriptions[subscription.name]
        others.remove(subscription)
        if not others:
            del self.subscriptions[subscription.name]
            self.pods.forget(subscription.name)
            entry = self.entries.get(subscription.name)
            if entry is not None:
                self._consider(subscription.name, entry.state, soon=True)
        if not self.subscriptions:
            self._poll_interval = LONGEST_POLL

    def poll_seconds(self) -> float:
        return self._poll_interval

    def wake(self, name: str) -> None:
        for subscription in self.subscriptions.get(name, ()):
            subscription.wake()

    def _wake_in_turn(self, subscriptions: Sequence[Subscription]) -> None:
        """A thousand at once would stall the loop."""
        for subscription in subscriptions[:_WOKEN_AT_ONCE]:
            subscription.wake()
        if rest := subscriptions[_WOKEN_AT_ONCE:]:
            asyncio.get_running_loop().call_soon(self._wake_in_turn, rest)

    def _all_subscriptions(self) -> list[Subscription]:
        return [each for some in self.subscriptions.values() for each in some]

    def _consider(self, name: str, state: JobState, *, soon: bool = False) -> None:
        """Nobody waits for it here: it may be an orphan. What has no label of ours is nobody's."""
        if self.hub.sweeper is not None and self.key.instance:
            self.hub.sweeper.consider(self.kind, self.key.namespace, name, state, soon=soon)

    # ----- what the stream of jobs tells

    def begin(self) -> None:
        self._listed = set()

    def put(self, item: Mapping[str, Any]) -> None:
        metadata = read_mapping(item.get("metadata"))
        name = read_text(metadata.get("name"))
        uid = read_text(metadata.get("uid"))
        self._listed.add(name)
        known = self.entries.get(name)
        state = _condensed(read_state(self.kind, item))
        self.entries[name] = Entry(uid, state, _may_restart(self.kind, item))
        if name in self.subscriptions:
            if known is None or (known.uid, known.state) != (uid, state):
                self.wake(name)
            return
        if state.phase.is_final:
            self.pods.forget(name)
        self._consider(name, state)

    def drop(self, item: Mapping[str, Any]) -> None:
        """A job that is deleted may have ended just before."""
        metadata = read_mapping(item.get("metadata"))
        name, uid = read_text(metadata.get("name")), read_text(metadata.get("uid"))
        self.entries.pop(name, None)
        state = read_state(self.kind, item)
        for subscription in self.subscriptions.get(name, ()):
            if state.phase.is_final and subscription.uid in ("", uid):
                subscription.last_words = state
            subscription.wake()
        if name not in self.subscriptions:
            self.pods.forget(name)

    def complete(self) -> None:
        gone = self.entries.keys() - self._listed
        for name in gone:
            del self.entries[name]
            if name not in self.subscriptions:
                self.pods.forget(name)
        self._listed = set()
        self._wake_in_turn([each for each in self._all_subscriptions() if each.name in gone])

    def changed(self) -> None:
        self._wake_in_turn(self._all_subscriptions())


class Hub:
    """All feeds of one event loop over one connection."""

    def __init__(self, connection: str | None) -> None:
        self._connection = connection
        self.hook = AsyncTrainingJobHook(connection)
        self.turn = asyncio.Semaphore(READS_AT_ONCE)
        self.log_turn = asyncio.Semaphore(READS_AT_ONCE)
        """For logs that are shown or kept: those of a node that is away take long, and no job
        shall end late for them."""
        self.sweeper: Sweeper | None = None
        self._feeds: dict[FeedKey, Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._feeds)

    def feed(self, key: FeedKey) -> Feed:
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(self, key)
            feed.task = self.start(self._keep(feed))
        return feed

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """In the background; a task that nobody holds may vanish. Its lines belong into the log of
        the process, not into that of the task that happened to come first."""
        task = contextvars.Context().run(asyncio.get_running_loop().create_task, work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def leave(self, feed: Feed) -> None:
        """Called when one who waited has left."""
        if not feed.subscriptions:
            loop = asyncio.get_running_loop()
            loop.call_later(LINGER_SECONDS, self._end_if_idle, feed)

    def _end_if_idle(self, feed: Feed) -> None:
        if feed.subscriptions or feed.task is None or self._feeds.get(feed.key) is not feed:
            return
        # At once, since it takes some turns to end: who comes meanwhile needs one that lives.
        del self._feeds[feed.key]
        feed.task.cancel()

    async def _keep(self, feed: Feed) -> None:
        """Runs the feed to its end, which is that of the event loop at the latest."""
        try:
            await feed.run()
        finally:
            if self._feeds.get(feed.key) is feed:
                del self._feeds[feed.key]
            if not self._feeds:
                # What it holds knows the loop, and would keep it for ever.
                _HUBS.get(asyncio.get_running_loop(), {}).pop(self._connection, None)


_HUBS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, Hub]] = WeakKeyDictionary()


def hub_of(connection: str | None) -> Hub:
    """The hub of this event loop: `dag.test()` runs each trigger in a loop of its own."""
    hubs = _HUBS.setdefault(asyncio.get_running_loop(), {})
    if connection not in hubs:
        hubs[connection] = Hub(connection)
    return hubs[connection]


def subscribed(order: WatchOrder, *, sweeps: bool = False) -> Subscription:
    """To be left when it is not wanted any more: a `with` does it."""
    name = sys.intern(order.job.name)
    only = "" if order.instance else name
    hub = hub_of(order.connection)
    if sweeps and hub.sweeper is None:
        hub.sweeper = Sweeper(hub.hook)
    feed = hub.feed(
        FeedKey(order.api_version, order.job.kind, order.job.namespace, order.instance, only)
    )
    subscription = Subscription(feed, name, order.job.uid)
    feed.add(subscription, order.poll_interval)
    return subscription


def _may_restart(kind: JobKind, job: Mapping[str, Any]) -> bool:
    """Whether containers of this job's pods may be started again in place. A TrainJob does not
    say: its runtime does."""
    spec = read_mapping(job.get("spec"))
    if kind.replicas_key:
        roles = read_mapping(spec.get(kind.replicas_key)).values()
        policies = {read_text(read_mapping(role).get("restartPolicy")) for role in roles}
    elif kind.template_key:
        pod = read_mapping(read_mapping(spec.get(kind.template_key)).get("spec"))
        policies = {read_text(pod.get("restartPolicy"))}
    else:
        return True
    return not policies <= {"Never", "ExitCode"}


def _condensed(state: JobState) -> JobState:
    """Thousands of jobs say the same words, and count the same replicas."""
    return state._replace(reason=sys.intern(state.reason), replicas=_shared(state.replicas))


@functools.lru_cache(maxsize=1024)
def _shared(replicas: tuple[ReplicaCount, ...]) -> tuple[ReplicaCount, ...]:
    return tuple(each._replace(role=sys.intern(each.role)) for each in replicas)
