"""One who waits for one job, as a feed knows him."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow_kftrain.job_state import JobState
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.watching.memory import Memory

if TYPE_CHECKING:
    from airflow_kftrain.watching.feeds import Feed


class Subscription:
    """One who waits for one job. Its own context manager, since thousands wait: a generator takes
    as much memory as all that is in here."""

    __slots__ = ("_is_due", "_waiter", "feed", "last_words", "name", "pods_changed", "uid")

    def __init__(self, feed: Feed, name: str, uid: str) -> None:
        self.feed = feed
        self.name = name
        self.uid = uid
        self.last_words: JobState | None = None
        """The final state of a job that was deleted right after it."""
        self.pods_changed = False
        self._is_due = False
        self._waiter: asyncio.Future[None] | None = None

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.remove(self)
        self.feed.hub.leave(self.feed)

    @property
    def state(self) -> JobState | None:
        """None: the feed does not know this job, or what it knows is of the past, since it may
        look no more."""
        if self.last_words is not None:
            return self.last_words
        if self.feed.jobs_stream.is_shut:
            return None
        entry = self.feed.entries.get(self.name)
        if entry is None or self.uid not in ("", entry.uid):
            return None
        return entry.state

    @property
    def pods(self) -> list[PodState]:
        """Those in trouble; none where nobody may look any more whether they still are."""
        return [] if self.feed.pods_stream.is_shut else self.feed.pods.of(self.name)

    @property
    def memory(self) -> Memory:
        return self.feed.pods.memory_of(self.name)

    async def wait(self, seconds: float | None) -> None:
        """Until something has changed, or so long."""
        if self._is_due:
            self._is_due = False
            # Another has its turn, even where one is woken all the time.
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(max(seconds, 0.0), self.wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._is_due = False
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        self._is_due = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
