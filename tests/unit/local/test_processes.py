from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kftrain_local.agent import agent, become
from kftrain_local.agent.become import start_of
from kftrain_local.agent.processes import (
    PACKAGE_ROOT,
    Process,
    Record,
    members,
    sweep,
    table,
)
from kftrain_local.agent.remote_shell import ENTRY, split, wait_for


def a_process(parent: int, session: int) -> Process:
    return Process(parent, session, 0, "")


def test_members_are_sessions_and_all_descendants() -> None:
    processes = {
        1: a_process(0, 1),
        10: a_process(1, 10),
        11: a_process(10, 10),
        12: a_process(11, 12),  # a session of its own
        13: a_process(1, 12),  # its parent has ended
        14: a_process(1, 10),  # an orphan of the first session
        20: a_process(1, 20),
        21: a_process(20, 20),
    }
    assert members(processes, {10}) == {10, 11, 12, 13, 14}


def test_a_root_does_not_draw_in_the_session_it_is_a_guest_of() -> None:
    processes = {5: a_process(1, 5), 6: a_process(5, 5), 7: a_process(6, 5)}
    assert members(processes, {6}) == {6, 7}


def test_a_session_remains_known_when_its_parents_have_ended(tmp_path: Path) -> None:
    record = Record(tmp_path / "main.record")
    assert record.members({10: a_process(1, 10)}) == set()
    record.file.write_text("10 early\n")
    ours = {10: Process(1, 10, 0, "early"), 12: Process(10, 12, 0, "late")}
    assert record.members(ours) == {10, 12}
    assert record.members({13: Process(1, 12, 0, "later")}) == {13}
    # Another process has that number by now.
    assert record.members({12: Process(1, 12, 0, "even later")}) == set()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    file = tmp_path / "pods" / "pod" / "main.record"
    file.parent.mkdir(parents=True)
    return Record(file)


def test_a_command_runs_in_a_session_with_exactly_its_variables(record: Record) -> None:
    async def work(output: int) -> None:
        words = ["/bin/sh", "-c", "cat; tr '\\0' '\\n' < /proc/$$/environ"]
        process = await record.start(words[0], words, {"MY.VAR": "1"}, "/", output)
        assert await process.wait() == 0
        assert record.file.read_text().startswith(f"{process.pid} ")

    if sys.platform != "linux":
        pytest.skip("reads /proc")
    output = record.file.with_suffix(".log")
    with open(output, "wb") as file:
        asyncio.run(work(file.fileno()))
    # Python may add a locale to its own environment, and so to that of the program that replaces
    # it.
    variables = output.read_bytes().splitlines()
    assert [line for line in variables if not line.startswith(b"LC_")] == [b"MY.VAR=1"]


def test_a_command_does_not_start_when_its_agent_has_gone(record: Record) -> None:
    words = ["/bin/echo", "echo", "started"]
    command = [sys.executable, "-I", "-S", become.__file__, str(record.file), "1", *words]
    done = subprocess.run(command, capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")


def test_sweeping_ends_what_is_on_record_and_nothing_else(record: Record, tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours = subprocess.Popen(sleeper, start_new_session=True)
    others = subprocess.Popen(sleeper, start_new_session=True)
    try:
        assert table()[ours.pid].started == start_of(ours.pid)
        # Another process has the second number by now.
        record.file.write_text(f"{ours.pid} {start_of(ours.pid)}\n{others.pid} 1\n")
        assert sweep(tmp_path) == 1
        assert ours.wait(10) == -signal.SIGKILL
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()


def test_the_guard_sweeps_when_its_agent_is_killed(record: Record, tmp_path: Path) -> None:
    program = f"""
import asyncio, os, sys
from pathlib import Path
from kftrain_local.agent.processes import Record, start_guard
folder = Path({str(tmp_path)!r})
async def main():
    start_guard(folder, os.open(folder / "lock", os.O_RDWR | os.O_CREAT))
    words = ["/bin/sh", "-c", "echo $$; exec >&-; sleep 60 & sleep 60"]
    process = await Record(Path({str(record.file)!r})).start(words[0], words, os.environ, "/", 1)
    await process.wait()
asyncio.run(main())
"""
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    session = int(process.stdout.readline())
    process.stdout.close()
    process.kill()
    process.wait()
    end = time.monotonic() + 60
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


def test_the_remote_shell_waits_for_a_pod_but_not_for_one_that_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"did not run within 0 s"):
        wait_for(tmp_path, "ml", "w-0", 0.05)
    for uid, text in (("old", ""), ("new", "{}")):
        (tmp_path / f"ml_w-0_{uid}").mkdir()
        (tmp_path / f"ml_w-0_{uid}" / ENTRY).write_text(text)
        if not text:
            with pytest.raises(RuntimeError, match="has ended"):
                wait_for(tmp_path, "ml", "w-0", 5)
    assert wait_for(tmp_path, "ml", "w-0", 5) == "{}"


def test_the_remote_shell_finds_the_pod_of_a_job_by_its_host_name(tmp_path: Path) -> None:
    (tmp_path / "ml_job-launcher-x2b9z_uid").mkdir()
    (tmp_path / "ml_job-launcher-x2b9z_uid" / ENTRY).write_text("{}")
    assert wait_for(tmp_path, "ml", "job-launcher", 5) == "{}"


def test_a_state_folder_is_for_one_agent_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_WAIT_FOR_LOCK", 0.1)
    folder = tmp_path / "state"
    with agent.state_folder(folder):
        with (
            pytest.raises(agent.CannotRun, match="another agent uses it"),
            agent.state_folder(folder),
        ):
            pass
        assert folder.exists()
    assert not folder.exists()
    # What a killed agent has left behind does no harm.
    (folder / "pods").mkdir(parents=True)
    (folder / agent._LOCK).touch()
    with agent.state_folder(folder):
        assert not (folder / "pods").exists()


def test_a_folder_of_others_is_not_swept(tmp_path: Path) -> None:
    for name in ("lock", "thesis.tex"):
        (tmp_path / name).touch()
    with pytest.raises(agent.CannotRun, match="contains other files"), agent.state_folder(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").exists()


def test_the_guard_finds_a_state_folder_with_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[Path] = []
    start = agent.start_guard

    def start_guard(folder: Path, lock: int) -> subprocess.Popen[bytes]:
        watched.append(folder)
        return start(folder, lock)

    monkeypatch.setattr(agent, "start_guard", start_guard)
    monkeypatch.chdir(tmp_path)
    with agent.state_folder(Path("state")):
        assert watched == [tmp_path / "state"]
