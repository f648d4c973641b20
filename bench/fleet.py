"""Triggers as a triggerer runs them: tasks of one event loop, in a process of its own.

A process of triggers starts its own stand-in server, so that several can be measured at the same
time. It prints its results as one line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figures import OURS, Measure, Size, results, run
from bench.objects import INSTANCE, Name

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from airflow_kftrain.messages import WatchOrder

ROOT = Path(__file__).resolve().parent.parent
CONNECTION = "bench"
OF_A_TURN = "CPU of a turn of the loop, without full collections"
BY_THE_CLOCK = "includes other load on the machine"
_CHILD = "--child"
_ENDING = 10.0
"""Seconds for all child processes together to end."""


class Setting(NamedTuple):
    """Which triggers."""

    poll_seconds: float | None = None
    """None for our triggers, which do not poll."""

    @property
    def who(self) -> str:
        every = self.poll_seconds
        return OURS if every is None else f"KubernetesJobTrigger, every {every:g} s"


WE = Setting()
PEER = Setting(10.0)
"""The peer's default."""


def peer(size: Size) -> Setting:
    """The peer. In a quick run it also polls within the window."""
    return min(PEER, Setting(size.seconds))


# ----- processes


class Task(NamedTuple):
    """A task for a process of its own."""

    name: str
    setting: Setting
    jobs: int
    size: Size


def together(module: str, tasks: Iterable[Task]) -> list[Any]:
    """The results of all tasks, which run at the same time."""
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "AIRFLOW_HOME": home,
            # An installed package has its bytecode.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode"),
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "AIRFLOW__KFTRAIN__INSTANCE": INSTANCE,
        }
        try:
            for task in tasks:
                command = [sys.executable, "-m", module, _CHILD, json.dumps(task)]
                pipe = subprocess.PIPE
                started.append(
                    subprocess.Popen(command, stdout=pipe, cwd=ROOT, env=environment, text=True)
                )
            return [_said(module, child) for child in started]
        finally:
            _end(started)


def _said(module: str, child: subprocess.Popen[str]) -> Any:
    said, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{module} ended with {child.returncode}")
    return json.loads(said)


def _end(started: Iterable[subprocess.Popen[str]]) -> None:
    """Ends the tasks that are still running: one has failed, or the time is up."""
    left = [child for child in started if child.poll() is None]
    for child in left:
        child.send_signal(signal.SIGINT)
    end = time.monotonic() + _ENDING
    for child in left:
        try:
            child.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


Work = Callable[[Task, "Turns"], Coroutine[Any, Any, Any]]


def main(work: Work, measure: Measure) -> None:
    """The main function of a part whose processes run the same file."""
    if _CHILD in sys.argv:
        _work_as_child(work)
    else:
        run(measure)


def _work_as_child(work: Work) -> None:
    name, setting, jobs, size = json.loads(sys.argv[-1])
    out = results()
    turns = Turns()
    loop = asyncio.SelectorEventLoop(turns.selector)
    asyncio.set_event_loop(loop)
    task = Task(name, Setting(*setting), jobs, Size(*size))
    try:
        found = loop.run_until_complete(work(task, turns))
    except KeyboardInterrupt:
        # At once: otherwise thousands of triggers would each report that they are still running.
        # The server ends when its stdin closes.
        os._exit(130)
    with out:
        json.dump(found, out)
    loop.run_until_complete(_end_all())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Turns:
    """Milliseconds of CPU in each turn of a loop: for so long nothing else in the loop can run. It
    is the CPU time of the loop's thread, so other load on the machine is not counted.

    So it misses a turn that waits for a file, a lock or another thread. `longest` includes these:
    it is measured by the clock, which also counts other load.
    """

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._select = self.selector.select
        self.selector.select = self._timed  # type: ignore[method-assign]
        self._thread = threading.get_ident()
        self._began = self._collecting = time.thread_time()
        self._clock = time.perf_counter()
        self._in_full = 0.0
        self.longest = 0.0
        """By the clock."""
        self.all = array("d")
        self.without_full = array("d")
        """Without full garbage collections: these look through everything that Airflow has
        imported, in whichever turn they happen."""
        gc.callbacks.append(self._collected)

    def clear(self) -> None:
        self.all, self.without_full = array("d"), array("d")
        self.longest = 0.0

    def _timed(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        taken = time.thread_time() - self._began
        self.longest = max(self.longest, 1000 * (time.perf_counter() - self._clock))
        self.all.append(1000 * taken)
        self.without_full.append(1000 * (taken - self._in_full))
        found = self._select(timeout)
        self._began, self._in_full = time.thread_time(), 0.0
        self._clock = time.perf_counter()
        return found

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        now = time.thread_time()
        if phase == "start":
            self._collecting = now
        elif info["generation"] == 2:
            self._in_full += now - self._collecting


# ----- the server


class Server:
    """The stand-in server, as its client sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, jobs: int, carried: int = 0) -> Server:
        """`carried`: bytes of what each template of a job has in an annotation."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.standin", str(jobs), str(carried)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            limit=1 << 24,
        )
        server = cls(process)
        said = {"conn_type": "kubernetes", "extra": {"kube_config_path": await server._answer()}}
        os.environ[f"AIRFLOW_CONN_{CONNECTION.upper()}"] = json.dumps(said)
        return server

    async def do(self, what: str, **more: float) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
        return await self._answer()

    async def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(await self._process.stdout.readline())

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def a_minute(server: Server, seconds: float) -> dict[str, float]:
    """What a minute costs, by the seconds that follow."""
    before, cpu, began = await server.do("read"), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    times = 60 / (time.monotonic() - began)
    cpu = time.process_time() - cpu
    after = await server.do("read")
    calls, answered = (after[key] - before[key] for key in ("requests", "bytes answered"))
    found = {"calls": calls, "bytes": answered / (1 << 20), "cpu": cpu}
    return {f"{name} a minute": times * value for name, value in found.items()}


