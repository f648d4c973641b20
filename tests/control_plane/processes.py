"""The processes of a control plane: starts them, notices their death, ends them; and finds those of
others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.control_plane import child
from tests.control_plane.errors import ControlPlaneError, PartDied

_LINES_OF_A_LOG = 20


class ProcessId(NamedTuple):
    """Identifies a process: numbers are used again, but not with the same start time."""

    pid: int
    started: str

    def lives(self) -> bool:
        return start_time(self.pid) == self.started

    def kill_session(self) -> None:
        """Ends the process, a session leader, and its group; does nothing if it is gone."""
        if not self.lives():
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def start_time(pid: int) -> str | None:
    """When a process was started, in the system's own words; None if it does not exist."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # The name, in parentheses, may contain anything; the fields after it are simple.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return started.strip() or None if not state.startswith("Z") else None


def process_id(pid: int) -> ProcessId:
    return ProcessId(pid, start_time(pid) or "")


class _Part(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    id: ProcessId
    log: Path


class Processes:
    """Each process has its own session and its own log, and ends with the launcher.

    Start them in a thread that lives as long as they should: for Linux, the end of the thread that
    has started a process is the end of its parent.
    """

    def __init__(self, logs: Path, changed: Callable[[list[ProcessId]], None]) -> None:
        self._logs = logs
        self._changed = changed
        self._parts: list[_Part] = []

    def start(self, name: str, command: Sequence[object], environment: dict[str, str]) -> None:
        log = self._logs / f"{name}.log"
        launch = [sys.executable, "-I", "-S", child.__file__, os.getpid(), *command]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in launch],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._parts.append(_Part(name, process, process_id(process.pid), log))
        self._changed(self.ids())

    def ids(self) -> list[ProcessId]:
        return [part.id for part in self._parts]

    def pids(self) -> dict[str, int]:
        return {part.name: part.process.pid for part in self._parts}

    def check(self) -> None:
        """Raises PartDied, with the last lines of its log, if one has ended."""
        for part in self._parts:
            code = part.process.poll()
            if code is not None:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                raise PartDied(f"{part.name} has ended ({how}); {self.log_tail(part.name)}")

    def log_tail(self, name: str) -> str:
        log = self._logs / f"{name}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES_OF_A_LOG:]
        if not lines:
            return "its log is empty"
        return "the end of its log:" + "".join(f"\n    {line}" for line in lines)

    def end(self) -> None:
        """At once: everything that they could save is removed with the state folder."""
        for part in self._parts:
            # Only this process reaps it, so the number still belongs to it.
            with suppress(ProcessLookupError):
                if part.process.poll() is None:
                    os.killpg(part.process.pid, signal.SIGKILL)
        for part in self._parts:
            part.process.wait()
        self._parts.clear()
        self._changed([])


def sweep(processes: Sequence[ProcessId]) -> int:
    """Ends those that still run. Returns how many there were."""
    living = [process for process in processes if process.lives()]
    for process in living:
        process.kill_session()
    deadline = time.monotonic() + 10
    while any(process.lives() for process in living):
        if time.monotonic() > deadline:
            raise ControlPlaneError(
                "these processes of an earlier control plane cannot be ended: "
                + ", ".join(str(process.pid) for process in living if process.lives())
            )
        time.sleep(0.05)
    return len(living)
