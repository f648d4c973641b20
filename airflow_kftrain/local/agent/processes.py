"""Processes of this user: look at them, start them, end them, and sweep what an agent left behind.

A container is the processes on its record, the sessions they opened and all their descendants
(torchrun's ranks, for one, have sessions of their own). A process is on record before its command
runs, with its start time, so that a number that was given out again is never taken for ours. Run as
a module this is the guard: it waits for the agent to die, then sweeps.
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

from airflow_kftrain.local.agent import become

PACKAGE_ROOT = str(Path(__file__).parents[3])


class Process(NamedTuple):
    """One line of the table of processes."""

    parent: int
    session: int
    memory: int
    """Resident, in bytes."""
    started: str
    """As `become.start_of` has it."""


Table = Mapping[int, Process]


def table() -> Table:
    """All processes of this machine, by number."""
    return _table_of_proc() if sys.platform == "linux" else _table_of_ps()


def _table_of_proc() -> Table:
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it ended meanwhile
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the command may hold spaces and parentheses.
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
    """The roots, the sessions they opened, and all descendants with theirs. A root that has ended
    stands for its session: a number is not given out again while a session has it."""
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
    """The file of a container with the processes that it started. Appended to, never rewritten."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def members(self, processes: Table) -> set[int]:
        """All processes of the container; notes sessions that they opened, which remain known when
        their parents have ended."""
        known = self._read()
        # Either it is the process on record, or that has ended and left its session.
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
        """A command in a session of its own: `words[0]` is what it sees as its name."""
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
            # It does so itself; but a signal must find it before that.
            become.put_on_record(str(self.file), process.pid)
        return process


def signal_all(pids: Iterable[int], number: int) -> None:
    # Parents first: a shell that is still there would tell in the log of its children's end.
    for pid in sorted(pids):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_all(find: Callable[[Table], set[int]]) -> set[int]:
    """KILL to what is found; who they were. All are stopped before: what they fork meanwhile would
    else lose its parent, and could open a session, before anybody has seen it."""
    found: set[int] = set()
    while new := find(table()) - found:
        signal_all(new, signal.SIGSTOP)
        found |= new
    signal_all(found, signal.SIGKILL)
    return found


def sweep(folder: Path) -> int:
    """End all processes on record in a folder; returns how many they were."""
    records = [Record(file) for file in folder.glob("pods/*/*.record")]

    def left(processes: Table) -> set[int]:
        return set[int]().union(*(each.members(processes) for each in records)) - {os.getpid()}

    ended: set[int] = set()
    while killed := kill_all(left):
        ended |= killed
        time.sleep(0.02)
    return len(ended)


def start_guard(folder: Path, lock: int) -> subprocess.Popen[bytes]:
    """A process that sweeps when this one dies, however it dies. It shares the lock of the folder,
    so that the next agent waits for it."""
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
