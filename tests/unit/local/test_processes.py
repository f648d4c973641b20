from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_kftrain.local.processes import (
    PACKAGE_ROOT,
    Process,
    Sessions,
    Started,
    members,
    start,
    table,
)
from airflow_kftrain.local.remote_shell import split, wait_for


def a_process(parent: int, session: int) -> Process:
    return Process(parent, session, 0, "")


def test_members_are_sessions_and_all_descendants() -> None:
    processes = {
        1: a_process(0, 1),
        10: a_process(1, 10),
        11: a_process(10, 10),
        12: a_process(11, 12),  # a session of its own
        13: a_process(1, 12),  # whose parent has ended
        14: a_process(1, 10),  # orphan of the first session
        20: a_process(1, 20),
        21: a_process(20, 20),
    }
    sessions = {10}
    assert members(processes, sessions, []) == {10, 11, 12, 13, 14}
    assert sessions == {10, 12}


def test_a_root_does_not_draw_in_the_session_it_is_a_guest_of() -> None:
    processes = {5: a_process(1, 5), 6: a_process(5, 5), 7: a_process(6, 5)}
    sessions: set[int] = set()
    assert members(processes, sessions, [6]) == {6, 7}
    assert sessions == set()


async def _start(folder: Path, *command: str) -> Started:
    return await start(list(command), command[0], {"MY.VAR": "1"}, str(folder), Sessions(folder))


def test_a_command_runs_in_a_session_with_exactly_its_variables(tmp_path: Path) -> None:
    async def work() -> bytes:
        started = await _start(tmp_path, "/bin/sh", "-c", "cat; tr '\\0' '\\n' < /proc/$$/environ")
        code = await started.process.wait()
        with os.fdopen(started.output, "rb") as output:
            text = output.read()
        assert code == 0
        return text

    if sys.platform != "linux":
        pytest.skip("reads /proc")
    variables = asyncio.run(work()).splitlines()
    # Python may put a locale into its own environment, and so into its successor's.
    assert [line for line in variables if not line.startswith(b"LC_")] == [b"MY.VAR=1"]


def test_sweeping_ends_what_is_on_record_and_nothing_else(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours = subprocess.Popen(sleeper, start_new_session=True)
    others = subprocess.Popen(sleeper, start_new_session=True)
    try:
        sessions = Sessions(tmp_path)
        sessions.record(ours.pid, table()[ours.pid].started)
        sessions.record(others.pid, "another time")  # the number was given out again
        assert sessions.sweep() == 1
        assert ours.wait(10) == -signal.SIGKILL
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()


def test_the_guard_sweeps_when_its_agent_is_killed(tmp_path: Path) -> None:
    agent = f"""
import asyncio, os, sys
from pathlib import Path
from airflow_kftrain.local.processes import Sessions, start, start_guard
folder = Path({str(tmp_path)!r})
async def main():
    start_guard(folder, os.open(folder / "lock", os.O_RDWR | os.O_CREAT))
    command = ["/bin/sh", "-c", "sleep 60 & sleep 60"]
    started = await start(command, command[0], dict(os.environ), "/", Sessions(folder))
    print(started.process.pid, flush=True)
    await started.process.wait()
asyncio.run(main())
"""
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    process = subprocess.Popen([sys.executable, "-c", agent], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    session = int(process.stdout.readline())
    process.stdout.close()
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while any(found.session == session for found in table().values()):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["h", "c"], "h", ["c"]),
        (
            ["-o", "ConnectionAttempts=10", "-x", "h.job.ns.svc", "a", "-b"],
            "h.job.ns.svc",
            ["a", "-b"],
        ),
        (["-x", "-p", "22", "root@h", "c"], "h", ["c"]),
        (["-oStrict=no", "h", "c"], "h", ["c"]),
    ],
)
def test_the_remote_shell_reads_a_command_line_as_ssh_does(
    words: list[str], host: str, command: list[str]
) -> None:
    assert split(words) == (host, command)


def test_the_remote_shell_does_not_wait_for_a_pod_that_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not run within 0 s"):
        wait_for(tmp_path, 0.05)
    (tmp_path / "ended").touch()
    with pytest.raises(RuntimeError, match="has ended"):
        wait_for(tmp_path, 5)
