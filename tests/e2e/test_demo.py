"""`make demo` in a copy of this checkout, as somebody runs it who has just cloned it.

However it ends, no process is left, and only the files that `make venv` has created.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PATIENCE = 480
_ENDS_SOON = 90
_TASKS = ("function", "pytorch", "tensorflow", "mpi")

# Installing everything for the first time takes some minutes.
pytestmark = pytest.mark.timeout(900)


class Demo:
    """One `make demo`, in a session of its own, like in a terminal of its own."""

    def __init__(self, checkout: Path, *before: str, stdin: int = subprocess.DEVNULL) -> None:
        self._checkout = checkout
        self._log = checkout.parent / "output"
        output = (
            stdin
            if stdin != subprocess.DEVNULL
            else os.open(self._log, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        )
        self.process = subprocess.Popen(
            [*before, "make", "demo"],
            cwd=checkout,
            stdin=stdin,
            stdout=output,
            stderr=output,
            env=_environment(),
            start_new_session=True,
        )
        os.close(output)

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.interrupt()
        self.ends()

    @property
    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def says(self, text: str) -> None:
        def look() -> bool:
            assert self.process.poll() is None or text in self.output, self.output
            return text in self.output

        _eventually(look, _PATIENCE, lambda: self.output)

    def interrupt(self) -> None:
        """Ctrl-C reaches every process in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kills the demo itself, without a chance to react."""
        (demo,) = (pid for pid, words in _processes(self._checkout) if "-m\0demo\0" in words)
        os.kill(demo, signal.SIGKILL)

    def ends(self, patience: float = _ENDS_SOON) -> int:
        """Returns its exit code. Nothing is left."""
        code = self.process.wait(patience)
        _eventually(lambda: not _processes(self._checkout), 30, lambda: _processes(self._checkout))
        assert not (self._checkout / ".demo").exists()
        return code

    def succeeds(self) -> None:
        assert self.ends(_PATIENCE) == 0, self.output
        for task in _TASKS:
            assert f"task {task}: deferred" in self.output
            assert re.search(
                rf"{task}: success after [\d.]+ s\n +[\d.]+ s +return value  [^n]", self.output
            )
        assert re.search(r'return value  {"pi": 3\.1\d*, "processes": 3}', self.output)
        assert re.search(r"function-\S*master-0] rank 0: \d+ of 120000 points", self.output)
        assert "master-0] step 100: loss 0.0" in self.output
        shown = re.findall(r"task function: step (\d+) of 60 \([\d.]+ %\), pi 3\.\d+", self.output)
        assert shown[-1:] == ["60"], self.output  # a busy machine may show only the last one
        assert '"kftrain"' not in self.output
        codes = re.findall(r" http://127\.0\.0\.1:\S+  (.*)", self.output)
        assert len(codes) >= 3 * len(_TASKS)
        assert set(codes) == {"200"}


def _processes(checkout: Path) -> list[tuple[int, str]]:
    """The processes that refer to the checkout, in their command, a variable or their folder."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit():
                command = (folder / "cmdline").read_bytes()
                said = command + (folder / "environ").read_bytes()
                # Zombies have no command any more.
                said += os.fsencode((folder / "cwd").readlink())
                if command and os.fsencode(checkout) in said:
                    found.append((int(folder.name), command.decode(errors="replace")))
    return found


def _environment() -> dict[str, str]:
    """The environment of a shell that knows nothing of this test run, nor of the `make` that
    started it."""
    away = ("MAKE", "MFLAGS", "AIRFLOW", "PYTHON", "PYTEST", "VIRTUAL_ENV", "KEEP")
    return {name: value for name, value in os.environ.items() if not name.startswith(away)}


def _eventually(good: Callable[[], bool], patience: float, shown: Callable[[], object]) -> None:
    end = time.monotonic() + patience
    while not good():
        assert time.monotonic() < end, shown()
        time.sleep(0.1)


