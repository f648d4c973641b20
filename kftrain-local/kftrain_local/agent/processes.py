"""Processes of this user: finds, starts and ends them, and removes those that an agent has left
behind.

A container consists of the processes on its record, the sessions that they have opened, and all
their descendants (torchrun's ranks have sessions of their own, for example). A process is recorded
with its start time before its command runs, so another process with the same number is never
mistaken for it. Run as a module, this is the guard: it waits until the agent has died, and then
ends its processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kftrain_local.agent import become

PACKAGE_ROOT = str(Path(__file__).parents[2])


class Process(NamedTuple):
    """One row of the table of processes."""

    parent: int
    session: int
    memory: int
    """Resident memory in bytes."""
    started: str
    """As `become.start_of` returns it."""


Table = Mapping[int, Process]


def table() -> Table:
    """All processes of this machine, by number."""
    return _table_of_proc() if sys.platform == "linux" else _table_of_ps()


def _table_of_proc() -> Table:
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it ended meanwhile
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the command may contain spaces and parentheses.
                fields = file.read().rpartition(b")")[2].split()
            if fields[0] not in b"ZX":
                parent, session, pages = int(fields[1]), int(fields[3]), int(fields[21])
                memory = pages * os.sysconf("SC_PAGE_SIZE")
                found[int(name)] = Process(parent, session, memory, fields[19].decode())
    return found


def _table_of_ps() -> Table:
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,stat=,rss=,lstart="], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listing.stdout.splitlines():
        pid, parent, state, memory, started = line.split(None, 4)
        with contextlib.suppress(OSError):
            if not state.startswith("Z"):
                session = os.getsid(int(pid))
                found[int(pid)] = Process(int(parent), session, int(memory) * 1024, started.strip())
    return found


def members(processes: Table, roots: set[int]) -> set[int]:
    """The roots, the sessions that they have opened, and all their descendants. If a root has
    ended, its number still identifies its session: the system does not use the number again while
    the session exists."""
    found: set[int] = set()
    new = {pid for pid, process in processes.items() if pid in roots or process.session in roots}
    while new:
        found |= new
        new = {
            pid
            for pid, process in processes.items()
            if (process.parent in found or process.session in found) and pid not in found
        }
    return found


class Record:
    """The file that records the processes of a container. It is appended to, never rewritten."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def members(self, processes: Table) -> set[int]:
        """All processes of the container. Also records the sessions that they have opened, which
        stay known when their parents have ended."""
        known = self._read()
        # Either it is the recorded process, or that has ended and its session remains.
        roots = {
            pid
            for pid, started in known.items()
            if pid not in processes or processes[pid].started == started
        }
        found = members(processes, roots)
        for session in {processes[pid].session for pid in found} & found - set(known):
            with open(self.file, "a") as file:
                file.write(f"{session} {processes[session].started}\n")
        return found

    def _read(self) -> dict[int, str]:
        try:
            lines = (line.partition(" ") for line in self.file.read_text().splitlines())
            return {int(pid): started for pid, _, started in lines if started}
        except FileNotFoundError:
            return {}

    async def start(
        self, program: str, words: list[str], env: Mapping[str, str], folder: str, output: int
    ) -> asyncio.subprocess.Process:
        """Starts a command in a session of its own; `words[0]` is what it sees as its name."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", become.__file__, str(self.file), str(os.getpid())),
            *(program, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # it has ended already
            # The process does this itself, but a signal must find it before that.
            become.put_on_record(str(self.file), process.pid)
        return process


def signal_all(pids: Iterable[int], number: int) -> None:
    # Parents first: otherwise a shell would log the ends of its children.
    for pid in sorted(pids):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_all(find: Callable[[Table], set[int]]) -> set[int]:
    """Sends KILL to everything that `find` returns, and returns it. All processes are stopped
    first: otherwise a child that one of them forks meanwhile would lose its parent, and could open
    a session, before it is found."""
    found: set[int] = set()
    while new := find(table()) - found:
        signal_all(new, signal.SIGSTOP)
        found |= new
    signal_all(found, signal.SIGKILL)
    return found


def sweep(folder: Path) -> int:
    """Ends all recorded processes in a folder. Returns how many there were."""
    records = [Record(file) for file in folder.glob("pods/*/*.record")]

    def left(processes: Table) -> set[int]:
        return set[int]().union(*(each.members(processes) for each in records)) - {os.getpid()}

    ended: set[int] = set()
    while killed := kill_all(left):
        ended |= killed
        time.sleep(0.02)
    return len(ended)


def start_guard(folder: Path, lock: int) -> subprocess.Popen[bytes]:
    """Starts a process that ends the others when this one dies for any reason. It holds the lock of
    the folder, too, so the next agent waits for it."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        stdin=subprocess.PIPE,
        env={"PYTHONPATH": PACKAGE_ROOT, "PATH": os.environ.get("PATH", "")},
        pass_fds=[lock],
        start_new_session=True,
        cwd="/",
    )


if __name__ == "__main__":
    sys.stdin.buffer.read()
    sweep(Path(sys.argv[1]))
