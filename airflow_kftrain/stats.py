"""Metrics of our own, sent by Airflow's Stats: to statsd, Datadog or OpenTelemetry. Their names are
here, and in docs/metrics.md.

Nothing here raises an error, and nothing is done if Airflow sends no metrics.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from contextvars import Context
from datetime import timedelta
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakSet

from airflow_kftrain import airflow_compat
from airflow_kftrain.monitoring.usage import Usage

JOBS = "kftrain.jobs"
FINISH = "kftrain.job.finish"
QUEUED = "kftrain.job.queued_duration"
STARTING = "kftrain.job.starting_duration"
RUNNING = "kftrain.job.running_duration"
RECONNECT = "kftrain.watch.reconnect"
API_CALLS = "kftrain.api_calls"

GAUGE_SECONDS = 10.0
"""How often the gauge is sent: statsd servers and Datadog forget values that are not repeated."""
_NONE = "none"

_log = logging.getLogger(__name__)
_lock = Lock()
_jobs: Counter[tuple[str, str]] = Counter()
"""Jobs that this process watches, by kind and phase."""
_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Those that send the gauge now and then."""


class _Sender(NamedTuple):
    stats: Any
    keeps_tags: bool
    hostname: str


def prepare() -> None:
    """Imports what sends metrics, and looks up names. Call it in a thread, before everything
    else."""
    _sender()


def api_called(verb: str, code: int | None) -> None:
    """`code` is None if there was no response."""
    _send("incr", API_CALLS, 1, verb=verb, code=str(code or _NONE))


def watch_broke(kind: str, error: Exception) -> None:
    _send("incr", RECONNECT, 1, kind=kind, error=type(error).__name__)


def job_ended(kind: str, verdict: str, fault: str | None) -> None:
    _send("incr", FINISH, 1, kind=kind, verdict=verdict, fault=fault or _NONE)


def job_lasted(kind: str, usage: Usage) -> None:
    """How long each phase has lasted, as far as that is known."""
    phases = ((QUEUED, usage.queued), (STARTING, usage.starting), (RUNNING, usage.running))
    for name, seconds in phases:
        if seconds is not None:
            _send("timing", name, timedelta(seconds=seconds), kind=kind)


def job_moved(kind: str, before: str, after: str) -> None:
    """From one phase to another; "" stands for a job that is not watched. Called in the event loop
    of a triggerer. It only counts, since there may be thousands of jobs."""
    if before == after or _sender() is None:
        return
    if before:
        _jobs[kind, before] -= 1
    if after:
        _jobs[kind, after] += 1
    loop = asyncio.get_running_loop()
    if loop not in _loops:
        _loops.add(loop)
        _send_gauge_later(loop)


def _send_gauge_later(loop: asyncio.AbstractEventLoop) -> None:
    # In a context of its own, or it would write to the log of the task that happened to come first.
    loop.call_later(GAUGE_SECONDS, _send_gauge, loop, context=Context())


def _send_gauge(loop: asyncio.AbstractEventLoop) -> None:
    sender = _sender()
    hostname = sender.hostname if sender else ""
    for (kind, phase), number in _jobs.items():
        _send("gauge", JOBS, number, kind=kind, phase=phase, hostname=hostname)
    if any(_jobs.values()):
        _send_gauge_later(loop)
    else:
        _loops.discard(loop)


def _send(method: str, name: str, value: float | timedelta, **tags: str) -> None:
    sender = _sender()
    if sender is None:
        return
    given = {tag: text.replace(" ", "_") or _NONE for tag, text in tags.items()}
    try:
        if sender.keeps_tags:
            getattr(sender.stats, method)(name, value, tags=given)
        else:
            parts = (text.replace(".", "__") for text in given.values())
            getattr(sender.stats, method)(".".join((name, *parts)), value)
    except Exception as error:  # noqa: BLE001  # of any backend
        _warn(f"{type(error).__name__}: {error}")


@functools.cache
def _sender() -> _Sender | None:
    """None if Airflow sends no metrics."""
    try:
        with _lock:
            stats = airflow_compat.stats()
            if stats is None:
                return None
            return _Sender(stats, airflow_compat.stats_keep_tags(), airflow_compat.hostname())
    except Exception as error:  # noqa: BLE001  # of any backend
        _warn(f"{type(error).__name__}: {error}")
        return None


@functools.lru_cache(maxsize=8)
def _warn(problem: str) -> None:
    """Once for each problem."""
    _log.warning("Metrics of airflow-kftrain cannot be sent: %s", problem)
