"""One container: started as a process, watched, restarted, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time

from kftrain_local.agent.environment import CannotStart, quantity
from kftrain_local.agent.launch import Launch, prepare, takes_ranks
from kftrain_local.agent.logs import ContainerLog, NoLog
from kftrain_local.agent.processes import Record, Table, kill_all
from kftrain_local.agent.remote_shell import ENTRY
from kftrain_local.agent.sandbox import Sandbox
from kftrain_local.agent.status import Backoff, ContainerStatus, restarts

_LONGEST_MESSAGE = 4096
_LOG_LINES, _LOG_BYTES = 80, 2048
_OUTPUT_AFTER_END = 2.0
_LONGEST_BACKOFF = 300.0
_OF_IMAGES = {
    "InvalidImageName": ("Warning", "InspectFailed"),
    "ImagePullBackOff": ("Normal", "BackOff"),
}
_REASONS_IN_LOGS = {"ImagePullBackOff": "trying and failing to pull image"}
"""What a kubelet says instead of the reason when somebody asks for a log."""


def events_of(error: CannotStart) -> list[tuple[str, str, str]]:
    """(type, reason, message) of the events of a kubelet when a container cannot start."""
    if error.reason in _OF_IMAGES:
        kind, reason = _OF_IMAGES[error.reason]
        return [(kind, reason, str(error)), ("Warning", "Failed", f"Error: {error.reason}")]
    return [("Warning", "Failed", f"Error: {error}")]


class Container:
    def __init__(self, pod: Sandbox, status: ContainerStatus) -> None:
        self._pod = pod
        self.status = status
        self.spec = status.spec
        self.name: str = self.spec["name"]
        self._record = Record(pod.folder / f"{self.name}.record")
        self._message_file = pod.folder / f"{self.name}.termination-log"
        self._logs: list[ContainerLog] = []
        self._starting: asyncio.Future[asyncio.subprocess.Process] | None = None
        self._over: asyncio.Task[None] | None = None
        self._out_of_memory = False
        limit = ((self.spec.get("resources") or {}).get("limits") or {}).get("memory")
        self._memory = int(quantity(limit)) if limit else None
        self._takes_ranks = not status.init and takes_ranks(pod.object, self.spec)

    # ----- the whole life

    async def run(self) -> None:
        """Runs and restarts the container as its policy says. Returns when it has ended for
        good."""
        backoff = Backoff(self._pod.machine.settings.shortest_backoff, _LONGEST_BACKOFF)
        policy = self._pod.object["spec"].get("restartPolicy", "Always")
        if self.status.exit_code is None:
            await self._run_once()
        while restarts(policy, self.status):
            if pause := backoff.next(time.monotonic()):
                await self._wait_for_restart(pause)
            self.status.begin_again()
            await self._run_once()

    async def _wait_for_restart(self, pause: float) -> None:
        pod = f"{self._pod.name}_{self._pod.namespace}({self._pod.uid})"
        message = f"back-off {pause:g}s restarting failed container={self.name} pod={pod}"
        self.status.wait("CrashLoopBackOff", message)
        told = f"Back-off restarting failed container {self.name} in pod {pod}"
        self._pod.tell("Warning", "BackOff", told)
        self._pod.changed.set()
        await asyncio.sleep(pause)

    async def _run_once(self) -> None:
        """If the container cannot be started, reports it and tries again, like a kubelet."""
        told = ""
        while True:
            try:
                over = self._over = await self._try_to_start()
                break
            except CannotStart as error:
                self.status.wait(error.reason, str(error))
                self._pod.changed.set()
                if told != str(error):
                    told = str(error)
                    for event in events_of(error):
                        self._pod.tell(*event)
            await asyncio.sleep(self._pod.machine.settings.shortest_backoff)
        self._pod.tell("Normal", "Started", f"Started container {self.name}")
        # The end is recorded even if nobody waits for it any more.
        await asyncio.shield(over)

    # ----- the process

    async def _try_to_start(self) -> asyncio.Task[None]:
        """Returns a future that ends with the process. Raises CannotStart."""
        try:
            return await self._start(await prepare(self._pod, self.spec, self._message_file))
        except (OSError, ValueError) as error:  # a full disk, a NUL in a variable, ...
            raise CannotStart(f"cannot be started: {error}", "RunContainerError") from error

    async def _start(self, launch: Launch) -> asyncio.Task[None]:
        self._message_file.unlink(missing_ok=True)
        self._message_file.touch(0o600)
        log = ContainerLog(self._pod.folder / f"{self.name}.{self.status.restarts}.log")
        # Not asyncio's own pipe: some versions do not report the end while any process has it open.
        read_end, write_end = os.pipe()
        with os.fdopen(write_end, "wb", 0):
            pipe = os.fdopen(read_end, "rb", 0)
            output, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: log, pipe)
            starting = self._record.start(*launch, write_end)
            # Waits for the end: asyncio would kill the process, but not the processes that it has
            # forked.
            self._starting = asyncio.ensure_future(starting)
            process = await asyncio.shield(self._starting)
        self._keep(log)
        self._out_of_memory = False
        if self._takes_ranks:
            self._allow_ranks(launch)
        self.status.start(f"process://{self._pod.uid}-{self.name}-{self.status.restarts}")
        self._pod.changed.set()
        return asyncio.create_task(self._see_to_end(process, output, log))

    def _keep(self, log: ContainerLog) -> None:
        """Keeps this log and the one before."""
        self._logs.append(log)
        for older in self._logs[:-2]:
            older.path.unlink(missing_ok=True)
            self._logs.remove(older)

    def _allow_ranks(self, launch: Launch) -> None:
        """From now on the remote shell can start ranks here."""
        entry = {**launch._asdict(), "record": str(self._record.file)}
        # Whole or not at all: another process may be waiting for it.
        part = self._pod.folder / f"{ENTRY}.part"
        part.touch(0o600)
        part.write_text(json.dumps(entry))
        part.replace(self._pod.folder / ENTRY)

    async def _see_to_end(
        self, process: asyncio.subprocess.Process, output: asyncio.BaseTransport, log: ContainerLog
    ) -> None:
        code = await process.wait()
        # As in a real container, nothing outlives the first process.
        self.kill()
        # Its numbers are used again, even for sessions whose leaders end at once: daemons.
        self._record.file.unlink(missing_ok=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(log.finished.wait(), _OUTPUT_AFTER_END)
        output.close()
        await log.finished.wait()
        code = 128 - code if code < 0 else code
        reason = "Completed" if code == 0 else "Error"
        if self._out_of_memory:
            code, reason = 137, "OOMKilled"
        self.status.terminate(code, reason, self._message(log, code != 0))
        self._pod.changed.set()

    def _message(self, log: ContainerLog, failed: bool) -> str:
        with contextlib.suppress(OSError), open(self._message_file, "rb") as file:
            file.seek(max(0, self._message_file.stat().st_size - _LONGEST_MESSAGE))
            if text := file.read(_LONGEST_MESSAGE):
                return text.decode("utf-8", "replace")
        if failed and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            return log.end(_LOG_LINES, _LOG_BYTES)
        return ""

    # ----- what others want of it

    def look(self, processes: Table) -> None:
        """Called now and then: updates the record of its processes, and checks their memory."""
        if self.status.running:
            pids = self._record.members(processes)
            used = sum(processes[pid].memory for pid in pids)
            if self._memory is not None and used > self._memory:
                self._out_of_memory = True
                self.kill()

    async def end(self, grace: float) -> None:
        """Sends TERM to the first process, and KILL to all after the grace period. Returns when
        everything has ended."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._starting is None or self._over is None or self._over.done():
            self.kill()  # a container that was about to start
            return
        if grace > 0:
            self._pod.tell("Normal", "Killing", f"Stopping container {self.name}")
            # As in a real container it has to pass this on, and a process that gets it twice may
            # not survive that.
            with contextlib.suppress(ProcessLookupError):
                self._starting.result().send_signal(signal.SIGTERM)
            await asyncio.wait([self._over], timeout=grace)
        while not self._over.done():
            self.kill()
            await asyncio.wait([self._over], timeout=0.1)

    def kill(self) -> None:
        kill_all(self._record.members)

    def find_log(self, previous: bool) -> ContainerLog:
        """Finds the log as a kubelet does. Raises NoLog."""
        which = f'container "{self.name}" in pod "{self._pod.name}"'
        if previous and not self.status.last_state:
            raise NoLog(f"previous terminated {which} not found")
        waiting = self.status.state.get("waiting")
        # While it waits for a restart, the run before is the last one.
        logs = self._logs[:-1] if previous and not waiting else self._logs
        if not logs:
            reason = waiting and _REASONS_IN_LOGS.get(waiting["reason"], waiting["reason"])
            why = f"waiting to start: {reason}" if waiting else "terminated"
            raise NoLog(f"{which} is {why}")
        return logs[-1]
