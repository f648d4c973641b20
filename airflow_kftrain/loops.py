"""Runs an event loop in a thread of its own, for code that blocks.

Airflow's execution timeout and SIGTERM are signals. Python handles them in the main thread, in the
middle of whatever it does: in an event loop they would hit some task at random. Here the main
thread only waits, so a signal ends that wait and nothing else.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from math import inf
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_HEED_SIGNALS = 0.5
"""How often, in seconds, the main thread handles signals: a signal does not end a wait if it
arrives just before it, or in another thread."""
_AT_EXIT = 1.0
"""How many seconds connections have to close when the process ends."""


class WorkerEnded(BaseException):
    """SIGTERM arrived during a call to the cluster. Not an Exception, so that no code mistakes it
    for an error of the cluster."""


class Call(Generic[T]):
    """A coroutine that runs in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        self._ended = threading.Event()
        loop.call_soon_threadsafe(self._start)

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until it has ended, or for so many seconds. Returns whether it has ended."""
        end = inf if seconds is None else time.monotonic() + seconds
        while not self._ended.wait(min(_HEED_SIGNALS, max(end - time.monotonic(), 0))):
            if time.monotonic() >= end:
                return False
        return True

    def result(self) -> T:
        """Returns what it returned, or raises what it raised; CancelledError if it was
        cancelled."""
        self.wait()
        assert self._task is not None
        return self._task.result()

    def cancel(self) -> None:
        """May be called at any moment, even in a signal handler: it takes no lock."""
        self._is_cancelled = True
        with suppress(RuntimeError):  # the loop has just ended
            self._loop.call_soon_threadsafe(self._cancel)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self._ended.set())
        if self._is_cancelled:
            self._task.cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class LoopThread:
    """Starts with its first call. When nothing refers to it, it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> Call[T]:
        return Call(self._started(), work)

    def stop(self) -> None:
        """May be called in any thread. Waits for nothing."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(stopping.set)

    def close(self, patience: float) -> None:
        """Ends what still runs, and closes connections."""
        self.stop()
        if self._thread is not None:
            self._thread.join(patience)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                ready = threading.Event()
                run = (self._serve(ready),)
                self._thread = threading.Thread(
                    target=asyncio.run, args=run, name=self._name, daemon=True
                )
                self._thread.start()
                ready.wait()
                _living.add(self)
            assert self._loop is not None
            return self._loop

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._stopping.wait()


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Completes the work even if the caller is cancelled: otherwise the response to a request to
    Airflow would be read by the next one."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


_living: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for each in [*_living]:
        each.close(_AT_EXIT)


class Interruptible:
    """Calls that SIGTERM may cancel, once: the calls that clean up afterwards are not cancelled.
    Airflow gives a worker 5 seconds; one call may take 30, and the pauses between attempts more."""

    def __init__(self, *, is_due: bool = False) -> None:
        self._call: Call[Any] | None = None
        self._is_due = is_due
        self._is_done = False

    def interrupt(self) -> None:
        """Called in a signal handler."""
        self._is_due = True
        call = self._call
        if call is not None:
            call.cancel()

    def result(self, thread: LoopThread, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work in the thread, and returns its result. Raises WorkerEnded."""
        if self._is_done:
            return _result(thread.call(work))
        if self._is_due:
            work.close()
            raise self._ended()
        call = thread.call(work)
        self._call = call
        if self._is_due:  # it arrived just now
            call.cancel()
        try:
            return _result(call)
        except asyncio.CancelledError:
            raise self._ended() from None
        finally:
            self._call = None

    def _ended(self) -> WorkerEnded:
        self._is_done = True
        return WorkerEnded("The worker is being stopped (SIGTERM).")


def _result(call: Call[T]) -> T:
    try:
        return call.result()
    except BaseException:  # for example Airflow's timeout: nobody waits any more
        call.cancel()
        raise
