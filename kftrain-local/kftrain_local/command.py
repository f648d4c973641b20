"""`airflow-kftrain local up`, `env`, `run`, ...: the embedded cluster on the command line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kftrain_local.agent.agent import agent_options, read_settings, state_folder
from kftrain_local.agent.become import start_of
from kftrain_local.agent.logs import CannotRun
from kftrain_local.agent.processes import PACKAGE_ROOT
from kftrain_local.api_client import ApiClient, core, read_kubeconfig
from kftrain_local.cluster import LocalCluster, airflow_variables, page_of
from kftrain_local.errors import LocalError
from kftrain_local.server.store import HISTORY

_PATIENCE = 120.0  # for a busy machine
_READY = "ready"
_OPTIONS = "options"
_NO_OPTIONS = ("command", "name", "detach", "words")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


Run = Callable[[Path, Path, str, Callable[[], bool]], int]
"""Runs the job in a file and returns the exit code. Parameters: the kubeconfig of the cluster, the
file, the namespace ("": that of the file), and a function that says whether the cluster still
runs."""


def main(words: list[str] | None = None, run: Run | None = None) -> int:
    """`run` implements the command of that name: this package knows nothing about training jobs."""
    given = _arguments(words, run)
    commands: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "up": _up,
        "env": _env,
        "down": _down,
        "status": _status,
        "kubeconfig": _kubeconfig,
        "run": _run,
    }
    try:
        if not _NAME.fullmatch(given.name):  # it becomes part of a path
            raise CannotRun(
                f"--name {given.name!r}: at most 63 lower-case letters, digits and dashes, a "
                "letter or digit at both ends"
            )
        return commands[given.command](given)
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        if given.command == "env":  # `eval` of nothing succeeds, and Airflow would go elsewhere
            print("false")  # noqa: T201
        return 2


def _arguments(words: list[str] | None, run: Run | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="airflow-kftrain local",
        description="A Kubernetes-like cluster in one process. Pods are processes of this user.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--name", default="local", help="the name of the cluster (%(default)s)")
        return added

    up = command("up", "Start a cluster, until Ctrl-C or `down`.")
    up.add_argument("--detach", action="store_true", help="leave it running in the background")
    up.add_argument(
        "--api-port",
        type=int,
        default=0,
        metavar="PORT",
        help="the port of the API server (default: any free one)",
    )
    up.add_argument(
        "--history",
        type=int,
        default=HISTORY,
        metavar="COUNT",
        help="how many changes a watch can go back (%(default)s)",
    )
    agent_options(up)
    command("env", 'Print the variables for Airflow: eval "$(airflow-kftrain local env)".')
    command("down", "Stop a cluster. No process and no file is left.")
    command("status", "Say whether a cluster runs, and what runs on it.")
    command("kubeconfig", "Print the path of a cluster's kubeconfig.")
    if run is not None:
        added = command("run", "Submit a manifest, follow it, and exit with the job's verdict.")
        added.add_argument("file", type=Path, help="YAML or JSON; - for standard input")
        added.add_argument(
            "--namespace",
            default="",
            help="the namespace, if the manifest names none (default: default)",
        )
        added.set_defaults(run=run)
    return parser.parse_args(
        words, argparse.Namespace(words=sys.argv[1:] if words is None else words)
    )


# ----- where a cluster is


def _folder(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"kftrain-{os.getuid()}-{name}"


def _pid(folder: Path) -> int | None:
    """The process of the cluster in this folder, if it is ready."""
    with contextlib.suppress(OSError, ValueError):
        if folder.lstat().st_uid == os.getuid():  # of a link itself, whoever owns its target
            pid, started = (folder / _READY).read_text().split(maxsplit=1)
            if _runs(int(pid), started):
                return int(pid)
    return None


def _runs(pid: int, started: str) -> bool:
    """False if another process has the same number by now."""
    with contextlib.suppress(OSError):
        return start_of(pid) == started
    return False


def _running(name: str) -> Path:
    """The kubeconfig of a running cluster. Raises CannotRun."""
    folder = _folder(name)
    if _pid(folder) is None:
        raise CannotRun(f"no cluster {name!r} is running; start it: {_command('up', name)}")
    return folder / "kubeconfig"


def _command(word: str, name: str) -> str:
    option = "" if name == "local" else f" --name {shlex.quote(name)}"
    return f"airflow-kftrain local {word}{option}"


# ----- the commands


def _up(given: argparse.Namespace) -> int:
    folder = _folder(given.name)
    if (pid := _pid(folder)) is not None:
        if json.loads((folder / _OPTIONS).read_text()) != _options(given):
            raise CannotRun(
                f"cluster {given.name!r} is already running, with other options; stop it first: "
                f"{_command('down', given.name)}"
            )
        print(f'cluster "{given.name}" is already running, process {pid}')  # noqa: T201
        _tell(given.name, folder)
        return 0
    if given.detach:
        return _up_detached(given, folder)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    with state_folder(folder):
        asyncio.run(_serve(given, folder))
    return 0


def _options(given: argparse.Namespace) -> dict[str, object]:
    """With which a cluster is started."""
    return {name: value for name, value in vars(given).items() if name not in _NO_OPTIONS}


async def _serve(given: argparse.Namespace, folder: Path) -> None:
    began = time.monotonic()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with LocalCluster(
            folder, read_settings(given), given.api_port, given.history
        ) as cluster:
            (folder / _OPTIONS).write_text(json.dumps(_options(given)))
            (folder / _READY).write_text(f"{os.getpid()} {start_of(os.getpid())}")
            print(f'cluster "{given.name}" is ready after {time.monotonic() - began:.1f} s')  # noqa: T201
            _tell(given.name, folder)
            await cluster.run_until(stop)
    except OSError as error:
        raise CannotRun(f"port {given.api_port} of 127.0.0.1 cannot be used: {error}") from error


def _up_detached(given: argparse.Namespace, folder: Path) -> int:
    words = [word for word in given.words if word != "--detach"]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kftrain_local.command", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
            start_new_session=True,
        )
        end = time.monotonic() + _PATIENCE
        while _pid(folder) != process.pid:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                output.seek(0)
                late = f"error: cluster {given.name!r} is not ready after {_PATIENCE:.0f} s"
                print(output.read().strip() or late, file=sys.stderr)  # noqa: T201
                return process.wait() or 1
            time.sleep(0.02)
    print(f'cluster "{given.name}" is ready, process {process.pid}')  # noqa: T201
    _tell(given.name, folder)
    return 0


def _tell(name: str, folder: Path) -> None:
    connection, *links = _exports(folder)
    lines = (
        f"  page:     {page_of(folder / 'kubeconfig')}",
        f"  kubectl:  export KUBECONFIG={folder / 'kubeconfig'}",
        f"  Airflow:  {connection}",
        *(f"  links:    {link}" for link in links),
        f"  stop it:  {_command('down', name)}",
    )
    print("\n".join(lines), flush=True)  # noqa: T201


def _exports(folder: Path) -> list[str]:
    variables = airflow_variables(folder / "kubeconfig")
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _env(given: argparse.Namespace) -> int:
    print("\n".join(_exports(_running(given.name).parent)))  # noqa: T201
    return 0


def _down(given: argparse.Namespace) -> int:
    folder = _folder(given.name)
    if (pid := _pid(folder)) is not None:
        started = start_of(pid)
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + _PATIENCE
        while _runs(pid, started):
            if time.monotonic() > end:
                raise CannotRun(f"process {pid} of cluster {given.name!r} does not stop")
            time.sleep(0.02)
    elif folder.exists():
        with state_folder(folder):  # cleans up after a cluster that was killed
            pass
    print(f'cluster "{given.name}" is gone')  # noqa: T201
    return 0


def _status(given: argparse.Namespace) -> int:
    kubeconfig = _running(given.name)

    async def count() -> dict[str, int]:
        async with ApiClient(read_kubeconfig(kubeconfig)) as api:
            pods, _ = await api.list(core("", "pods"))
        phases = [str(pod["status"].get("phase")) for pod in pods]
        return {phase: phases.count(phase) for phase in sorted(set(phases))}

    pods = ", ".join(f"{count} {phase}" for phase, count in asyncio.run(count()).items())
    print(f'cluster "{given.name}" is running; pods: {pods or "none"}')  # noqa: T201
    _tell(given.name, kubeconfig.parent)
    return 0


def _kubeconfig(given: argparse.Namespace) -> int:
    print(_running(given.name))  # noqa: T201
    return 0


def _run(given: argparse.Namespace) -> int:
    kubeconfig = _running(given.name)
    run: Run = given.run
    return run(kubeconfig, given.file, given.namespace, lambda: _pid(kubeconfig.parent) is not None)


if __name__ == "__main__":
    sys.exit(main())
