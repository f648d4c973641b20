"""Follows one selection of objects for as long as it is let: list, watch, and go on after trouble.

list in pages -> watch from its version -> watch ends -> watch on from the last version told
                                        -> 410       -> list anew
                                        -> forbidden -> list now and then instead
                                        -> trouble   -> again, later each time, with chance in it

Only a watch that holds ends the trouble: a list that succeeds between two watches that fail would
else be asked for every second. What becomes of the objects is for its sink to say. A stream ends
only when it is cancelled.
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
"""A connection that died in silence is noticed after so long."""
LIST_AGAIN_SECONDS = 600.0
"""A watch may miss something: the whole is looked at again."""
TOLD_AFTER_SECONDS = 10.0
"""Trouble that passes sooner is nobody's concern."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_HELD_SECONDS = 5.0
"""A watch that lasts so long works."""
_LONGEST_ASKED = LIST_AGAIN_SECONDS
"""A server may say when to come back, but not that nobody shall ever look again."""
_SHUT_PAUSE = 300.0
"""Until a right that is missing is asked for again."""
_SLICE_SECONDS = 0.005
"""Objects are taken for so long at a stretch, then the event loop has its turn."""


class Sink(Protocol):
    """What takes the objects. A list is told as begin, put..., complete."""

    def begin(self) -> None: ...

    def put(self, item: Mapping[str, Any]) -> None: ...

    def drop(self, item: Mapping[str, Any]) -> None:
        """It left the selection; as it was last."""

    def complete(self) -> None:
        """What was not put since `begin` is not there."""

    def changed(self) -> None:
        """The stream's `problem` or `polls` is another one."""


class Source(Protocol):
    """Where the objects come from."""

    async def snapshot(self) -> tuple[str, AsyncIterator[dict[str, Any]]]: ...

    def watch(self, version: str, seconds: float) -> AsyncIterator[tuple[str, dict[str, Any]]]: ...


class Problem(NamedTuple):
    """Why a stream brings nothing now."""

    error: KfTrainError
    since: float
    """By the clock of the loop."""
    is_final: bool
    """It will not pass by itself: nobody should wait for it."""


class Stream:
    def __init__(self, source: Source, sink: Sink, poll_seconds: Callable[[], float]) -> None:
        self._source = source
        self._sink = sink
        self._poll_seconds = poll_seconds
        self._version = ""
        """The last that was told."""
        self._failures = 0
        self._failing_since: float | None = None
        self._slice_began = 0.0
        self.synced = False
        """The whole selection has been listed at least once."""
        self.problem: Problem | None = None
        self.polls: ClusterError | None = None
        """Why it lists now and then instead of watching."""

    @property
    def is_shut(self) -> bool:
        """It brings nothing until something is mended."""
        return self.problem is not None and self.problem.is_final

    @property
    def shut(self) -> KfTrainError | None:
        """What has to be mended before it can watch."""
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
                doing = "follow the jobs"
                wrapped = ClusterError(doing, f"{type(error).__name__} in airflow-kftrain: {error}")
                await asyncio.sleep(self._fail(wrapped))

    async def _from_a_list(self) -> None:
        """List, and watch until it is time to list again."""
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
            except Expired:
                raise
            except ClusterError as error:
                if not error.retryable:
                    self._polls(error)
                    self._failures = 0
                    await asyncio.sleep(jittered(self._poll_seconds()))
                    return
                # Once it may go on where it stood. Who is away for longer may have forgotten that,
                # or be another server.
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
        now = asyncio.get_running_loop().time
        began = now()
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
            if now() - began > _HELD_SECONDS:
                self._failures = 0
            await events.aclose()  # type: ignore[attr-defined]  # all our sources are generators

    def _take(self, take: Callable[[Mapping[str, Any]], None], item: Mapping[str, Any]) -> None:
        """One that cannot be taken must not keep the others from being seen."""
        try:
            take(item)
        except Exception:  # noqa: BLE001  # whatever it is
            name = read_text(read_mapping(item.get("metadata")).get("name"))
            _log.exception("%s is passed over, a fault of airflow-kftrain", name)

    async def _breathe(self) -> None:
        """What is read from a buffer does not wait by itself."""
        now = asyncio.get_running_loop().time
        if now() - self._slice_began > _SLICE_SECONDS:
            await asyncio.sleep(0)
            self._slice_began = now()

    def _answers(self) -> None:
        self._failing_since = None
        if self.problem is not None:
            self.problem = None
            self._sink.changed()

    def _polls(self, error: ClusterError) -> None:
        if self.polls is None:
            self.polls = error
            self._sink.changed()

    def _fail(self, error: KfTrainError) -> float:
        """Remembers the trouble; seconds until the next try."""
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
        """Longer each time, until a watch holds."""
        self._failures += 1
        return jittered(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._failures - 1, 10)))


def _asked(error: KfTrainError) -> float:
    """Seconds for which the server wants to be left alone, and never less."""
    seconds = min(getattr(error, "retry_after", None) or 0.0, _LONGEST_ASKED)
    return seconds * random.uniform(1.0, 1.25)


def jittered(seconds: float) -> float:
    """Triggerers that lost their server in one moment shall not come back in one."""
    return seconds * random.uniform(0.75, 1.25)
