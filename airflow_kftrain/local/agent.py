"""The node agent: runs the pods of a node as processes of this user.

    python -m airflow_kftrain.local.agent --kubeconfig FILE [--name NODE] ...

It is a client of the API server in the kubeconfig and of nothing else. It registers a Node, runs
what the scheduler places there, and removes the Node at its end, with every process and file it
made. If it is killed, a guard ends its processes, and its next start sweeps what is left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.local.addresses import scope_of
from airflow_kftrain.local.api_client import ApiClient, core, read_kubeconfig
from airflow_kftrain.local.environment import quantity
from airflow_kftrain.local.log_server import FoundLog, LogServer, NoLog
from airflow_kftrain.local.machine import Machine, Settings
from airflow_kftrain.local.node import Node
from airflow_kftrain.local.pod import PodRunner
from airflow_kftrain.local.processes import STATE_FILE, Sessions, start_guard, table

log = logging.getLogger(__name__)

Object = dict[str, Any]

_LOCK = "lock"
_WAIT_FOR_LOCK = 5.0
_LOOK_EVERY = 0.5
_SECONDS_TO_TELL = 5.0


class CannotRun(KfTrainError):
    """The agent cannot start."""


# ----- the state folder


@contextlib.contextmanager
def state_folder(path: Path) -> Iterator[Path]:
    """The folder, locked, swept and guarded; removed at the end. Raises CannotRun."""
    try:
        _make_folder(path)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CannotRun(f"state folder {path} cannot be used: {error}") from error
    guard = None
    try:
        _wait_for_lock(path, lock)
        if ended := Sessions(path).sweep():
            log.warning("ended %d processes that an agent before this one left behind", ended)
        _empty(path)
        guard = start_guard(path, lock)
        yield path
    except CannotRun:
        raise
    finally:
        if guard is not None:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError("it belongs to another user")
    path.chmod(0o700)
    if any(path.iterdir()) and not (path / _LOCK).exists():
        raise FileExistsError("it holds other things, and would be removed at the end")


def _wait_for_lock(path: Path, lock: int) -> None:
    """The guard of an agent that was killed holds it for a moment."""
    end = time.monotonic() + _WAIT_FOR_LOCK
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() > end:
                raise CannotRun(f"another agent uses the state folder {path}") from error
            time.sleep(0.05)


def _empty(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
    (path / STATE_FILE).touch(0o600)


# ----- the agent


class Agent:
    """`async with Agent(api, settings, folder): ...` is a node with everything that runs on it."""

    def __init__(self, api: ApiClient, settings: Settings, folder: Path) -> None:
        self._api = api
        self._settings = settings
        self._machine = Machine(api, settings, folder)
        self._runners: dict[str, PodRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._server = LogServer(self._find_log)
        self._node: Node | None = None
        self._chores: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Agent:
        """Raises KfTrainError, with nothing left behind."""
        try:
            port = await self._server.start(self._machine.folder, self._settings.port)
            node = Node(self._api, self._settings, self._machine.folder, port)
            await node.register()
            self._node = node
        except BaseException:
            await self._server.stop()
            self._machine.ports.close()
            raise
        self._machine.warn_of_images()
        log.info("node %s is ready; it serves logs on port %d", self._settings.name, port)
        chores = (self._follow_pods(), node.keep_alive(), self._look_at_processes())
        self._chores = [asyncio.create_task(chore) for chore in chores]
        return self

    async def __aexit__(self, *_: object) -> None:
        for chore in self._chores:
            chore.cancel()
        await asyncio.wait(self._chores)
        for runner in self._runners.values():
            runner.end_with_node()
        if tasks := list(self._tasks.values()):
            patience = self._settings.last_grace + _SECONDS_TO_TELL
            await asyncio.wait(tasks, timeout=patience)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self._machine.finish_errands(_SECONDS_TO_TELL)
        assert self._node is not None
        await self._node.remove()
        await self._server.stop()
        self._machine.ports.close()

    async def watch_over(self) -> None:
        """Returns never; raises if a part of the agent fails, which is a fault of the agent."""
        done, _ = await asyncio.wait(self._chores, return_when=asyncio.FIRST_COMPLETED)
        for chore in done:
            chore.result()

    async def _follow_pods(self) -> None:
        mine = f"spec.nodeName={self._settings.name}"
        async for kind, found in self._api.follow(core("", "pods"), fieldSelector=mine):
            if kind == "LISTED":
                here = {pod["metadata"]["uid"] for pod in found}
                for uid in set(self._runners) - here:
                    self._drop(uid)
                for pod in found:
                    self._take(pod)
            elif kind == "DELETED":
                self._drop(found["metadata"]["uid"])
            else:
                self._take(found)

    def _take(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._runners:
            self._runners[uid].update(pod)
            return
        scope = scope_of(pod)
        others = [
            runner.pod["metadata"]["name"]
            for runner in self._runners.values()
            if runner.scope == scope
        ]
        runner = self._runners[uid] = PodRunner(self._machine, pod, others)
        runner.update(pod)
        self._tasks[uid] = asyncio.create_task(self._run(runner))

    async def _run(self, runner: PodRunner) -> None:
        try:
            await runner.run()
        except Exception:  # one pod's trouble is not the others'
            log.exception("pod %s: a fault of the agent", runner.pod["metadata"]["name"])

    def _drop(self, uid: str) -> None:
        """The pod is gone from the API: so goes what runs of it."""
        runner, task = self._runners.pop(uid, None), self._tasks.pop(uid, None)
        if runner is None or task is None:
            return
        task.cancel()
        self._machine.errand(self._release(runner.scope, task))

    async def _release(self, scope: str, task: asyncio.Task[None]) -> None:
        await asyncio.wait([task])
        if all(runner.scope != scope for runner in self._runners.values()):
            self._machine.ports.release(scope)

    async def _look_at_processes(self) -> None:
        while True:
            if self._runners:
                processes = table()
                for runner in self._runners.values():
                    runner.look(processes)
            await asyncio.sleep(_LOOK_EVERY)

    def _find_log(self, namespace: str, name: str, container: str, previous: bool) -> FoundLog:
        for runner in self._runners.values():
            metadata = runner.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return runner.find_log(container, previous)
        raise NoLog(404, f'pod "{name}" does not exist')


# ----- the command line


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m airflow_kftrain.local.agent")
    given = Settings()
    add = parser.add_argument
    add("--kubeconfig", required=True, type=Path, help="the API server to work for")
    add("--name", default=given.name, help="name of the node (%(default)s)")
    add("--cpu", default=given.cpu, help="CPUs to offer; not enforced (%(default)s)")
    add("--memory", default=given.memory, help="memory to offer (%(default)s)")
    add("--gpus", default=given.gpus, type=int, help="fake GPUs to offer (%(default)s)")
    add("--python", default=given.python, help="what `python` means in a pod (%(default)s)")
    add("--port", default=given.port, type=int, help="of the log server (any free one)")
    add("--state-dir", type=Path, help="folder for the agent's files, removed at the end")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="label of the node")
    add("--backoff", default=given.shortest_backoff, type=float, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _settings(given: argparse.Namespace) -> Settings:
    for amount in (given.cpu, given.memory):
        if quantity(amount) <= 0:
            raise CannotRun(f"{amount} is nothing to offer")
    return Settings(
        name=given.name,
        cpu=given.cpu,
        memory=given.memory,
        gpus=given.gpus,
        python=_working_python(given.python),
        port=given.port,
        labels=dict(label.split("=", 1) for label in given.label if "=" in label),
        shortest_backoff=given.backoff,
    )


def _working_python(name: str) -> str:
    program = shutil.which(name)
    try:
        if program is None:
            raise FileNotFoundError("not found, or not executable")
        subprocess.run([program, "-c", ""], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotRun(f"Python {name} does not work: {error}") from error
    return os.path.abspath(program)


@contextlib.asynccontextmanager
async def _until_signal() -> AsyncIterator[asyncio.Event]:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    yield stop
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)


async def run(kubeconfig: Path, settings: Settings, folder: Path) -> None:
    """An agent until SIGINT or SIGTERM; raises KfTrainError when it cannot start."""
    async with (
        ApiClient(read_kubeconfig(kubeconfig)) as api,
        _until_signal() as stop,
    ):
        await api.get("/version")
        async with Agent(api, settings, folder) as agent:
            watching = asyncio.create_task(agent.watch_over())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if watching.done():
                watching.result()
            watching.cancel()


def main(words: list[str] | None = None) -> int:
    given = _arguments(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    default = Path(tempfile.gettempdir()) / f"kftrain-agent-{os.getuid()}-{given.name}"
    try:
        settings = _settings(given)
        read_kubeconfig(given.kubeconfig)
        with state_folder(given.state_dir or default) as folder:
            asyncio.run(run(given.kubeconfig, settings, folder.absolute()))
    except KfTrainError as error:
        print(f"cannot run: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
