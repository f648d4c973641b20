"""Waits for a job in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from airflow_kftrain.airflow_compat import exceptions, shows_task_tab
from airflow_kftrain.loops import Call, LoopThread
from airflow_kftrain.messages import Outcome, ReplicaPod, WatchOrder

_LAST_WORDS = 30.0
"""Seconds for the report of a watch whose deadline has expired, or that was stopped."""


class Waiting:
    """One watch, which can be ended early."""

    def __init__(
        self,
        order: WatchOrder,
        tell: Callable[[str], None],
        pods_known: Callable[[Sequence[ReplicaPod]], Awaitable[None]] | None,
        store: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
    ) -> None:
        self._order = order
        self._tell = tell
        self._pods_known = pods_known
        self._store = store
        self._is_stopped = False
        self._call: Call[Outcome] | None = None

    def watch(self) -> Outcome | None:
        """How the job ended; None if the watch was stopped before."""
        thread = LoopThread("kftrain-watch")
        self._call = call = thread.call(self._watch())
        if self._is_stopped:
            call.cancel()
        try:
            return call.result()
        except asyncio.CancelledError:
            return None
        except exceptions().AirflowTaskTimeout:
            # The order has the same deadline: the watch is about to return.
            if not call.wait(_LAST_WORDS):
                raise
            return call.result()
        finally:
            call.cancel()
            thread.close(_LAST_WORDS)

    def stop(self) -> None:
        """May be called at any time, even in a signal handler."""
        self._is_stopped = True
        call = self._call
        if call is not None:
            call.cancel()

    async def _watch(self) -> Outcome:
        from airflow_kftrain.watching.watcher import watch_job

        return await watch_job(
            self._order,
            tell=self._tell,
            pods_known=self._pods_known,
            store=self._store,
            live=shows_task_tab(),
            follow_logs=self._order.show_logs != "off",
        )
