"""The launcher itself: one per machine, nothing left behind, and one clear line for each error."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control_plane import build, go_tool
from tests.control_plane.errors import BuildFailed, Busy, ControlPlaneError
from tests.control_plane.machine_lock import HOME, MachineLock, read_record, record_of
from tests.control_plane.processes import ProcessId, process_id

ROOT = Path(__file__).resolve().parents[2]
# A start takes seconds, but the launcher waits longer on a busy machine.
slow = pytest.mark.timeout(300)

COMMAND = [sys.executable, "-m", "tests.control_plane"]
OLD_GO = "#!/bin/sh\nprintf 'go1.20.14\\nlinux\\namd64\\n1\\n/tmp\\n/tmp\\n'\n"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def wait_until(true: Callable[[], bool], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# ---- building


def test_without_go_there_is_one_line_and_exit_code_2() -> None:
    result = run("build", PATH="/nonexistent")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: no Go on PATH; the control plane is built with Go 1.26.0 or later"
    ]


def test_old_go_is_named_with_what_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "go").write_text(OLD_GO)
    (tmp_path / "go").chmod(0o755)
    result = run("build", "--check-go", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"error: {tmp_path}/go is go1.20.14; the control plane is built with Go 1.26.0 or later"
    ]


def test_failed_build_shows_the_end_of_its_log_and_leaves_no_binary(tmp_path: Path) -> None:
    binary = build.Binary("etcd", "etcd", "example.com/not/there")
    with pytest.raises(BuildFailed, match=r"(?s)go cannot build etcd \(log: .*example.com/not"):
        build._build(go_tool.find_go(), binary, tmp_path / "etcd", tmp_path / "etcd.log")
    assert [file.name for file in tmp_path.iterdir()] == ["etcd.log"]


def test_full_disk_is_noticed_before_the_first_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_COLD_GB", 10**9)
    monkeypatch.setattr(build, "_WARM_GB", 10**9)
    with pytest.raises(ControlPlaneError, match=r"needs about \d+ GB, but where .* GB are free"):
        build._check_space(go_tool.find_go(), tmp_path)


def test_other_flags_of_go_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    key = build.key_of(go_tool.find_go())
    for name, value in (("GOFLAGS", "-mod=vendor"), ("GOOS", "plan9"), ("GOWORK", "/no/such")):
        monkeypatch.setenv(name, value)
    assert build.key_of(go_tool.find_go()) == key


def test_second_build_has_nothing_to_do() -> None:
    build.ensure_built()
    lines: list[str] = []
    build.ensure_built(lines.append)
    assert lines == []


# ---- the lock and the sweep, with other processes than a control plane's


@contextmanager
def sleeper() -> Iterator[ProcessId]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        try:
            yield process_id(process.pid)
        finally:
            process.kill()


def test_second_one_is_refused_or_waits(tmp_path: Path) -> None:
    lines: list[str] = []
    first = MachineLock(lines.append, tmp_path)
    first.acquire(wait=True)
    first.write(record_of("training-operator", "", [], stoppable=False))
    with pytest.raises(Busy, match=f"profile training-operator, process {os.getpid()}"):
        MachineLock(lines.append, tmp_path).acquire(wait=False)
    waiting = MachineLock(lines.append, tmp_path)
    thread = threading.Thread(target=waiting.acquire, kwargs={"wait": True})
    thread.start()
    wait_until(lambda: bool(lines))
    assert "waiting for the one that is up" in lines[0]
    assert thread.is_alive()
    first.release()
    thread.join(10)
    assert waiting.state.is_dir()
    waiting.release()


def test_next_one_sweeps_processes_and_state_of_one_that_was_killed(tmp_path: Path) -> None:
    lines: list[str] = []
    with sleeper() as orphan:
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "old").touch()
        lock = MachineLock(lines.append, tmp_path)
        lock.write(record_of("training-operator", "", [orphan], stoppable=False))
        lock.acquire(wait=False)
        assert not orphan.lives()
        assert list(lock.state.iterdir()) == []
        lock.release()
    assert lines == ["control plane: swept up after one that was killed (1 processes)"]


def test_process_that_only_has_the_same_number_is_left_alone(tmp_path: Path) -> None:
    with sleeper() as stranger:
        lock = MachineLock(lambda line: None, tmp_path)
        lock.write(record_of("x", "", [stranger._replace(started="1")], stoppable=False))
        lock.acquire(wait=False)
        lock.release()
        assert stranger.lives()


def test_record_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('[[1, "2"], "half')
    assert read_record(tmp_path) is None


# ---- the command line, with real control planes


@contextmanager
def up(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A control plane as `up` keeps it running, when it is ready."""
    with subprocess.Popen(
        [*COMMAND, "up", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("export KUBECONFIG="), process.communicate()
            yield process
        finally:
            process.terminate()


def parts_that_live() -> list[ProcessId]:
    record = read_record()
    return [one for one in record.processes if one.lives()] if record else []


@slow
def test_up_can_be_found_and_ended_from_elsewhere() -> None:
    with up("--port", str(port := free_port())) as keeper:
        kubeconfig = run("kubeconfig").stdout.strip()
        assert f"https://127.0.0.1:{port}" in Path(kubeconfig).read_text(encoding="utf-8")
        second = run("up", "--no-wait")
        assert (second.returncode, second.stderr.count("\n")) == (1, 1)
        assert f"is up already (profile training-operator, process {keeper.pid})" in second.stderr

        parts = parts_that_live()
        assert len(parts) == 7
        assert run("down").returncode == 0
        assert keeper.wait(10) == 0
    assert [part for part in parts if part.lives()] == []
    assert [file.name for file in HOME.iterdir()] == ["lock"]
    assert run("kubeconfig").returncode == 1


@slow
def test_killed_launcher_leaves_no_process_and_the_next_start_its_folder() -> None:
    with up() as keeper:
        parts = parts_that_live()
        keeper.kill()
        keeper.wait()
        if sys.platform == "linux":
            wait_until(lambda: not any(part.lives() for part in parts), seconds=5)
    assert (HOME / "state").exists()

    ended = run("down")

    assert "swept up after one that was killed" in ended.stderr
    assert [part for part in parts if part.lives()] == []
    assert [file.name for file in HOME.iterdir()] == ["lock"]


@slow
def test_part_that_dies_ends_the_whole_and_is_named() -> None:
    with up() as keeper:
        parts = parts_that_live()
        os.kill(parts[-1].pid, signal.SIGKILL)  # started last: trainer
        _, errors = keeper.communicate(timeout=10)
    assert keeper.returncode == 1
    assert "error: trainer has ended (signal 9); the end of its log:" in errors
    assert [part for part in parts if part.lives()] == []


@pytest.mark.parametrize(
    ("address", "port", "arguments"),
    [("127.0.0.1", 0, []), ("", 8080, ["--profile", "mpi-operator"])],
    ids=["api-server", "mpi-operator"],
)
def test_port_in_use_is_one_line(address: str, port: int, arguments: list[str]) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((address, port))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("up", *(arguments or ["--port", str(port)]))
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: port {port} is in use; it is needed for")
    assert result.stderr.count("\n") == 1
    assert [file.name for file in HOME.iterdir()] == ["lock"]
