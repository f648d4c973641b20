"""One DAG a row of the fault matrix, as tests/e2e/rows.py describes them in `tasks.json`.

A task tells its processes' numbers, so that they can be killed, and dies by itself where no signal
from outside would come at the right moment. Otherwise it is the operator as it is.
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperatorLink

from airflow_kftrain import Lifecycle, PyTorchJobOperator, RunPolicy

_HOME = Path(os.environ["FAULTS_HOME"])
_PROGRAM = (Path(__file__).parents[1] / "programs" / "leader.py").read_text(encoding="utf-8")


class Lingering(BaseOperatorLink):
    """What a worker does last is to ask for its links; the first worker takes its time, but ends
    as soon as the worker that goes on is there."""

    name = "Lingering"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        marker, goes_on = (Path(operator.folder) / name for name in ("lingered", "goes-on"))
        if operator.linger and not marker.exists():
            marker.touch()
            end = time.monotonic() + operator.linger
            while time.monotonic() < end and not goes_on.exists():
                time.sleep(0.1)
        return ""


class Trained(PyTorchJobOperator):
    """`trouble`: what befalls the first try, and where. `linger`: seconds that its first
    worker needs to end, at most."""

    operator_extra_links: Any = (*PyTorchJobOperator.operator_extra_links, Lingering())

    def __init__(
        self, *, folder: str = "", trouble: str = "", linger: float = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.folder = folder
        self.trouble = trouble
        self.linger = linger

    def execute(self, context: Any) -> Any:
        self._tell(context)
        self._meet("before submit", context)
        return super().execute(context)

    def defer(self, *, timeout: Any = None, **given: Any) -> Any:
        self._meet("before defer")
        if self.trouble == "short deferral":
            timeout = timedelta(seconds=30)
        super().defer(timeout=timeout, **given)

    def execute_complete(self, context: Any, *args: Any, **given: Any) -> Any:
        self._tell(context)
        (Path(self.folder) / "goes-on").touch()
        self._meet("at the event", context)
        return super().execute_complete(context, *args, **given)

    def _tell(self, context: Any) -> None:
        self._try = context["ti"].try_number
        file = Path(self.folder) / f"worker-{self._try}"
        file.with_suffix(".new").write_text(f"{os.getpid()} {os.getppid()}")
        file.with_suffix(".new").replace(file)

    def _meet(self, where: str, _: Any = None) -> None:
        what, _, place = self.trouble.partition(" ")
        if self._try != 1 or place != where:
            return
        if what == "hold":
            time.sleep(3600)  # until it is killed
        marker = Path(self.folder) / "died"
        if marker.exists():
            return
        marker.touch()
        # "kill": the worker's machine is lost, and who looks after the task with it; "crash": the
        # task's process only, as the kernel ends one that takes too much memory.
        for pid in [os.getppid(), os.getpid()] if what == "kill" else [os.getpid()]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(60)


def _seconds(given: dict[str, Any], name: str) -> timedelta | None:
    return timedelta(seconds=given[name]) if name in given else None


def _dag(name: str, given: dict[str, Any]) -> DAG:
    with DAG(
        name, schedule=None, dagrun_timeout=_seconds(given, "dagrun_timeout"), max_active_tasks=64
    ) as dag:
        folder = str(_HOME / name)
        more: dict[str, Any] = {}
        if "ttl" in given:
            more["run_policy"] = RunPolicy(ttl=timedelta(seconds=given["ttl"]))
        common: dict[str, Any] = {
            "task_id": "train",
            "folder": folder,
            "trouble": given.get("trouble", ""),
            "linger": given.get("linger", 0),
            "image": "python:3.12-slim",
            "namespace": given["namespace"],
            "kubernetes_conn_id": given.get("connection", "kubernetes_default"),
            "command": [os.environ["FAULTS_PYTHON"], "-S", "-c", _PROGRAM],
            "args": given.get("args", ["as it is"]),
            "workers": given.get("workers", 0),
            "deferrable": given.get("deferrable", True),
            "retries": given.get("retries", 0),
            "retry_delay": timedelta(seconds=given.get("retry_delay", 1)),
            "execution_timeout": _seconds(given, "execution_timeout"),
            "poll_interval": timedelta(seconds=5),
            "lifecycle": Lifecycle(on_finish=given.get("on_finish", "delete_on_success")),
            **more,
        }
        env = {"FAULTS_FOLDER": folder}
        if mapped := given.get("mapped"):
            Trained.partial(**common).expand(env=[{**env, "N": str(n)} for n in range(mapped)])
        else:
            Trained(env=env, **common)
    return dag


for _name, _given in json.loads((_HOME / "tasks.json").read_text(encoding="utf-8")).items():
    globals()[_name] = _dag(_name, _given)
