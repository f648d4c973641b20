"""One DAG per row of the fault matrix, as tests/e2e/rows.py describes them in `tasks.json`.

A task writes the numbers of its processes, so that they can be killed, and kills itself if no
signal from outside would arrive at the right moment. Otherwise it is the unchanged operator.
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperatorLink, task_group

from airflow_kftrain import Lifecycle, Links, PyTorchJobOperator, Resources, RunPolicy

_HOME = Path(os.environ["FAULTS_HOME"])
_PROGRAM = (Path(__file__).parents[1] / "programs" / "leader.py").read_text(encoding="utf-8")


class Lingering(BaseOperatorLink):
    """The last thing that a worker does is to ask for its links. Here the first worker takes its
    time, but ends as soon as the worker that resumes the task exists."""

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
    """`trouble`: what happens to the first try, and where. `linger`: how many seconds its first
    worker needs at most to exit."""

    # Before the others: the last of them tells the trigger that the worker is about to exit.
    operator_extra_links: Any = (Lingering(), *PyTorchJobOperator.operator_extra_links)

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
        try:
            return super().execute(context)
        finally:
            (Path(self.folder) / f"left-{self._try}").touch()

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

    def on_kill(self) -> None:
        (Path(self.folder) / "told-to-stop").touch()
        super().on_kill()

    def _tell(self, context: Any) -> None:
        self._try = context["ti"].try_number
        file = Path(self.folder) / f"worker-{self._try}"
        # Mapped tasks share a folder, and write this at the same time.
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(f"{os.getpid()} {os.getppid()}")
        new.replace(file)

    def _meet(self, where: str, _: Any = None) -> None:
        what, _, place = self.trouble.partition(" ")
        if self._try != 1 or place != where:
            return
        if what == "hold":
            time.sleep(3600)  # until it is killed
        if what == "wait":
            self._call_the_cluster()
            orders = [Path(self.folder) / name for name in ("go-on", "told-to-stop")]
            while not any(order.exists() for order in orders):
                time.sleep(0.1)
            return
        marker = Path(self.folder) / "died"
        if marker.exists():
            return
        marker.touch()
        # "kill": the machine of the worker is lost, including the task's supervisor; "crash": only
        # the process of the task, like one that the kernel kills because of its memory.
        for pid in [os.getppid(), os.getpid()] if what == "kill" else [os.getpid()]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(60)

    def _call_the_cluster(self) -> None:
        """Airflow sends SIGKILL 5 s after SIGTERM. On a slow machine the first call takes that
        long, since it imports a Kubernetes client: so it is made before."""
        from airflow_kftrain.hooks.training_job import TrainingJobHook
        from airflow_kftrain.kinds import PYTORCH_JOB

        hook = TrainingJobHook(self.kubernetes_conn_id)
        assert list(hook.list(PYTORCH_JOB, str(self.namespace)))


def _seconds(given: dict[str, Any], name: str) -> timedelta | None:
    return timedelta(seconds=given[name]) if name in given else None


def _dag(name: str, given: dict[str, Any]) -> DAG:
    with DAG(
        name,
        schedule=None,
        dagrun_timeout=_seconds(given, "dagrun_timeout"),
        max_active_tasks=given.get("max_active_tasks", 64),
    ) as dag:
        folder = str(_HOME / name)
        more: dict[str, Any] = {}
        if "ttl" in given:
            more["run_policy"] = RunPolicy(ttl=timedelta(seconds=given["ttl"]))
        if "memory" in given:
            more["container_resources"] = Resources(memory=given["memory"])
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
            "lifecycle": Lifecycle(
                on_finish=given.get("on_finish", "delete_on_success"),
                system_retries=given.get("system_retries", 0),
            ),
            "links": Links(**given.get("links", {})),
            "wait_for_completion": given.get("wait", True),
            **more,
        }
        env = {"FAULTS_FOLDER": folder}
        if mapped := given.get("mapped"):
            Trained.partial(**common).expand(env=[{**env, "N": str(n)} for n in range(mapped)])
        elif looped := given.get("looped"):
            _loop(looped, env=env, **common)
        else:
            Trained(env=env, **common)
    return dag


def _loop(iterations: int, **task: Any) -> None:
    @task_group(group_id="rounds", prefix_group_id=False)
    def rounds() -> None:
        Trained(**task)

    group: Any = rounds  # without `loop` before Airflow 3.4
    group.loop(max_iterations=iterations)


for _name, _given in json.loads((_HOME / "tasks.json").read_text(encoding="utf-8")).items():
    globals()[_name] = _dag(_name, _given)
