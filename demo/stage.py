"""Starts the embedded cluster and a real Airflow, runs the story between them, ends both.

All of it is in the folder .demo of the checkout, which is locked, guarded and removed at the end:
however this process ends, no other is left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.local.agent.agent import state_folder
from airflow_kftrain.local.agent.logs import CannotRun
from airflow_kftrain.local.agent.machine import Settings
from airflow_kftrain.local.api_client import ApiClient, read_kubeconfig
from airflow_kftrain.local.cluster import LocalCluster, page_of
from airflow_kftrain.local.server.page import LINKS
from demo import story
from demo.airflow import Airflow, DemoFailed

_HERE = Path(__file__).parent
_FOLDER = _HERE.parent / ".demo"
_STAND_INS = _HERE.parent / "example_dags" / "stand_ins"
"""An mpirun, for machines without Open MPI."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 130
_BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.1f} s  {text}", flush=True)


def _in_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format=f"{'':10}%(message)s")
    keep = os.environ.get("KEEP") or str(int(_in_terminal()))
    os.environ["PATH"] = f"{_STAND_INS}{os.pathsep}{os.environ['PATH']}"
    try:
        with state_folder(_FOLDER) as folder:
            try:
                return asyncio.run(_Demo(folder, keep=keep != "0").run())
            finally:
                for number in _SIGNALS:  # it is ending already
                    signal.signal(number, signal.SIG_IGN)
    except CannotRun as error:
        say(f"error: {error}; does `make demo` run in this checkout already?")
    except (DemoFailed, KfTrainError, OSError) as error:
        say(f"error: {error}")
    return 1


class _Demo:
    def __init__(self, folder: Path, *, keep: bool) -> None:
        self._folder = folder
        self._keep = keep
        self._result = _INTERRUPTED

    async def run(self) -> int:
        """The exit code. However many signals come, it ends once."""
        stop = asyncio.Event()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        showing = asyncio.create_task(self._show())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((showing, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            say("stopping")
        stopped.cancel()
        showing.cancel()
        await asyncio.wait((showing, stopped))
        if not showing.cancelled():
            showing.result()
        return self._result

    async def _show(self) -> None:
        say("starting the embedded cluster")
        async with LocalCluster(self._folder, Settings()) as cluster:
            settings = airflow_settings(cluster.kubeconfig)
            async with (
                Airflow(self._folder, _HERE / "dags", settings, say) as airflow,
                ApiClient(read_kubeconfig(cluster.kubeconfig)) as api,
            ):
                await _first(
                    self._tell(airflow, cluster.kubeconfig),
                    # What has to go on meanwhile: if it ends, something is wrong.
                    cluster.run_until(asyncio.Event()),
                    airflow.run(),
                    story.copy_logs(api, say),
                )

    async def _tell(self, airflow: Airflow, kubeconfig: Path) -> None:
        say("waiting until Airflow has read the DAG")
        run = await story.start(airflow)
        say("running it")
        await story.follow(run, say)
        good = await story.tell(run, say)
        say(f"Airflow:      {run.url}")
        say(f"the cluster:  {page_of(kubeconfig)}")
        say(f"kubectl:      export KUBECONFIG={shlex.quote(str(kubeconfig))}")
        if not good:
            say("error: not every task is a success, or not every link leads somewhere: see above")
        self._result = 0 if good else 1
        if self._keep:
            say("all of it stays open until Ctrl-C")
            # Not always is anybody told that a terminal was closed.
            terminal = _in_terminal()
            while _in_terminal() == terminal:  # noqa: ASYNC110  # nor is there an event
                await asyncio.sleep(1)


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Until one of them ends, which ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def airflow_settings(kubeconfig: Path) -> dict[str, str]:
    """What `airflow-kftrain local up` prints for Airflow."""
    extra = {"kube_config_path": str(kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    page = page_of(kubeconfig)
    links = {f"AIRFLOW__KFTRAIN__{name.upper()}_URL": page + path for name, path in LINKS.items()}
    return {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection, **links}
