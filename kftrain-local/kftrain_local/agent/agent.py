"""The node agent: runs the pods of a node as processes of this user.

    python -m kftrain_local.agent --kubeconfig FILE [--name NODE] ...

It is a client of the API server in the kubeconfig and of nothing else. It registers a Node, runs
what the scheduler places there, and at its end removes the Node with all processes and files. If it
is killed, a guard ends its processes, and its next start removes what is left.
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
from collections.abc import Iterator
from pathlib import Path

from kftrain_local.agent.environment import CannotStart, quantity
from kftrain_local.agent.logs import CannotRun, ContainerLog, NoLog, serve_logs
from kftrain_local.agent.machine import NO_IMAGES, Machine, Settings
from kftrain_local.agent.node import Node
from kftrain_local.agent.pod import Pod
from kftrain_local.agent.processes import start_guard, sweep, table
from kftrain_local.api_client import ApiClient, Cluster, Object, core, read_kubeconfig
from kftrain_local.errors import LocalError

log = logging.getLogger(__name__)

_LOCK = "kftrain-agent.lock"  # one of our names: files beside it are removed
_WAIT_FOR_LOCK = 5.0
_LOOK_EVERY = 0.5
_LONGEST_END = 15.0


# ----- the state folder


@contextlib.contextmanager
def state_folder(path: Path) -> Iterator[Path]:
    """The folder: locked, cleaned and guarded; removed at the end. Raises CannotRun."""
    path = path.absolute()  # the guard runs in another folder
    try:
        lock = _lock(path)
    except OSError as error:
        raise CannotRun(f"state folder {path} cannot be used: {error}") from error
    if ended := sweep(path):
        log.warning("ended %d processes that an earlier agent has left behind", ended)
    for entry in path.iterdir():
        if entry.name != _LOCK:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    with start_guard(path, lock) as guard:
        try:
            yield path
        finally:
            guard.communicate()
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: Path) -> int:
    """Waits a little: the guard of an agent that was killed holds the lock for a moment."""
    end = time.monotonic() + _WAIT_FOR_LOCK
    while True:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if {path.stat().st_uid, path.lstat().st_uid} != {os.getuid()}:  # even if it is a link
            raise PermissionError("it belongs to another user")
        path.chmod(0o700)
        if any(path.iterdir()) and not (path / _LOCK).exists():
            raise FileExistsError("it contains other files, and would be removed at the end")
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Unless its last owner has removed the folder in the meantime.
            if os.path.samestat(os.fstat(lock), os.stat(path / _LOCK)):
                return lock
        os.close(lock)
        if time.monotonic() > end:
            raise BlockingIOError("another agent uses it")
        time.sleep(0.05)


# ----- the agent


class Agent:
    """`async with Agent(api, settings, folder): ...` is a node with everything that runs on it.

    An API server in the same process calls `find_log`; other servers need `serves_logs`.
    """

    def __init__(
        self, api: ApiClient, settings: Settings, folder: Path, *, serves_logs: bool = True
    ) -> None:
        self._serves_logs = serves_logs
        self._api = api
        self._settings = settings
        self._folder = folder
        self._machine = Machine(api, settings, folder)
        self._pods: dict[str, Pod] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._ending = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Agent:
        """Raises LocalError, with nothing left behind."""
        async with contextlib.AsyncExitStack() as ending:
            ending.callback(self._machine.ports.close)
            port = 0
            if self._serves_logs:
                server = await serve_logs(self.find_log, self._folder, self._settings.port)
                ending.push_async_callback(server.cleanup)
                port = server.addresses[0][1]
            node = Node(self._api, self._settings, self._folder, port)
            await node.register()
            ending.push_async_callback(node.remove)
            self._ending = ending.pop_all()
        log.warning("%s", NO_IMAGES.upper())
        log.info("node %s is ready; it serves logs on port %d", self._settings.name, port)
        chores = (self._follow_pods(), node.keep_alive(), self._look_at_processes())
        self._chores = [asyncio.create_task(chore) for chore in chores]
        return self

    async def __aexit__(self, *_: object) -> None:
        for chore in self._chores:
            chore.cancel()
        await asyncio.wait(self._chores)
        for pod in self._pods.values():
            pod.end_with_node()
        await self._machine.finish(_LONGEST_END)
        await self._ending.aclose()

    async def run_until(self, stop: asyncio.Event) -> None:
        """Raises if a part of the agent fails, which is a bug of the agent."""
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([stopping, *self._chores], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for task in done:
            task.result()

    async def _follow_pods(self) -> None:
        mine = f"spec.nodeName={self._settings.name}"
        async for kind, found in self._api.follow(core("", "pods"), fieldSelector=mine):
            if kind == "LISTED":
                for uid in set(self._pods) - {pod["metadata"]["uid"] for pod in found}:
                    self._drop(uid)
                for pod in found:
                    self._take(pod)
            elif kind == "DELETED":
                self._drop(found["metadata"]["uid"])
            else:
                self._take(found)

    def _take(self, found: Object) -> None:
        uid = found["metadata"]["uid"]
        if uid not in self._pods:
            self._pods[uid] = Pod(self._machine, found)
        self._pods[uid].update(found)

    def _drop(self, uid: str) -> None:
        """The pod is gone from the API, so everything of it is ended."""
        if pod := self._pods.pop(uid, None):
            pod.task.cancel()
            pod.task.add_done_callback(lambda _: self._release(pod.scope))

    def _release(self, scope: str) -> None:
        if all(pod.scope != scope for pod in self._pods.values()):
            self._machine.ports.release(scope)

    async def _look_at_processes(self) -> None:
        while True:
            if self._pods:
                processes = table()
                for pod in self._pods.values():
                    for container in pod.containers:
                        container.look(processes)
            await asyncio.sleep(_LOOK_EVERY)

    def find_log(self, namespace: str, name: str, container: str, previous: bool) -> ContainerLog:
        """Answers in the words of a kubelet. Raises NoLog."""
        for pod in self._pods.values():
            for found in pod.containers:
                if (pod.namespace, pod.name, found.name) == (namespace, name, container):
                    return found.find_log(previous)
        raise NoLog(f'container "{container}" in pod "{name}" not found')


# ----- the command line


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kftrain_local.agent")
    add = parser.add_argument
    add("--kubeconfig", required=True, type=Path, help="the API server to connect to")
    add("--state-dir", type=Path, help="the folder for the agent's files, removed at the end")
    add("--name", help="the name of the node (%(default)s)")
    add("--port", type=int, help="the port of the log server (default: any free one)")
    agent_options(parser)
    return parser.parse_args(words)


def agent_options(parser: argparse.ArgumentParser) -> None:
    """The options that `read_settings` reads."""
    add = parser.add_argument
    add("--cpu", metavar="AMOUNT", help="CPUs of the node; not enforced (%(default)s)")
    add("--memory", metavar="AMOUNT", help="memory of the node (%(default)s)")
    add("--gpus", type=int, metavar="COUNT", help="pretended GPUs of the node (%(default)s)")
    add(
        "--python",
        metavar="PROGRAM",
        help="the interpreter that `python` stands for in a pod (%(default)s)",
    )
    add("--label", dest="labels", action="append", metavar="KEY=VALUE", help="a label of the node")
    add(
        "--volume",
        dest="volumes",
        action="append",
        metavar="NAME=DIR",
        help="the folder of a PersistentVolumeClaim (a new one, removed at the end)",
    )
    add("--backoff", dest="shortest_backoff", type=float, help=argparse.SUPPRESS)
    parser.set_defaults(**{**Settings()._asdict(), "labels": [], "volumes": []})


def read_settings(given: argparse.Namespace) -> Settings:
    """Raises CannotRun."""
    for option, amount in (("--cpu", given.cpu), ("--memory", given.memory)):
        try:
            is_something = quantity(amount) > 0
        except CannotStart as error:
            raise CannotRun(f"{option}: {error}; use 8, 500m or 32Gi, for example") from error
        if not is_something:
            raise CannotRun(f"{option} {amount}: must be more than 0")
    fields = {name: value for name, value in vars(given).items() if name in Settings._fields}
    fields["python"] = _working_python(given.python)
    fields["labels"] = dict(label.partition("=")[::2] for label in given.labels)
    fields["volumes"] = dict(map(_volume, given.volumes))
    return Settings(**fields)


def _volume(option: str) -> tuple[str, str]:
    name, _, folder = option.partition("=")
    if not name or not os.path.isdir(folder):
        raise CannotRun(f"--volume {option}: write NAME=DIR, with a folder that exists")
    return name, os.path.abspath(folder)


def _working_python(name: str) -> str:
    program = shutil.which(name)
    try:
        if program is None:
            raise FileNotFoundError("not found, or not executable")
        subprocess.run([program, "-c", ""], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotRun(f"Python {name} does not work: {error}") from error
    return os.path.abspath(program)


async def run(cluster: Cluster, settings: Settings, folder: Path) -> None:
    """Runs an agent until SIGINT or SIGTERM. Raises LocalError if it cannot start."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ApiClient(cluster) as api:
        await api.get("/version")
        async with Agent(api, settings, folder) as agent:
            await agent.run_until(stop)


def main(words: list[str] | None = None) -> int:
    given = _arguments(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    default = Path(tempfile.gettempdir()) / f"kftrain-agent-{os.getuid()}-{given.name}"
    try:
        settings = read_settings(given)
        cluster = read_kubeconfig(given.kubeconfig)
        with state_folder(given.state_dir or default) as folder:
            asyncio.run(run(cluster, settings, folder))
    except LocalError as error:
        print(f"cannot run: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0
