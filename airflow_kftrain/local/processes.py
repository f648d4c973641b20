"""Processes of this user: look at them, start them, end them, and sweep what an agent left behind.

A container is a session of processes and all their descendants, those in sessions of their own
included (torchrun's ranks, for one). Every session is written to the state file before its command
runs, with the start time of its first process, so that a number that was given out again is never
taken for ours. Run as a module this is the guard: it waits for the agent to die, then sweeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE_ROOT = str(Path(__file__).parents[2])
STATE_FILE = "sessions"

# Waits for the word that its session is on record, then becomes the command. A shell would do it
# too, but shells drop variables whose names they do not like.
_SHIM = (
    "import os,signal,sys\n"
    "if os.read(0,1)!=b'+': os._exit(1)\n"
    "for name in (signal.SIGPIPE,signal.SIGXFSZ): signal.signal(name,signal.SIG_DFL)\n"
    "os.dup2(os.open(os.devnull,os.O_RDONLY),0)\n"
    "try: os.execv(sys.argv[1],sys.argv[2:])\n"
    "except OSError as error:\n"
    " print(f'cannot execute {sys.argv[1]}: {error.strerror}',file=sys.stderr,flush=True)\n"
    " os._exit(126)\n"
)


class Process(NamedTuple):
    """One line of the table of processes."""

    parent: int
    session: int
    memory: int
    """Resident, in bytes."""
    started: str
    """Equal for two looks at one process; never equal for two processes with one number."""


def table() -> dict[int, Process]:
    """All processes of this machine, by number."""
    return _table_of_proc() if sys.platform == "linux" else _table_of_ps()


def start_of(pid: int) -> str:
    """When a process has started, "" if it has ended."""
    found = _of_proc(pid) if sys.platform == "linux" else table().get(pid)
    return found.started if found else ""


def _table_of_proc() -> dict[int, Process]:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in numbers if (found := _of_proc(pid))}


def _of_proc(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the command may hold spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None  # it ended meanwhile
    if fields[0] in b"ZX":
        return None
    parent, session, pages = int(fields[1]), int(fields[3]), int(fields[21])
    return Process(parent, session, pages * os.sysconf("SC_PAGE_SIZE"), fields[19].decode())


def _table_of_ps() -> dict[int, Process]:
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,stat=,rss=,lstart="], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listing.stdout.splitlines():
        pid, parent, state, memory, started = line.split(None, 4)
        with contextlib.suppress(OSError):
            if not state.startswith("Z"):
                session = os.getsid(int(pid))
                found[int(pid)] = Process(int(parent), session, int(memory) * 1024, started)
    return found


def members(processes: Mapping[int, Process], sessions: set[int], roots: Iterable[int]) -> set[int]:
    """All processes of these sessions, and all descendants of these and of the roots.

    The sessions that descendants opened are added to `sessions`: a descendant whose parents have
    ended is still found by its session.
    """
    children: dict[int, list[int]] = {}
    by_session: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
        by_session.setdefault(process.session, []).append(pid)
    found: set[int] = set()
    todo = [pid for pid in roots if pid in processes]
    for session in sessions:
        todo += by_session.get(session, [])
    while todo:
        pid = todo.pop()
        if pid in found:
            continue
        found.add(pid)
        todo += children.get(pid, [])
        session = processes[pid].session
        # A root may run in a session that belongs to another container.
        if session in found and session not in sessions:
            sessions.add(session)
            todo += by_session[session]
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class Sessions:
    """The state file: which sessions an agent has started. Appended to, never rewritten."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / STATE_FILE

    def record(self, session: int, started: str) -> None:
        with open(self._file, "a") as file:
            file.write(f"{session} {started}\n")

    def living(self) -> set[int]:
        """Recorded sessions that may still have processes, and are certainly ours."""
        with contextlib.suppress(FileNotFoundError):
            processes = table()
            recorded = (line.split(None, 1) for line in self._file.read_text().splitlines())
            pairs = {int(pair[0]): pair[1] for pair in recorded if len(pair) == 2}
            # While a session has processes its number is not given out again. So either its first
            # process is the recorded one, or that has ended and the others are found by session.
            return {
                session
                for session, started in pairs.items()
                if session not in processes or processes[session].started == started
            }
        return set()

    def sweep(self) -> int:
        """End what is left of all recorded sessions; returns how many processes that were."""
        sessions, ended = self.living(), set[int]()
        while left := members(table(), sessions, sessions) - {os.getpid()}:
            ended |= left
            signal_all(left, signal.SIGKILL)
            time.sleep(0.02)
        return len(ended)


class Started(NamedTuple):
    """A command in a session of its own."""

    process: asyncio.subprocess.Process
    output: int
    """Where output and errors are read from. Whoever reads it closes it."""


async def start(
    command: list[str], program: str, env: Mapping[str, str], folder: str, sessions: Sessions
) -> Started:
    """Start a command: `program` is the file, `command[0]` what it sees as its name."""
    # Not asyncio's own pipe: some versions do not tell of the end while anybody holds that open.
    output, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _SHIM, program, *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=write_end,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(write_end)
    assert process.stdin is not None
    sessions.record(process.pid, start_of(process.pid))
    with contextlib.suppress(ConnectionError):
        process.stdin.write(b"+")
        process.stdin.close()
    return Started(process, output)


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
    Sessions(Path(sys.argv[1])).sweep()
