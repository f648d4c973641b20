"""Waiting in a worker: signals arrive in the middle of it, and must not end anything at random.

The watch is replaced; Airflow's timeout and the signals are real.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from airflow.sdk.execution_time.timeout import timeout

from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.operators import waiting
from airflow_kftrain.operators.waiting import Waiting

ORDER = WatchOrder(JobReference("PyTorchJob", "ml", "job", "uid"), "kubeflow.org/v1")
TIMED_OUT = Outcome(Verdict.TIMED_OUT, words="It was not done in time.")
Watch = Callable[[], Awaitable[Outcome]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Watch], Waiting]:
    def make(watch: Watch) -> Waiting:
        async def stands_in(order: WatchOrder, **_: Any) -> Outcome:
            assert order == ORDER
            return await watch()

        monkeypatch.setattr("airflow_kftrain.watching.watcher.watch_job", stands_in)
        monkeypatch.setattr(waiting, "_LAST_WORDS", 0.3)
        return Waiting(ORDER, print, None)

    return make


async def never() -> Outcome:
    await asyncio.sleep(60)
    raise AssertionError("it was to be cancelled")


def test_the_outcome_is_what_the_watch_says(watched: Callable[[Watch], Waiting]) -> None:
    async def at_once() -> Outcome:
        return TIMED_OUT

    assert watched(at_once).watch() is TIMED_OUT


def test_a_timeout_waits_for_the_report_that_is_about_to_come(
    watched: Callable[[Watch], Waiting],
) -> None:
    async def a_little_late() -> Outcome:
        await asyncio.sleep(0.3)
        return TIMED_OUT

    with timeout(0.2):
        assert watched(a_little_late).watch() is TIMED_OUT


def test_a_timeout_ends_a_watch_that_does_not_end(watched: Callable[[Watch], Waiting]) -> None:
    ended = threading.Event()

    async def hangs() -> Outcome:
        try:
            return await never()
        finally:
            ended.set()

    with pytest.raises(exceptions().AirflowTaskTimeout), timeout(0.2):
        watched(hangs).watch()
    assert ended.wait(5)


def test_a_signal_stops_it(watched: Callable[[Watch], Waiting]) -> None:
    stopped = watched(never)
    former = signal.signal(signal.SIGTERM, lambda *_: stopped.stop())
    killer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
    killer.start()
    try:
        assert stopped.watch() is None
    finally:
        killer.join()
        signal.signal(signal.SIGTERM, former)


def test_one_that_is_stopped_before_it_starts_does_not_start(
    watched: Callable[[Watch], Waiting],
) -> None:
    stopped = watched(never)
    stopped.stop()
    assert stopped.watch() is None


def test_a_fault_in_the_watch_is_told_where_one_waits(
    watched: Callable[[Watch], Waiting],
) -> None:
    async def broken() -> Outcome:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        watched(broken).watch()
