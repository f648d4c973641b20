"""`airflow-kftrain local up | down | status | kubeconfig | run`: the embedded cluster by hand."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
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
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.local.agent.agent import agent_options, read_settings, state_folder
from airflow_kftrain.local.agent.become import start_of
from airflow_kftrain.local.agent.logs import CannotRun
from airflow_kftrain.local.agent.processes import PACKAGE_ROOT
from airflow_kftrain.local.api_client import ApiClient, ApiFailure, core, read_kubeconfig
from airflow_kftrain.local.cluster import LocalCluster, page_of
from airflow_kftrain.local.runs import run_file
from airflow_kftrain.local.server.page import LINKS
from airflow_kftrain.local.server.store import HISTORY

_PATIENCE = 30.0
_READY = "ready"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def main(words: list[str] | None = None) -> int:
    given = _arguments(words)
    commands: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "up": _up,
        "down": _down,
        "status": _status,
        "kubeconfig": _kubeconfig,
        "run": _run,
    }
    try:
        if not _NAME.fullmatch(given.name):  # it becomes a part of paths
            raise CannotRun(
                f"--name {given.name!r}: at most 63 lower-case letters, digits and dashes, a "
                "letter or digit at both ends"
            )
        return commands[given.command](given)
    except KfTrainError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="airflow-kftrain local",
        description="A Kubernetes-shaped cluster in one process; pods run as processes of yours.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--name", default="local", help="which cluster (%(default)s)")
        return added

    up = command("up", "Start a cluster, until Ctrl-C or `down`.")
    up.add_argument("--detach", action="store_true", help="leave it running in the background")
    up.add_argument(
        "--api-port", type=int, default=0, metavar="PORT", help="of the API server (any free one)"
    )
    up.add_argument(
        "--history",
        type=int,
        default=HISTORY,
        metavar="COUNT",
        help="changes that watches may go back (%(default)s)",
    )
    agent_options(up)
    command("down", "End a cluster; leaves no process and no file.")
    command("status", "Say whether a cluster runs, and what runs on it.")
    command("kubeconfig", "Print the path of a cluster's kubeconfig.")
    run = command("run", "Submit a manifest, follow it, and exit with the job's verdict.")
    run.add_argument("file", type=Path, help="YAML or JSON; - for standard input")
    run.add_argument("--namespace", help="other than the manifest's; default if it names none")
    return parser.parse_args(
        words, argparse.Namespace(words=sys.argv[1:] if words is None else words)
    )


# ----- where a cluster is


def _folder(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"kftrain-{os.getuid()}-{name}"


def _pid(folder: Path) -> int | None:
    """Of the cluster that is ready there."""
    with contextlib.suppress(OSError, ValueError):
        if folder.lstat().st_uid == os.getuid():  # of a link, whoever made it
            pid, started = (folder / _READY).read_text().split(maxsplit=1)
            if _runs(int(pid), started):
                return int(pid)
    return None


def _runs(pid: int, started: str) -> bool:
    """Not if the number was given out again."""
    with contextlib.suppress(OSError):
        return start_of(pid) == started
    return False


def _running(name: str) -> Path:
    """The kubeconfig of a cluster that runs; raises CannotRun."""
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
    if _pid(folder) is not None:
        raise CannotRun(
            f"cluster {given.name!r} runs already; end it: {_command('down', given.name)}"
        )
    if given.detach:
        return _up_detached(given, folder)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    with state_folder(folder):
        asyncio.run(_serve(given, folder))
    return 0


async def _serve(given: argparse.Namespace, folder: Path) -> None:
    began = time.monotonic()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with LocalCluster(
            folder, read_settings(given), given.api_port, given.history
        ) as cluster:
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
            [sys.executable, "-m", "airflow_kftrain.local.command", *words],
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
                print(output.read().strip(), file=sys.stderr)  # noqa: T201
                return process.wait() or 1
            time.sleep(0.02)
    print(f'cluster "{given.name}" is ready, process {process.pid}')  # noqa: T201
    _tell(given.name, folder)
    return 0


def _tell(name: str, folder: Path) -> None:
    extra = {"kube_config_path": str(folder / "kubeconfig"), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    page = page_of(folder / "kubeconfig")
    lines = (
        f"  page:     {page}",
        f"  kubectl:  export KUBECONFIG={folder / 'kubeconfig'}",
        f"  Airflow:  export AIRFLOW_CONN_KUBERNETES_DEFAULT={shlex.quote(connection)}",
        *(
            f"  links:    export AIRFLOW__KFTRAIN__{field.upper()}_URL={shlex.quote(page + path)}"
            for field, path in LINKS.items()
        ),
        f"  end it:   {_command('down', name)}",
    )
    print("\n".join(lines), flush=True)  # noqa: T201


def _down(given: argparse.Namespace) -> int:
    folder = _folder(given.name)
    if (pid := _pid(folder)) is not None:
        started = start_of(pid)
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + _PATIENCE
        while _runs(pid, started):
            if time.monotonic() > end:
                raise CannotRun(f"process {pid} of cluster {given.name!r} does not end")
            time.sleep(0.02)
    elif folder.exists():
        with state_folder(folder):  # what was killed is swept
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
    print(f'cluster "{given.name}" runs; pods: {pods or "none"}')  # noqa: T201
    _tell(given.name, kubeconfig.parent)
    return 0


def _kubeconfig(given: argparse.Namespace) -> int:
    print(_running(given.name))  # noqa: T201
    return 0


def _run(given: argparse.Namespace) -> int:
    cluster = read_kubeconfig(_running(given.name))
    try:
        text = sys.stdin.read() if str(given.file) == "-" else given.file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRun(f"{given.file} cannot be read: {error}") from error
    if isinstance(sys.stdout, io.TextIOWrapper):  # whatever a log says, and as soon as it does
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        return asyncio.run(
            _while_it_runs(given.name, run_file(cluster, text, given.namespace, print))
        )
    except ApiFailure as error:
        raise CannotRun(str(error)) from error
    except BrokenPipeError:  # nobody listens any more, not even at the end of this process
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


async def _while_it_runs(name: str, work: Coroutine[Any, Any, int]) -> int:
    """A watch would wait for ever for a cluster that has ended."""
    working = asyncio.create_task(work)
    while not (await asyncio.wait([working], timeout=0.5))[0]:
        if _pid(_folder(name)) is None:
            raise CannotRun(f"cluster {name!r} has ended")
    return working.result()


if __name__ == "__main__":
    sys.exit(main())
