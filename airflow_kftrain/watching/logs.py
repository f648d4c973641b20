"""Shows the logs of pods in the task's log: as they are written while a worker waits, once a minute
and within a limit in a triggerer.

Each line comes with its time. So reading can continue after a broken connection, a restart of the
container, or the end of a slice. Best effort: a log that cannot be read ends nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.text import last_lines, moment, one_line
from airflow_kftrain.watching.feeds import Hub
from airflow_kftrain.watching.masking import Mask, Tell
from airflow_kftrain.watching.reading import TAIL_LINES, TAIL_SIZE, TIMED, second_of
from airflow_kftrain.watching.streams import jittered

_log = logging.getLogger(__name__)

SLICE_SECONDS = 60.0
LOOK_SECONDS = 3.0
"""Seconds between checks for new pods, until logs of some are shown; then less often."""

_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
_TAKEN_OVER = timedelta(minutes=2)

_DRAIN_SECONDS = 5.0
"""How long lines are still read after the job has ended."""
_STEADY_LOOK_SECONDS = 15.0
_MOST_PODS = 32
_LEAST_BYTES = 1024
_LAST_BYTES = 64 * 1024


def is_taken_over(order: WatchOrder, now: datetime) -> bool:
    """Whether the order is older than usual: then another triggerer has died in the meantime."""
    return order.ordered is not None and now - order.ordered > _TAKEN_OVER


class Line(NamedTuple):
    """A line of a log. Lines of several pods can be sorted by their times."""

    time: datetime
    """The second."""
    fraction: str
    """Of the second, in nine digits."""
    text: str

    @property
    def timed(self) -> str:
        """As with `kubectl logs --timestamps`, but with milliseconds."""
        second = self.time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{second}.{self.fraction[:3].ljust(3, '0')}Z {self.text}"


class Cursor:
    """How far the log of a container has been shown."""

    __slots__ = ("_last", "_same", "_skip", "since")

    def __init__(self, since: datetime | None = None) -> None:
        self.since = since
        self._last = ("", "")
        self._same = 0
        """How many lines with the latest time were shown: lines may have the same time."""
        self._skip = 0

    def again(self) -> datetime | None:
        """The time from which to continue. The server starts at a whole second, so lines that were
        shown already are skipped."""
        self._skip = self._same
        return self.since

    def new(self, line: str) -> Line | None:
        """The line; None if it was shown already."""
        timed = TIMED.match(line)
        if timed is None:  # it belongs to the line before
            return Line(self.since or _LONG_AGO, self._last[1], line)
        second, fraction, zone, text = timed.groups()
        key = (second, (fraction or "").ljust(9, "0"))
        if key < self._last:
            return None
        if key == self._last:
            if self._skip:
                self._skip -= 1
                return None
            self._same += 1
            return Line(second_of(second, zone), key[1], text)
        self._last, self._same, self._skip = key, 1, 0
        self.since = second_of(second, zone)
        return Line(self.since, key[1], text)

    def all_new(self, text: str) -> Iterator[Line]:
        """Splits at newlines only: each is followed by a time. Other line breaks are text."""
        for line in text.removesuffix("\n").split("\n") if text else ():
            new = self.new(line)
            if new is not None:
                *_, drawn = new.text.rstrip().split("\r")  # a progress bar overwrites itself
                yield new._replace(text=drawn)


@contextlib.asynccontextmanager
async def shown(
    hub: Hub, order: WatchOrder, tell: Tell, mask: Mask, *, stream: bool
) -> AsyncIterator[LogShow]:
    """Shows logs while the body runs, and what is left afterwards. `tell` masks what `mask`
    knows."""
    show = (StreamedLogs if stream else SlicedLogs)(hub, order, tell, mask)
    task = asyncio.get_running_loop().create_task(_safely(show.run(), tell))
    try:
        yield show
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_safely(show.finish(), tell), _DRAIN_SECONDS)
    finally:
        task.cancel()
        for follower in show.streams:
            follower.cancel()


async def _safely(work: Coroutine[Any, Any, None], tell: Tell) -> None:
    """A bug of ours only stops showing logs."""
    try:
        await work
    except Exception as error:  # noqa: BLE001  # whatever it is
        # The traceback goes to the log of the process: it means nothing to readers of the task's
        # log.
        contextvars.Context().run(_log.error, "The logs of pods are not shown", exc_info=error)
        text = one_line(f"{type(error).__name__}: {error}")
        tell(f"The pods' logs are no longer shown, a bug in airflow-kftrain: {text}")


async def read_rest(
    hook: AsyncTrainingJobHook, namespace: str, pod: PodState, cursor: Cursor
) -> str:
    """The end of a log, without the lines that were shown already."""
    try:
        text = await hook.log(
            namespace,
            pod.name,
            pod.container,
            since=cursor.again(),
            tail_lines=TAIL_LINES,
            timestamps=True,
        )
    except KfTrainError:
        return ""
    new = "\n".join(line.text for line in cursor.all_new(text))
    return "\n".join(last_lines(new, TAIL_LINES, TAIL_SIZE))


class LogShow(ABC):
    """Shows the logs of one job."""

    def __init__(self, hub: Hub, order: WatchOrder, tell: Tell, mask: Mask) -> None:
        self._hub = hub
        self._mask = mask
        self._order = order
        self._tell = tell
        self._cursors: dict[str, Cursor] = {}
        self._limit_told = False
        self._troubles: dict[str, str] = {}
        """The reason why each pod's log cannot be read, as it was logged."""
        self.streams: list[asyncio.Task[None]] = []
        """They end when their container ends, or when they are cancelled."""

    async def _pods(self) -> list[PodState]:
        """The pods whose main container has written something."""
        order = self._order
        async with self._hub.log_turn:
            if not await self._mask.learn(self._hub.hook):
                return []
            raw = await self._hub.hook.pods(order.kind, order.job.namespace, order.job.name)
        pods = [read_pod(order.kind, pod) for pod in raw]
        wanted = [
            pod
            for pod in pods
            if (pod.leads or order.show_logs == "all")
            and (pod.runs or any(end.container == pod.container for end in pod.ends))
        ]
        wanted.sort(key=lambda pod: (not pod.leads, pod.role, pod.index or 0))
        if len(wanted) > _MOST_PODS and not self._limit_told:
            self._limit_told = True
            self._tell(f"The logs of {_MOST_PODS} of {len(wanted)} pods are shown.")
        return wanted[:_MOST_PODS]

    def _cursor(self, pod: PodState, since: datetime | None = None) -> Cursor:
        return self._cursors.setdefault(_key(pod), Cursor(since))

    def read_on(self, pod: PodState) -> Cursor | None:
        """How far the log of the pod was shown; None if nothing was."""
        return self._cursors.get(_key(pod))

    def _cannot(self, pod: PodState, error: KfTrainError | None) -> None:
        """Logs the problem, but only once while it stays the same."""
        words = one_line(str(error)) if error else ""
        if words and words != self._troubles.get(pod.name):
            self._tell(f"[{pod.replica}] {words}")
        self._troubles[pod.name] = words

    @abstractmethod
    async def run(self) -> None:
        """Runs until it is cancelled."""

    @abstractmethod
    async def finish(self) -> None:
        """Called when the job has ended."""


