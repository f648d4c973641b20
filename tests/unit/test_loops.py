"""loops.py: coroutines for code that blocks, and the effect of signals on it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_kftrain.loops import Interruptible, LoopThread, WorkerEnded, finished


class Alarm(Exception):
    """Like the exception of Airflow's timeout."""


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    yield thread
    thread.close(5)


@contextmanager
def signalled(handler: Callable[..., Any], after: float = 0.1) -> Iterator[None]:
    """SIGTERM arrives meanwhile."""
    former = signal.signal(signal.SIGTERM, handler)
    killer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGTERM))
    killer.start()
    try:
        yield
    finally:
        killer.join()
        signal.signal(signal.SIGTERM, former)


async def value() -> str:
    await asyncio.sleep(0)
    return "value"


async def never() -> str:
    await asyncio.sleep(60)
    return "never"


async def broken() -> None:
    raise ValueError("broken")


def test_a_call_returns_or_raises_what_its_coroutine_does(thread: LoopThread) -> None:
    assert thread.call(value()).result() == "value"
    with pytest.raises(ValueError, match="broken"):
        thread.call(broken()).result()


def test_all_calls_are_made_in_one_loop(thread: LoopThread) -> None:
    async def loop() -> int:
        return id(asyncio.get_running_loop())

    assert thread.call(loop()).result() == thread.call(loop()).result()


def test_a_wait_for_a_call_may_end_before_it(thread: LoopThread) -> None:
    call = thread.call(never())
    assert not call.wait(0.1)
    call.cancel()
    assert call.wait(5)
    with pytest.raises(asyncio.CancelledError):
        call.result()


def test_a_call_that_is_cancelled_at_once_does_not_begin(thread: LoopThread) -> None:
    begun = []

    async def work() -> None:
        begun.append(1)

    async def later() -> None:
        call = thread.call(work())
        call.cancel()

    thread.call(later()).result()
    thread.call(value()).result()
    assert begun == []


def test_a_thread_that_is_closed_ends_its_calls_first(thread: LoopThread) -> None:
    ended = []

    async def work() -> None:
        try:
            await never()
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    thread.call(work()).wait(0.1)
    thread.close(5)
    assert ended == [1]


def test_an_alarm_ends_a_call(thread: LoopThread) -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await never()
        finally:
            ended.set()

    def ring(*_: object) -> None:
        raise Alarm

    with pytest.raises(Alarm), signalled(ring):
        Interruptible().result(thread, work())
    assert ended.wait(5)


def test_sigterm_ends_one_call(thread: LoopThread) -> None:
    """The calls that clean up afterwards are not cancelled."""
    calls = Interruptible()
    with pytest.raises(WorkerEnded), signalled(lambda *_: calls.interrupt()):
        calls.result(thread, never())
    calls.interrupt()
    assert calls.result(thread, value()) == "value"


@pytest.mark.parametrize("is_due", [True, False])
def test_after_sigterm_no_other_call_begins(thread: LoopThread, is_due: bool) -> None:
    calls = Interruptible(is_due=is_due)
    if not is_due:
        calls.interrupt()
    begun = []

    async def work() -> None:
        begun.append(1)

    with pytest.raises(WorkerEnded):
        calls.result(thread, work())
    assert begun == []


def test_sigterm_leaves_the_answer_of_a_call_that_ends_all_the_same(thread: LoopThread) -> None:
    """So nothing that was created is forgotten; the next call ends instead."""
    calls = Interruptible()

    async def work() -> str:
        calls.interrupt()
        return "made"

    assert calls.result(thread, work()) == "made"
    with pytest.raises(WorkerEnded):
        calls.result(thread, value())


def test_what_must_be_finished_is_finished_before_its_caller_is_cancelled(
    thread: LoopThread,
) -> None:
    done = []

    async def slow() -> None:
        await asyncio.sleep(0.2)
        done.append(1)

    call = thread.call(finished(slow()))
    call.wait(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        call.result()
    assert done == [1]


def test_a_thread_that_is_dropped_ends() -> None:
    class Owner:
        def __init__(self) -> None:
            self.thread = LoopThread("dropped")
            weakref.finalize(self, self.thread.stop)

    owner = Owner()
    owner.thread.call(value()).result()
    (running,) = (each for each in threading.enumerate() if each.name == "dropped")
    del owner
    gc.collect()
    running.join(5)
    assert not running.is_alive()


def test_a_wait_heeds_a_signal_that_came_before_it(thread: LoopThread) -> None:
    """Another thread has received the signal, so nothing wakes the main thread."""
    calls = Interruptible()
    former = signal.signal(signal.SIGTERM, lambda *_: calls.interrupt())
    beside = threading.Timer(
        0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    )
    beside.start()
    began = time.monotonic()
    try:
        with pytest.raises(WorkerEnded):
            calls.result(thread, never())
    finally:
        beside.join()
        signal.signal(signal.SIGTERM, former)
    assert time.monotonic() - began < 30