# ----- the triggers


def order_for(job: Name) -> WatchOrder:
    from airflow_kftrain.kinds import JobReference
    from airflow_kftrain.messages import WatchOrder

    now = datetime.now(timezone.utc)
    return WatchOrder(
        JobReference("PyTorchJob", "default", job.name, job.uid),
        "kubeflow.org/v1",
        connection=CONNECTION,
        instance=INSTANCE,
        owner=job.owner.ti_id,
        deadline=now + timedelta(days=1),
        ordered=now,
    )


def trigger_for(setting: Setting, job: Name) -> BaseTrigger:
    """As a triggerer creates it: from JSON."""
    if setting.poll_seconds is None:
        from airflow_kftrain.triggers.training_job import TrainingJobTrigger

        said = {"order": order_for(job).to_dict()}
        return TrainingJobTrigger(**json.loads(json.dumps(said)))
    from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger

    polling = {
        "job_name": job.name,
        "job_namespace": "default",
        "pod_names": [f"{job.name}-0"],
        "pod_namespace": "default",
        "base_container_name": "base",
        "kubernetes_conn_id": CONNECTION,
        "poll_interval": setting.poll_seconds,
        "get_logs": False,
    }
    return KubernetesJobTrigger(**json.loads(json.dumps(polling)))


class Fleet:
    """Running triggers, one per job."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._tasks: list[asyncio.Task[None]] = []
        self.ended: dict[str, float] = {}
        """When each has ended, by the clock that all processes share."""
        self.failed: dict[str, str] = {}
        """Why, for those that did not report a success."""

    @property
    def started(self) -> int:
        return len(self._tasks)

    async def start(self, jobs: int, rate: float) -> None:
        """So many per second."""
        began = time.monotonic()
        for number in range(jobs):
            late = began + number / rate - time.monotonic()
            # A triggerer also yields between two triggers.
            await asyncio.sleep(late if late > 0.05 else 0)
            self._tasks.append(asyncio.create_task(self._run(Name(number))))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def make(self, job: Name) -> BaseTrigger:
        return trigger_for(self._setting, job)

    async def _run(self, job: Name) -> None:
        trigger = self.make(job)
        try:
            async for event in trigger.run():
                verdict = event.payload.get("verdict") or event.payload["status"]
                if not verdict.startswith("succe"):
                    self.failed[job.name] = str(event.payload)
                break
            else:
                self.failed[job.name] = "no event"
        except Exception as error:  # noqa: BLE001  # a triggerer fails the task then
            self.failed[job.name] = type(error).__name__
        self.ended[job.name] = time.time()


async def first_client(setting: Setting) -> None:
    """The cost of the first trigger of a triggerer: imports and, for ours, the client."""
    await asyncio.to_thread(trigger_for, setting, Name(0))
    if setting.poll_seconds is None:
        from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook

        await asyncio.to_thread(importlib.import_module, "airflow_kftrain.watching.watcher")
        await AsyncTrainingJobHook(CONNECTION).namespace()


async def until(seen: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Whether the condition became true. It is polled, since there is no event for it."""
    end = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


def are_synced() -> bool:
    """Whether all our feeds know their jobs."""
    from airflow_kftrain.watching import feeds

    found = feeds.hub_of(CONNECTION)._feeds.values()
    return bool(found) and all(feed.jobs_stream.synced for feed in found)


@contextmanager
def hurried(times: float) -> Iterator[None]:
    """Speeds up the periodic work of our engine by this factor: an hour takes minutes."""
    from airflow_kftrain.watching import pods, streams, survey

    waits: list[tuple[Any, str]] = [
        *((streams, name) for name in ("WATCH_SECONDS", "LIST_AGAIN_SECONDS", "_HELD_SECONDS")),
        *((pods, "LOOK_SECONDS"), (survey, "PAUSE")),
    ]
    before = [getattr(module, name) for module, name in waits]
    for (module, name), seconds in zip(waits, before, strict=True):
        setattr(module, name, seconds / times)
    try:
        yield
    finally:
        for (module, name), seconds in zip(waits, before, strict=True):
            setattr(module, name, seconds)


def resident() -> float:
    """KiB of this process."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
