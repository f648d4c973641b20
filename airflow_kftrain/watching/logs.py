"""What the pods write, in the task's log: as it is written where a worker waits, and in slices,
once a minute and within a budget, where a triggerer does.

Each line comes with its time, which says where to go on after a connection broke, a container
restarted, or a slice ended. Best effort: a log that cannot be read is no reason to end anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta, timezone

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.text import moment, one_line
from airflow_kftrain.watching.feeds import Hub
from airflow_kftrain.watching.streams import jittered

SLICE_SECONDS = 60.0
LOOK_SECONDS = 3.0
"""Between looks for pods whose log is not shown yet; longer once there are some."""

_TAKEN_OVER = timedelta(minutes=2)

_DRAIN_SECONDS = 5.0
"""How long lines are still taken after the job has ended."""
_STEADY_LOOK_SECONDS = 15.0
_MOST_PODS = 32
_LEAST_BYTES = 1024
_LAST_BYTES = 64 * 1024
_TIMED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d) ?(.*)", re.S)

Tell = Callable[[str], None]


def is_taken_over(order: WatchOrder, now: datetime) -> bool:
    """An order is carried out at once, unless a triggerer has died meanwhile."""
    return order.ordered is not None and now - order.ordered > _TAKEN_OVER


class Cursor:
    """Where the showing of a container's log stands."""

    __slots__ = ("_last", "_same", "_skip", "since")

    def __init__(self, since: datetime | None = None) -> None:
        self.since = since
        self._last = ("", "")
        self._same = 0
        """So many lines of that time were shown: times are not always different."""
        self._skip = 0

    def again(self) -> datetime | None:
        """From when to read on; the server begins at a whole second, and what comes twice is passed
        over."""
        self._skip = self._same
        return self.since

    def new(self, line: str) -> str | None:
        """The line without its time; None if it was shown before."""
        timed = _TIMED.match(line)
        if timed is None:
            return line
        second, fraction, zone, text = timed.groups()
        key = (second, (fraction or "").ljust(9, "0"))
        if key < self._last:
            return None
        if key == self._last:
            if self._skip:
                self._skip -= 1
                return None
            self._same += 1
            return text
        self._last, self._same, self._skip = key, 1, 0
        self.since = datetime.fromisoformat(second + zone.replace("Z", "+00:00"))
        return text


@contextlib.asynccontextmanager
async def shown(hub: Hub, order: WatchOrder, tell: Tell, *, stream: bool) -> AsyncIterator[None]:
    """Shows logs meanwhile, and at the end what is left."""
    show = StreamedLogs(hub, order, tell) if stream else SlicedLogs(hub, order, tell)
    task = asyncio.get_running_loop().create_task(show.run())
    try:
        yield
        task.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(show.finish(), _DRAIN_SECONDS)
    finally:
        task.cancel()
        for follower in show.streams:
            follower.cancel()


class LogShow(ABC):
    """Of one job."""

    def __init__(self, hub: Hub, order: WatchOrder, tell: Tell) -> None:
        self._hub = hub
        self._order = order
        self._tell = tell
        self._cursors: dict[str, Cursor] = {}
        self._limit_told = False
        self._troubles: dict[str, str] = {}
        """Why the logs of pods cannot be read, as it was told."""
        self.streams: list[asyncio.Task[None]] = []
        """They end with what they follow, or are cancelled."""

    async def _pods(self) -> list[PodState]:
        """Those whose main container has something to say."""
        order = self._order
        async with self._hub.log_turn:
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
        """A pod that is made anew has the name of the old one."""
        key = f"{pod.name} {pod.created}"
        return self._cursors.setdefault(key, Cursor(since))

    def _show(self, pod: PodState, cursor: Cursor, line: str) -> None:
        text = cursor.new(line)
        if text is not None:
            prefix = f"[{pod.replica}] " if self._order.show_logs == "all" else ""
            *_, drawn = text.rstrip().split("\r")  # a progress bar draws over itself
            self._tell(f"{prefix}{drawn}")

    def _show_all(self, pod: PodState, cursor: Cursor, text: str) -> None:
        """Lines end where each has its time, and at nothing else that may be in them."""
        for line in text.removesuffix("\n").split("\n") if text else ():
            self._show(pod, cursor, line)

    def _cannot(self, pod: PodState, error: KfTrainError | None) -> None:
        """Told once, as long as it is the same."""
        words = one_line(str(error)) if error else ""
        if words and words != self._troubles.get(pod.name):
            self._tell(f"[{pod.replica}] {words}")
        self._troubles[pod.name] = words

    @abstractmethod
    async def run(self) -> None:
        """Until it is cancelled."""

    @abstractmethod
    async def finish(self) -> None:
        """The job has ended."""


class StreamedLogs(LogShow):
    """On a worker that waits."""

    def __init__(self, hub: Hub, order: WatchOrder, tell: Tell) -> None:
        super().__init__(hub, order, tell)
        self._of_pods: dict[str, asyncio.Task[None]] = {}
        self._read: set[tuple[object, ...]] = set()

    async def run(self) -> None:
        while True:
            await self._look()
            self.streams = [task for task in self.streams if not task.done()]
            if self.streams:
                # A stream that ends asks for a look: its container may be started again.
                await asyncio.wait(
                    self.streams,
                    timeout=_STEADY_LOOK_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            in_vain = any(self._troubles.values())
            await asyncio.sleep(_STEADY_LOOK_SECONDS if in_vain else LOOK_SECONDS)

    async def _look(self) -> None:
        with contextlib.suppress(KfTrainError):
            for pod in await self._pods():
                task = self._of_pods.get(pod.name)
                if task is None or task.done():
                    await self._follow(pod)

    async def _follow(self, pod: PodState) -> None:
        """A stream ends with its container, and another one is opened for the next. What ended
        before there was a stream is read as it is."""
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
        """What is under way, and what ended too soon for a stream."""
        if self.streams:
            await asyncio.wait(self.streams, timeout=_DRAIN_SECONDS / 2)
        await self._look()

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
            self._show_all(pod, cursor, text)


class SlicedLogs(LogShow):
    """In a triggerer: a call a pod each minute."""

    def __init__(self, hub: Hub, order: WatchOrder, tell: Tell) -> None:
        super().__init__(hub, order, tell)
        began = datetime.now(timezone.utc)
        taken_over = is_taken_over(order, began)
        self._from = began - timedelta(seconds=SLICE_SECONDS) if taken_over else None

    async def run(self) -> None:
        if self._from is not None:
            self._tell(
                f"Another triggerer has taken over: the pods' logs go on from {moment(self._from)}."
            )
        while True:
            await asyncio.sleep(jittered(SLICE_SECONDS))
            await self._look()

    async def finish(self) -> None:
        """The outcome has the end of the leader's log."""

    async def _look(self) -> None:
        with contextlib.suppress(KfTrainError):
            pods = await self._pods()
            share = max(self._order.bytes_a_minute // max(len(pods), 1), _LEAST_BYTES)
            for pod in pods:
                await self._slice(pod, share)

    async def _slice(self, pod: PodState, share: int) -> None:
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
            return
        self._cannot(pod, None)
        self._show_all(pod, cursor, text)
        if len(text.encode()) >= share:
            cursor.since = began
            self._tell(
                f"[{pod.replica}] ... the rest up to {moment(began)} is left out "
                "(Logs.bytes_a_minute)."
            )
