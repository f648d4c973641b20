"""Follows one selection of objects until it is cancelled: lists it, watches it, and recovers from
errors.

list in pages -> watch from its version -> the watch ends -> watch from the last version seen
                                        -> 410           -> list again
                                        -> forbidden     -> list now and then instead
                                        -> other errors  -> try again, with growing random pauses

The pauses become short again only after a watch that lasts: otherwise, if every list succeeds and
every watch fails, there would be a list every second. The sink decides what happens to the objects.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from airflow_kftrain.errors import ClusterError, Expired, KfTrainError
from airflow_kftrain.job_state import read_mapping, read_text

_log = logging.getLogger(__name__)

WATCH_SECONDS = 150.0
"""How long a watch lasts: a connection that has died silently is noticed after that time."""
LIST_AGAIN_SECONDS = 600.0
"""How often everything is listed again, in case a watch has missed something."""
TOLD_AFTER_SECONDS = 10.0
"""An error that passes sooner is not reported."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_HELD_SECONDS = 5.0
"""A watch that lasts this long works."""
_LONGEST_ASKED = LIST_AGAIN_SECONDS
"""A server may ask for a longer pause, but not for one that never ends."""
_SHUT_PAUSE = 300.0
"""How long to wait before asking again for a missing permission."""
_SLICE_SECONDS = 0.005
"""How long objects are processed before the event loop gets a turn."""


class Sink(Protocol):
    """Receives the objects. A list arrives as begin, put..., complete."""

    def begin(self) -> None: ...

    def put(self, item: Mapping[str, Any]) -> None: ...

    def drop(self, item: Mapping[str, Any]) -> None:
        """The object has left the selection; `item` is its last state."""

    def complete(self) -> None:
        """Objects that were not put since `begin` no longer exist."""

    def changed(self) -> None:
        """`problem` or `polls` of the stream has changed."""


class Source(Protocol):
    """Where the objects come from."""

    async def snapshot(self) -> tuple[str, AsyncIterator[dict[str, Any]]]: ...

    def watch(self, version: str, seconds: float) -> AsyncIterator[tuple[str, dict[str, Any]]]: ...

    def broke(self, error: ClusterError) -> None:
        """A watch has failed."""


class Problem(NamedTuple):
    """Why a stream delivers nothing at the moment."""

    error: KfTrainError
    since: float
    """By the clock of the event loop."""
    is_final: bool
    """Whether it cannot pass by itself, so that waiting is useless."""


