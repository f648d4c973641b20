"""Waiting for a job on the worker, where signals arrive at any moment.

The watch runs in a thread of its own. Airflow's execution timeout and its SIGTERM are signals, and
Python handles those in the main thread, in the middle of whatever that does: in an event loop they
would end some task of it at random.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.messages import Outcome, ReplicaPod, WatchOrder

_LAST_WORDS = 30.0
"""Seconds for the report of a watch whose deadline is up, or that has been stopped."""


class Waiting:
    """One watch, and the way to end it early."""

    def __init__(
        self,
        order: WatchOrder,
        tell: Callable[[str], None],
        pods_known: Callable[[Sequence[ReplicaPod]], Awaitable[None]] | None,
    ) -> None:
        self._order = order
        self._tell = tell
        self._pods_known = pods_known
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> Outcome | None:
        """How the job ended; None if it was stopped before."""
        thread = threading.Thread(target=self._run, name="kftrain-watch", daemon=True)
        try:
            thread.start()
            self._done.wait()
        except exceptions().AirflowTaskTimeout:
            # The same deadline is in the order: the watch is about to say where the job stood.
            self._done.wait(_LAST_WORDS)
            if self._outcome is None:
                raise
        finally:
            self.stop()
            thread.join(_LAST_WORDS)
        if self._error is not None:
            raise self._error
        return self._outcome

    def stop(self) -> None:
        """May be called at any moment, also by a signal handler."""
        self._stopped = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001  # told in the thread that waits
            self._error = error
        finally:
            self._done.set()

    async def _watch(self) -> None:
        from airflow_kftrain.watching.watcher import watch_job

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._stopped:
            return
        self._outcome = await watch_job(
            self._order,
            tell=self._tell,
            pods_known=self._pods_known,
            follow_logs=self._order.show_logs != "off",
        )