def _cloned(copy: Path) -> Path:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if (_ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy in which the first demo was interrupted, and the next one has succeeded."""
    copy = _cloned(tmp_path_factory.mktemp("demo") / "checkout")
    with Demo(copy) as demo:
        demo.says("pip install -e .")
        time.sleep(2)  # somewhere in the middle
        demo.interrupt()
        assert demo.ends() != 0
    with Demo(copy) as demo:
        demo.succeeds()
    yield copy
    shutil.rmtree(copy)


@pytest.mark.gate
def test_again_while_others_have_the_usual_ports(checkout: Path) -> None:
    with contextlib.ExitStack() as ports:
        for port in (8080, 8793, 8794):
            with contextlib.suppress(OSError):  # so another process has the port
                ports.enter_context(socket.create_server(("127.0.0.1", port)))
        with Demo(checkout) as demo:
            demo.succeeds()
            assert "pip" not in demo.output


@pytest.fixture(scope="module")
def alone() -> tuple[str, ...]:
    """A prefix that runs a command without a network."""
    words = (
        "unshare",
        "--net",
        "--map-root-user",
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "-",
    )
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this machine cannot take the network away: {tried.stderr.strip()}")
    return words


def test_without_a_network(checkout: Path, alone: tuple[str, ...]) -> None:
    with Demo(checkout, *alone) as demo:
        demo.succeeds()


def test_the_first_time_without_a_network_says_what_to_do(
    tmp_path: Path, alone: tuple[str, ...]
) -> None:
    with Demo(_cloned(tmp_path / "checkout"), *alone) as demo:
        assert demo.ends(_PATIENCE) != 0
    said, found, todo = demo.output.partition("error: pip cannot reach its package index")
    assert found, said
    assert "connection broken by" in said
    assert "ERROR: " in said
    assert "connect this machine to the network" in todo


@pytest.mark.parametrize(
    "moment",
    [
        "starting the embedded cluster",
        "creating Airflow's database",
        "starting Airflow's",
        "running it",
        pytest.param("task function: deferred", marks=pytest.mark.gate),
        "task function: success",
    ],
)
def test_ctrl_c_ends_it_at_any_moment(checkout: Path, moment: str) -> None:
    with Demo(checkout) as demo:
        demo.says(moment)
        demo.interrupt()
        demo.interrupt()
        assert demo.ends() != 0
        assert "Traceback" not in demo.output


def test_a_second_one_is_refused_and_does_no_harm(checkout: Path) -> None:
    with Demo(checkout) as demo:
        demo.says("running it")
        second = subprocess.run(
            ["make", "demo"],
            cwd=checkout,
            capture_output=True,
            text=True,
            env=_environment(),
            check=False,
        )
        assert second.returncode != 0
        assert "is `make demo` already running in this checkout?" in second.stdout
        demo.succeeds()


def test_what_a_killed_one_leaves_is_ended(checkout: Path) -> None:
    with Demo(checkout) as demo:
        demo.says("task function: deferred")
        demo.kill()
        assert demo.process.wait(_ENDS_SOON) != 0
        _eventually(lambda: not _processes(checkout), 30, lambda: _processes(checkout))
        with Demo(checkout) as again:
            again.says("creating Airflow's database")
            again.interrupt()
            assert "Traceback" not in again.output


class Terminal:
    """The demo in a terminal, from the moment when it stays open."""

    def __init__(self, checkout: Path) -> None:
        ours, its = pty.openpty()
        self.screen = open(ours, "r+b", buffering=0)  # noqa: SIM115  # closed in the tests
        self.demo = Demo(checkout, "setsid", "--ctty", "--wait", stdin=its)
        self.said = ""
        while "stays open until Ctrl-C" not in self.said:
            self.said += self.screen.read(10_000).decode()


def test_in_a_terminal_it_stays_open_until_ctrl_c(checkout: Path) -> None:
    terminal = Terminal(checkout)
    with terminal.screen, terminal.demo as demo:
        addresses = re.findall(r" (?:Airflow|the cluster): +(http\S+)", terminal.said)
        assert len(addresses) == 2
        for address in addresses:
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert answer.status == 200
        terminal.screen.write(b"\x03")
        demo.ends()


def test_a_terminal_that_is_closed_ends_it(checkout: Path) -> None:
    terminal = Terminal(checkout)
    terminal.screen.close()
    terminal.demo.ends()