class Stream:
    def __init__(self, source: Source, sink: Sink, poll_seconds: Callable[[], float]) -> None:
        self._source = source
        self._sink = sink
        self._poll_seconds = poll_seconds
        self._version = ""
        """The last version that was seen."""
        self._failures = 0
        self._failing_since: float | None = None
        self._slice_began = 0.0
        self.synced = False
        """Whether the whole selection has been listed at least once."""
        self.problem: Problem | None = None
        self.polls: ClusterError | None = None
        """Why it lists now and then instead of watching."""

    @property
    def is_shut(self) -> bool:
        """Whether it delivers nothing until somebody fixes the problem."""
        return self.problem is not None and self.problem.is_final

    @property
    def shut(self) -> KfTrainError | None:
        """What has to be fixed before it can watch."""
        if self.problem is not None and self.is_shut:
            return self.problem.error
        return self.polls

    async def run(self) -> None:
        while True:
            try:
                await self._from_a_list()
            except Expired:
                await asyncio.sleep(self._pause())
            except KfTrainError as error:
                await asyncio.sleep(self._fail(error))
            except Exception as error:  # noqa: BLE001  # a stream that dies hangs all its tasks
                doing = "watch the jobs"
                wrapped = ClusterError(doing, f"{type(error).__name__} in airflow-kftrain: {error}")
                await asyncio.sleep(self._fail(wrapped))

    async def _from_a_list(self) -> None:
        """Lists, and watches until it is time to list again."""
        now = asyncio.get_running_loop().time
        await self._list()
        again = now() + jittered(LIST_AGAIN_SECONDS)
        broken = False
        while now() < again:
            began = now()
            try:
                await self._watch()
                broken = False
                pause = 0.0 if now() - began > _HELD_SECONDS else self._pause()
            except Expired as error:
                self._source.broke(error)
                raise
            except ClusterError as error:
                self._source.broke(error)
                if not error.retryable:
                    self._polls(error)
                    self._failures = 0
                    await asyncio.sleep(jittered(self._poll_seconds()))
                    return
                # After the first error it may continue from the same version. If the server is away
                # for longer, it may have forgotten that version, or another server may have taken
                # its place.
                if broken:
                    raise
                broken, pause = True, max(_asked(error), self._pause())
            await asyncio.sleep(pause)

    async def _list(self) -> None:
        self._version, items = await self._source.snapshot()
        self._answers()
        self._sink.begin()
        async for item in items:
            self._take(self._sink.put, item)
            await self._breathe()
        self._sink.complete()
        if not self.synced:
            self.synced = True
            self._sink.changed()

    async def _watch(self) -> None:
        timer = asyncio.get_running_loop().call_later(_HELD_SECONDS, self._holds)
        events = self._source.watch(self._version, jittered(WATCH_SECONDS))
        try:
            async for kind, item in events:
                if kind == "DELETED":
                    self._take(self._sink.drop, item)
                elif kind in ("ADDED", "MODIFIED"):
                    self._take(self._sink.put, item)
                told = read_text(read_mapping(item.get("metadata")).get("resourceVersion"))
                self._version = told or self._version
                self._answers()
                await self._breathe()
        finally:
            timer.cancel()
            await events.aclose()  # type: ignore[attr-defined]  # all our sources are generators

    def _take(self, take: Callable[[Mapping[str, Any]], None], item: Mapping[str, Any]) -> None:
        """An object that cannot be processed must not block the others."""
        try:
            take(item)
        except Exception:  # noqa: BLE001  # whatever it is
            name = read_text(read_mapping(item.get("metadata")).get("name"))
            _log.exception("%s is skipped, a bug in airflow-kftrain", name)

    async def _breathe(self) -> None:
        """Reading from a buffer never yields to the event loop, so this does."""
        now = asyncio.get_running_loop().time
        if now() - self._slice_began > _SLICE_SECONDS:
            await asyncio.sleep(0)
            self._slice_began = now()

    def _answers(self) -> None:
        self._failing_since = None
        if self.problem is not None:
            self.problem = None
            self._sink.changed()

    def _holds(self) -> None:
        """Called when the watch has lasted long enough."""
        self._failures = 0
        if self.polls is not None:
            self.polls = None
            self._sink.changed()

    def _polls(self, error: ClusterError) -> None:
        if self.polls is None:
            self.polls = error
            self._sink.changed()

    def _fail(self, error: KfTrainError) -> float:
        """Remembers the error. Returns the seconds until the next attempt."""
        now = asyncio.get_running_loop().time()
        final = not error.retryable
        if self._failing_since is None:
            self._failing_since = now
        asked = _asked(error)
        if final or max(asked, now - self._failing_since) >= TOLD_AFTER_SECONDS:
            before, self.problem = self.problem, Problem(error, self._failing_since, final)
            if before is None or before.is_final != final:
                self._sink.changed()
        return jittered(_SHUT_PAUSE) if final else max(asked, self._pause())

    def _pause(self) -> float:
        """Grows each time, until a watch lasts."""
        self._failures += 1
        return jittered(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._failures - 1, 10)))


def _asked(error: KfTrainError) -> float:
    """The pause in seconds that the server has asked for, or slightly more."""
    seconds = min(getattr(error, "retry_after", None) or 0.0, _LONGEST_ASKED)
    return seconds * random.uniform(1.0, 1.25)


def jittered(seconds: float) -> float:
    """Keeps triggerers that lost their server at the same moment from coming back at the same
    moment."""
    return seconds * random.uniform(0.75, 1.25)