def _key(pod: PodState) -> str:
    """A recreated pod has the name of the old one, but another time of creation."""
    return f"{pod.name} {pod.created}"


class StreamedLogs(LogShow):
    """Used by a worker that waits."""

    def __init__(self, hub: Hub, order: WatchOrder, tell: Tell, mask: Mask) -> None:
        super().__init__(hub, order, tell, mask)
        self._of_pods: dict[str, asyncio.Task[None]] = {}
        self._read: set[tuple[object, ...]] = set()

    async def run(self) -> None:
        while True:
            await self._look()
            self._drop_ended()
            if self.streams:
                # When a stream ends, look again: its container may have restarted.
                await asyncio.wait(
                    self.streams,
                    timeout=_STEADY_LOOK_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            in_vain = any(self._troubles.values())
            await asyncio.sleep(_STEADY_LOOK_SECONDS if in_vain else LOOK_SECONDS)

    def _drop_ended(self) -> None:
        """Raises the exception of a stream that failed."""
        ended = [task for task in self.streams if task.done()]
        self.streams = [task for task in self.streams if not task.done()]
        for task in ended:
            task.result()

    async def _look(self) -> None:
        with contextlib.suppress(KfTrainError):
            for pod in await self._pods():
                task = self._of_pods.get(pod.name)
                if task is None or task.done():
                    await self._follow(pod)

    async def _follow(self, pod: PodState) -> None:
        """A stream ends with its container; then another one is opened for the next. The log of a
        container that ended before there was a stream is read as a whole."""
        run = (pod.name, pod.created, len(pod.ends), pod.ends[:1])
        if pod.runs:
            task = asyncio.get_running_loop().create_task(self._stream(pod))
            self._of_pods[pod.name] = task
            self.streams.append(task)
        elif run not in self._read:
            await self._rest_of(pod)
            self._read.add(run)

    async def _stream(self, pod: PodState) -> None:
        cursor = self._cursor(pod)
        lines = self._hub.hook.follow_log(
            self._order.job.namespace,
            pod.name,
            pod.container,
            since=cursor.again(),
            timestamps=True,
        )
        try:
            async with contextlib.aclosing(lines):  # type: ignore[type-var]
                async for line in lines:
                    self._show(pod, cursor, line)
            self._cannot(pod, None)
        except KfTrainError as error:
            if not error.retryable:
                self._cannot(pod, error)

    async def finish(self) -> None:
        """Shows what is still being read, and the logs of containers that ended too soon for a
        stream."""
        if self.streams:
            await asyncio.wait(self.streams, timeout=_DRAIN_SECONDS / 2)
        self._drop_ended()
        await self._look()

    def _show(self, pod: PodState, cursor: Cursor, text: str) -> None:
        prefix = f"[{pod.replica}] " if self._order.show_logs == "all" else ""
        for line in cursor.all_new(text):
            self._tell(f"{prefix}{line.text}")

    async def _rest_of(self, pod: PodState) -> None:
        cursor = self._cursor(pod)
        with contextlib.suppress(KfTrainError):
            text = await self._hub.hook.log(
                self._order.job.namespace,
                pod.name,
                pod.container,
                since=cursor.again(),
                limit_bytes=_LAST_BYTES,
                timestamps=True,
            )
            self._show(pod, cursor, text)


class _Slice(NamedTuple):
    """The new lines of a pod's log."""

    replica: str
    lines: Sequence[Line] = ()
    omitted: str = ""
    """A line that says what is left out."""


class SlicedLogs(LogShow):
    """Used in a triggerer: one call per pod and minute."""

    def __init__(self, hub: Hub, order: WatchOrder, tell: Tell, mask: Mask) -> None:
        super().__init__(hub, order, tell, mask)
        began = datetime.now(timezone.utc)
        taken_over = is_taken_over(order, began)
        self._from = began - timedelta(seconds=SLICE_SECONDS) if taken_over else None

    async def run(self) -> None:
        if self._from is not None:
            self._tell(
                "Another triggerer has taken over: the pods' logs continue from "
                f"{moment(self._from)}."
            )
        while True:
            await asyncio.sleep(jittered(SLICE_SECONDS))
            await self._look()

    async def finish(self) -> None:
        """Does nothing: the outcome contains the end of the leader's log that was not shown."""

    async def _look(self) -> None:
        """Shows the new lines of all pods in the order of their times."""
        with contextlib.suppress(KfTrainError):
            pods = await self._pods()
            share = max(self._order.bytes_a_minute // max(len(pods), 1), _LEAST_BYTES)
            slices: list[_Slice] = []
            try:
                for pod in pods:
                    slices.append(await self._slice(pod, share))
            finally:  # the job may end meanwhile, and no line is read twice
                self._tell_in_order(slices)

    def _tell_in_order(self, slices: Sequence[_Slice]) -> None:
        lines = [(line, each.replica) for each in slices for line in each.lines]
        for line, replica in sorted(lines, key=lambda item: item[0][:2]):
            self._tell(f"[{replica}] {line.timed}")
        for each in slices:
            if each.omitted:
                self._tell(f"[{each.replica}] {each.omitted}")

    async def _slice(self, pod: PodState, share: int) -> _Slice:
        cursor = self._cursor(pod, self._from)
        began = datetime.now(timezone.utc)
        try:
            async with self._hub.log_turn:
                text = await self._hub.hook.log(
                    self._order.job.namespace,
                    pod.name,
                    pod.container,
                    since=cursor.again(),
                    limit_bytes=share,
                    timestamps=True,
                )
        except KfTrainError as error:
            self._cannot(pod, error)
            return _Slice(pod.replica)
        self._cannot(pod, None)
        if len(text.encode()) < share:
            return _Slice(pod.replica, list(cursor.all_new(text)))
        lines = list(cursor.all_new(f"{text}..."))
        cursor.since = began
        omitted = f"... the rest up to {moment(began)} is omitted (Logs.bytes_a_minute)."
        return _Slice(pod.replica, lines, omitted)
