"""Reads the end of the leader's log now and then, for two questions: how far is the training, and
does it still write anything?

Only for tasks that ask for it: it costs a call per job and minute, or less.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from airflow_kftrain.errors import KfTrainError, NotFound
from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.progress import Progress, read_line
from airflow_kftrain.watching.evidence import find_leader
from airflow_kftrain.watching.feeds import Subscription
from airflow_kftrain.watching.masking import Mask
from airflow_kftrain.watching.reading import TIMED, second_of
from airflow_kftrain.watching.streams import jittered

_log = logging.getLogger(__name__)

FIRST_SECONDS = 10.0
"""After the training has started: before anything else, people ask whether it trains at all."""
PROGRESS_SECONDS = 60.0
PROGRESS_LATER = 300.0
"""Nobody looks at a training of days each minute."""
_LATER_SHARE = 0.5
"""Between them, the pause is this share of the time for which the training has run: about as long
as those between two writes of the XCom."""
LEAST_SECONDS = 60.0
_TAIL_LINES = 200
_MOST_BYTES = 128 * 1024
_LAST_SECONDS = 10.0


class LeaderLog:
    """The leader's log of one job."""

    __slots__ = (
        "_began",
        "_latest",
        "_leader",
        "_limit",
        "_mask",
        "_order",
        "_progress",
        "_reading",
        "_subscription",
        "_wrote_at",
        "due",
    )

    def __init__(
        self, order: WatchOrder, subscription: Subscription, mask: Mask, progress: Progress
    ) -> None:
        self._order = order
        self._subscription = subscription
        self._mask = mask
        self._progress = progress
        self._limit = order.timeouts.silence
        self._leader: tuple[str, str] | None = None
        """Pod and container, once they are known."""
        self._latest: _Line | None = None
        self._began: float | None = None
        """Since when the training is known to run, by the clock of the event loop."""
        self._wrote_at: float | None = None
        """When it was last seen to have changed, by the clock of the event loop; None while silence
        does not count."""
        self._reading: asyncio.Task[str] | None = None
        self.due: float | None = None

    @property
    def _pause(self) -> float:
        pauses = []
        if self._order.progress:
            runs_for = _now() - self._began if self._began is not None else 0.0
            pauses.append(min(max(PROGRESS_SECONDS, _LATER_SHARE * runs_for), PROGRESS_LATER))
        if self._limit is not None:
            pauses.append(max(self._limit.total_seconds() / 4, LEAST_SECONDS))
        return min(pauses)

    @property
    def is_silent(self) -> bool:
        """Whether nothing has been written for longer than the limit."""
        if self._limit is None or self._wrote_at is None or self._reading is not None:
            return False
        return _now() - self._wrote_at >= self._limit.total_seconds()

    def look(self, state: JobState | None) -> bool:
        """Starts to read the log if that is due: a node that is away must not delay a decision.
        Returns whether there is news of the progress."""
        if state is None or state.phase is not Phase.RUNNING:
            # Queued, starting, restarting: nobody writes anything, and the leader may be another.
            self.due = self._leader = self._wrote_at = self._began = None
            self.stop()
            return False
        if self._reading is not None:
            return self._taken(self._reading) if self._reading.done() else False
        now = _now()
        if self._began is None:
            self._began = now
        if self.due is None:
            self.due = now + jittered(min(FIRST_SECONDS, self._pause))
        if now >= self.due:
            self.due = None
            self._reading = self._subscription.feed.hub.start(self._read())
            self._reading.add_done_callback(lambda _: self._subscription.wake())
        return False

    def _taken(self, reading: asyncio.Task[str]) -> bool:
        self._reading, now = None, _now()
        self.due = now + jittered(self._pause)
        try:
            return self._take(reading.result(), now)
        except KfTrainError as error:
            if isinstance(error, NotFound):
                self._leader = None
        except Exception:  # noqa: BLE001  # a fault of ours must not fail a training
            _log.exception("The leader's log is not read, a bug in airflow-kftrain")
        self._wrote_at = None  # what cannot be read is not silent
        return False

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def finish(self, pods: Sequence[PodState]) -> None:
        """Takes the last progress, when the job has ended."""
        self.stop()
        leader = find_leader(pods)
        if leader is None:
            return
        self._leader = (leader.name, leader.container)
        with contextlib.suppress(KfTrainError, asyncio.TimeoutError):
            self._take(await asyncio.wait_for(self._read(), _LAST_SECONDS), _now())

    async def _read(self) -> str:
        feed = self._subscription.feed
        hook, namespace = feed.hub.hook, feed.key.namespace
        async with feed.hub.log_turn:
            if not await self._mask.learn(hook):
                raise NotFound("read the log", "the secrets that it may contain are not known")
            if self._leader is None:
                raw = await hook.pods(feed.kind, namespace, self._subscription.name)
                leader = find_leader(read_pod(feed.kind, pod) for pod in raw)
                if leader is None or not leader.runs:
                    raise NotFound("read the log", "the leader does not run")
                self._leader = (leader.name, leader.container)
            text = await hook.log(
                namespace,
                *self._leader,
                tail_lines=_TAIL_LINES,
                limit_bytes=_MOST_BYTES,
                since=self._latest.time if self._latest is not None else None,
                timestamps=True,
            )
        return self._mask(text)

    def _take(self, text: str, now: float) -> bool:
        before = self._latest.key if self._latest is not None else ""
        lines = _from(before, text)
        last = lines[-1] if lines else self._latest
        if self._wrote_at is None or last != self._latest:
            self._wrote_at = now
        self._latest = last
        if not self._order.progress:
            return False
        return self._progress.take(
            (line.time, report)
            for line in lines
            if line.key > before and (report := read_line(line.text)) is not None
        )


class _Line(NamedTuple):
    key: str
    """Its time, in a form that can be compared."""
    second: str
    zone: str
    text: str

    @property
    def time(self) -> datetime:
        """In whole seconds."""
        return second_of(self.second, self.zone)


def _from(key: str, text: str) -> list[_Line]:
    """The lines that have a time, from the last one with that key or an earlier one: most lines of
    an end are known from the time before."""
    found: list[_Line] = []
    for line in reversed(text.split("\n")):
        if timed := TIMED.match(line):
            second, fraction, zone, words = timed.groups()
            found.append(_Line(f"{second}.{(fraction or '').ljust(9, '0')}", second, zone, words))
            if found[-1].key <= key:
                break
    found.reverse()
    return found


def _now() -> float:
    return asyncio.get_running_loop().time()
