"""One container: started as a process, watched, restarted, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.local.addresses import DEFAULTS, NoPort, Peers, mpi_variables
from airflow_kftrain.local.container_log import ContainerLog, last_words
from airflow_kftrain.local.environment import (
    ConfigError,
    Environment,
    expand,
    make_environment,
    quantity,
    sources_of_container,
)
from airflow_kftrain.local.machine import Machine
from airflow_kftrain.local.pod_status import Backoff, Record, now_text, restarts, terminated
from airflow_kftrain.local.processes import Process, members, signal_all, start, table
from airflow_kftrain.local.remote_shell import ENVIRONMENT, JOINED
from airflow_kftrain.local.volumes import mount_paths, rewrite_paths

Object = dict[str, Any]

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""All that a pod gets of the agent's own variables: the others are nobody's business."""
_TERMINATION_LOG = "/dev/termination-log"
_LONGEST_MESSAGE = 4096
_LOG_LINES, _LOG_BYTES = 80, 2048
_OUTPUT_AFTER_END = 2.0


class CannotStart(KfTrainError):
    """The reason and message of a container that waits."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PodContext(NamedTuple):
    """What containers know of their pod."""

    machine: Machine
    pod: Object
    folder: Path
    volumes: dict[str, Path]
    peers: Peers
    changed: Callable[[], None]
    rewrote: Callable[[str, dict[str, str]], None]
    """(container, variables as a real cluster would have them)"""

    def tell(self, kind: str, reason: str, message: str) -> None:
        self.machine.tell(self.pod, kind, reason, message)


class Launch(NamedTuple):
    """What to start."""

    program: str
    command: list[str]
    variables: dict[str, str]
    folder: str


def check_image(image: str) -> None:
    """Images are not pulled, but authors can try what becomes of bad ones."""
    if not image or "//" in image or image != image.strip():
        raise CannotStart(
            "InvalidImageName",
            f'Failed to apply default image tag "{image}": couldn\'t parse image name '
            f'"{image}": invalid reference format',
        )
    if image.startswith("missing/"):
        raise CannotStart("ErrImagePull", f'failed to pull and unpack image "{image}": not found')


def find_program(word: str, variables: Mapping[str, str], folder: str) -> str:
    """The file that a command names; raises CannotStart."""
    if "/" in word:
        path = os.path.join(folder, word)
        found = path if os.path.isfile(path) and os.access(path, os.X_OK) else None
    else:
        found = shutil.which(word, path=variables.get("PATH", os.defpath))
    if found is None:
        raise CannotStart(
            "CreateContainerError",
            f'exec: "{word}": executable file not found on this machine (images are not run)',
        )
    return found


class Container:
    def __init__(self, context: PodContext, record: Record) -> None:
        settings = context.machine.settings
        self._context = context
        self.record = record
        self.name: str = record.spec["name"]
        self.log: ContainerLog | None = None
        self._backoff = Backoff(settings.shortest_backoff, settings.longest_backoff)
        self._sessions: set[int] = set()
        self._over: asyncio.Task[None] | None = None
        self._out_of_memory = False
        limit = ((record.spec.get("resources") or {}).get("limits") or {}).get("memory")
        self._memory = int(quantity(limit)) if limit else None

    # ----- the whole life

    async def run(self) -> None:
        """Run, and restart as the policy says; returns when it has ended for good."""
        policy = self._context.pod["spec"].get("restartPolicy", "Always")
        if self.record.exit_code is None:
            await self._run_once()
        while restarts(policy, self.record):
            pause = self._backoff.next(time.monotonic())
            if pause:
                self._wait_for_restart(pause)
                await asyncio.sleep(pause)
            self.record.restarts += 1
            await self._run_once()

    async def _run_once(self) -> None:
        await self.begin()
        assert self._over is not None
        # The end is noted also when whoever waits for it is not interested any more.
        await asyncio.shield(self._over)

    def _wait_for_restart(self, pause: float) -> None:
        metadata = self._context.pod["metadata"]
        where = f"{self.name} in pod {metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        self.record.wait(
            "CrashLoopBackOff", f"back-off {pause:g}s restarting failed container={where}"
        )
        self._context.tell("Warning", "BackOff", f"Back-off restarting failed container {where}")
        self._context.changed()

    async def begin(self) -> None:
        """Start; where that is not possible, say so and try again, as a kubelet does."""
        backoff = Backoff(self._context.machine.settings.shortest_backoff, 300)
        backoff.next(0)
        while True:
            try:
                check_image(self.record.spec.get("image") or "")
                launch = await self._prepare()
                await self._start(launch)
                return
            except CannotStart as error:
                reason, message = error.reason, str(error)
            except (ConfigError, NoPort) as error:
                reason, message = "CreateContainerConfigError", str(error)
            self._context.tell("Warning", "Failed", f"Error: {reason}: {message}")
            await self._wait_to_start(reason, message, backoff.next(0))

    async def _wait_to_start(self, reason: str, message: str, pause: float) -> None:
        self.record.wait(reason, message)
        self._context.changed()
        if reason == "ErrImagePull":
            await asyncio.sleep(pause / 10)
            image = self.record.spec.get("image")
            self.record.wait("ImagePullBackOff", f'Back-off pulling image "{image}": {message}')
            self._context.changed()
        await asyncio.sleep(pause)

    # ----- what to start

    async def _prepare(self) -> Launch:
        context, spec = self._context, self.record.spec
        namespace = context.pod["metadata"]["namespace"]
        sources = await context.machine.fetch(namespace, sources_of_container(spec))
        environment = make_environment(context.pod, spec, sources)
        paths = mount_paths(spec, context.volumes, environment.values)
        message_file = self._message_file()
        message_file.unlink(missing_ok=True)
        message_file.touch(0o600)
        paths[spec.get("terminationMessagePath") or _TERMINATION_LOG] = str(message_file)
        values = self._variables(environment, paths)
        words = [
            context.peers.rewrite(expand(rewrite_paths(word, paths), values))
            for word in [*(spec.get("command") or []), *(spec.get("args") or [])]
        ]
        if not spec.get("command"):
            raise CannotStart(
                "CreateContainerError",
                "no command specified: images are not run here, so a container needs a command "
                "of its own",
            )
        return self._launch(words, values, paths)

    def _variables(self, environment: Environment, paths: Mapping[str, str]) -> dict[str, str]:
        context = self._context
        rewritten = context.peers.rewrite_variables(environment.values)
        shown = {k: v for k, v in rewritten.before.items() if k not in environment.secret}
        if shown:
            context.rewrote(self.name, shown)
        given = {name: rewrite_paths(value, paths) for name, value in rewritten.values.items()}
        metadata, spec = context.pod["metadata"], context.pod["spec"]
        scratch = context.folder / "tmp"
        scratch.mkdir(exist_ok=True, mode=0o700)
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        machine = context.machine
        tools = [str(machine.bin), os.path.dirname(machine.settings.python)]
        path = os.pathsep.join([*tools, inherited.get("PATH", os.defpath)])
        own = {"PATH": path, "TMPDIR": str(scratch)}
        own["HOSTNAME"] = spec.get("hostname") or metadata["name"]
        values = {**inherited, **own, **DEFAULTS, **given}
        shell = context.folder / "remote-shell"
        return {**values, **mpi_variables(given, str(shell), self._takes_ranks())}

    def _launch(
        self, words: list[str], variables: dict[str, str], paths: Mapping[str, str]
    ) -> Launch:
        folder = self._work_folder(paths)
        if os.path.basename(words[0]) == "sshd":
            # The ssh server of an MPI worker: ranks come through the remote shell instead.
            words = ["tail", "-f", "/dev/null"]
        if words[0] in ("python", "python3"):
            # By its full path, from which an interpreter finds its virtual environment.
            words = [self._context.machine.settings.python, *words[1:]]
        return Launch(find_program(words[0], variables, folder), words, variables, folder)

    def _work_folder(self, paths: Mapping[str, str]) -> str:
        wanted = self.record.spec.get("workingDir")
        if not wanted:
            return self._context.machine.work_folder
        folder = Path(rewrite_paths(wanted, paths))
        if self._context.folder in folder.parents:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not folder.is_dir():
            raise CannotStart(
                "CreateContainerError",
                f"workingDir {wanted} is neither on this machine nor in a volume of the pod",
            )
        return str(folder)

    def _takes_ranks(self) -> bool:
        """Whether MPI may start ranks in this container."""
        labels = self._context.pod["metadata"].get("labels") or {}
        words = self.record.spec.get("command") or [""]
        operator = str(labels.get("training.kubeflow.org/operator-name", ""))
        return operator.startswith("mpi") or os.path.basename(words[0]) == "sshd"

    # ----- the process

    async def _start(self, launch: Launch) -> None:
        context = self._context
        try:
            started = await start(
                launch.command,
                launch.program,
                launch.variables,
                launch.folder,
                context.machine.sessions,
            )
        except OSError as error:
            raise CannotStart("RunContainerError", f"cannot be started: {error}") from error
        record, uid = self.record, context.pod["metadata"]["uid"]
        if "terminated" in record.state:
            record.last_state = record.state
        record.state = {"running": {"startedAt": now_text()}}
        record.container_id = f"process://{uid}-{self.name}-{record.restarts}"
        self._sessions, self._out_of_memory = {started.process.pid}, False
        self.log = ContainerLog(self.log_path(record.restarts))
        self._forget_logs_before(record.restarts - 1)
        if self._takes_ranks() and not record.init:
            self._let_ranks_in(launch)
        self._over = asyncio.create_task(self._see_to_end(started.process, started.output))
        context.tell("Normal", "Started", f"Started container {self.name}")
        context.changed()

    def _let_ranks_in(self, launch: Launch) -> None:
        file = self._context.folder / ENVIRONMENT
        # Whole or not at all: somebody may be waiting for it.
        part = file.with_suffix(".part")
        part.touch(0o600)
        part.write_text(json.dumps({"variables": launch.variables, "folder": launch.folder}))
        part.replace(file)

    async def _see_to_end(self, process: asyncio.subprocess.Process, output: int) -> None:
        """Copy the output until the end; then end what the command left running."""
        assert self.log is not None
        copied = asyncio.create_task(_copy(output, self.log))
        code = await process.wait()
        # As with a real container, nothing outlives the first process.
        self.signal(signal.SIGKILL)
        await asyncio.wait([copied], timeout=_OUTPUT_AFTER_END)
        copied.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await copied
        self.log.finish()
        self._note_end(code)

    def _note_end(self, code: int) -> None:
        code = 128 - code if code < 0 else code
        reason = "Completed" if code == 0 else "Error"
        if self._out_of_memory:
            code, reason = 137, "OOMKilled"
        started = self.record.state.get("running", {}).get("startedAt")
        message = self._message(code != 0)
        self.record.state = terminated(code, reason, message, started, now_text())
        self.record.state["terminated"]["containerID"] = self.record.container_id
        self._context.changed()

    def _message_file(self) -> Path:
        return self._context.folder / f"{self.name}.termination-log"

    def _message(self, failed: bool) -> str:
        spec, file = self.record.spec, self._message_file()
        with contextlib.suppress(OSError), open(file, "rb") as opened:
            opened.seek(max(0, file.stat().st_size - _LONGEST_MESSAGE))
            if text := opened.read(_LONGEST_MESSAGE):
                return text.decode("utf-8", "replace")
        if failed and spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            return last_words(self.log_path(self.record.restarts), _LOG_LINES, _LOG_BYTES)
        return ""

    def log_path(self, run: int) -> Path:
        return self._context.folder / "logs" / self.name / f"{run}.log"

    def _forget_logs_before(self, run: int) -> None:
        for file in self.log_path(0).parent.iterdir():
            if int(file.stem) < run:
                file.unlink()

    def look(self, processes: Mapping[int, Process]) -> None:
        """Now and then: keep account of sessions, and of memory."""
        if not self.record.running:
            return
        known = set(self._sessions)
        pids = self._members(processes)
        for session in self._sessions - known:
            if session in processes:
                self._context.machine.sessions.record(session, processes[session].started)
        used = sum(processes[pid].memory for pid in pids)
        if self._memory is not None and used > self._memory:
            self._out_of_memory = True
            signal_all(pids, signal.SIGKILL)

    def _members(self, processes: Mapping[int, Process]) -> set[int]:
        return members(processes, self._sessions, self._joined(processes))

    def _joined(self, processes: Mapping[int, Process]) -> list[int]:
        """Ranks that MPI started here, if they are still the same processes."""
        if self.record.init or not self._takes_ranks():
            return []
        with contextlib.suppress(OSError):
            pairs = [
                line.split(None, 1)
                for line in (self._context.folder / JOINED).read_text().splitlines()
            ]
            return [
                int(pid)
                for pid, started in pairs
                if int(pid) in processes and processes[int(pid)].started == started
            ]
        return []

    def signal(self, number: int) -> None:
        signal_all(self._members(table()), number)

    async def end(self, grace: float) -> None:
        """TERM, and KILL after the grace period; returns when it is over."""
        if self._over is None or self._over.done():
            return
        if grace > 0:
            self._context.tell("Normal", "Killing", f"Stopping container {self.name}")
            self.signal(signal.SIGTERM)
            await asyncio.wait([self._over], timeout=grace)
        while not self._over.done():
            self.signal(signal.SIGKILL)
            await asyncio.wait([self._over], timeout=0.1)


async def _copy(output: int, log: ContainerLog) -> None:
    """From a pipe to a log, until nobody holds the pipe open any more."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()
    os.set_blocking(output, False)

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            if chunk := os.read(output, 64 * 1024):
                log.write(chunk)
            else:
                closed.set()
                loop.remove_reader(output)

    loop.add_reader(output, read)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(output)
        os.close(output)
