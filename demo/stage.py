"""Starts the embedded cluster and a real Airflow, runs the demo on them, and ends both.

Everything is in the folder .demo of the checkout, which is locked, guarded and removed at the end.
However this process ends, no other process is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from demo import story
from demo.airflow import Airflow, DemoFailed
from kftrain_local.agent.agent import state_folder
from kftrain_local.agent.logs import CannotRun
from kftrain_local.agent.machine import Settings
from kftrain_local.api_client import ApiClient, read_kubeconfig
from kftrain_local.cluster import LocalCluster, airflow_variables, page_of
from kftrain_local.errors import LocalError

_HERE = Path(__file__).parent
_FOLDER = _HERE.parent / ".demo"
_STAND_INS = _HERE.parent / "example_dags" / "stand_ins"
"""An mpirun, for machines without Open MPI."""
_TAB = {"AIRFLOW__KFTRAIN__TASK_TAB": "True"}
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
        say(f"error: {error}; is `make demo` already running in this checkout?")
    except (DemoFailed, LocalError, OSError) as error:
        say(f"error: {error}")
    return 1


class _Demo:
    def __init__(self, folder: Path, *, keep: bool) -> None:
        self._folder = folder
        self._keep = keep
        self._result = _INTERRUPTED

    async def run(self) -> int:
        """Returns the exit code. However many signals arrive, it ends once."""
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
            settings = {**airflow_variables(cluster.kubeconfig), **_TAB}
            async with (
                Airflow(self._folder, _HERE / "dags", settings, say) as airflow,
                ApiClient(read_kubeconfig(cluster.kubeconfig)) as api,
            ):
                await _first(
                    self._tell(airflow, cluster.kubeconfig),
                    # Tasks that have to continue: if one ends, something is wrong.
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
        say(f"Training:     {run.url}/tasks/function/plugin/kftrain")
        say(f"the cluster:  {page_of(kubeconfig)}")
        say(f"kubectl:      export KUBECONFIG={shlex.quote(str(kubeconfig))}")
        if not good:
            say("error: a task has failed, or a link leads nowhere: see above")
        self._result = 0 if good else 1
        if self._keep:
            say("everything stays open until Ctrl-C")
            # A closed terminal does not always send a signal.
            terminal = _in_terminal()
            while _in_terminal() == terminal:  # noqa: ASYNC110  # nor is there an event
                await asyncio.sleep(1)


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Waits until one of them ends, and then ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
