"""DAGs that end with `dag.test()`, run as their authors do, on the embedded cluster: with training
jobs, and with Airflow's own unchanged KubernetesPodOperator."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.targets import LocalTarget
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest

# Airflow takes a while to start, and longer next to other tests.
pytestmark = [pytest.mark.gate, pytest.mark.timeout(1200)]

_DAGS = Path(__file__).parent / "dag_test"
_PATIENCE = 600
_JOBS = ("PyTorchJob", "kubeflow.org/v1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalTarget]:
    with LocalTarget() as target:
        yield target


class AirflowProcess:
    """A DAG, run as its author would. Its tasks and triggers run in this one process."""

    def __init__(self, dag: str, home: Path, variables: dict[str, str]) -> None:
        self._output = home / "output"
        settings = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(_DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        with open(self._output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", str(_DAGS / f"{dag}.py")],
                env={**os.environ, **settings, **variables},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> AirflowProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def ends(self, patience: float) -> None:
        """If it does not end, all its threads print where they are."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
        assert self.process.returncode == 0, self.output

    def log(self, task: str) -> str:
        """The log while the task runs."""
        begun = self.output.partition(f"starting task_id={task} ")[2]
        return begun.partition("starting task_id=")[0]

    def tells(self, task: str, text: str) -> None:
        def look() -> bool:
            assert self.process.poll() is None, self.output
            return text in self.log(task)

        eventually(look, lambda: self.output, _PATIENCE)


def _pods(cluster: LocalTarget) -> list[Manifest]:
    """The pods of this DAG, in the namespace of the connection."""
    path = cluster.api.path("v1", "Pod", "default", None)
    query = {"labelSelector": "dag_id=pods"}
    return list(cluster.api.call("GET", path, query=query).required("the pods")["items"])


def test_tasks_end_as_their_pods_do_and_leave_none(cluster: LocalTarget, tmp_path: Path) -> None:
    with AirflowProcess("pods", tmp_path, cluster.airflow()) as airflow:
        airflow.tells("is_killed", "[base] alive")
        assert len(_pods(cluster)) == 1
        airflow.process.send_signal(signal.SIGTERM)  # the task's on_kill is called
        airflow.ends(_PATIENCE)
    ended = json.loads(airflow.output.splitlines()[-1])
    assert {task: state for task, (state, _) in ended.items()} == {
        "succeeds": "success",
        "deferred_succeeds": "success",
        "fails": "failed",
        "deferred_fails": "failed",
        "skips": "skipped",
        "deferred_skips": "skipped",
        "is_killed": "failed",
    }
    for prefix in ("", "deferred_"):
        assert re.search(r"\[base\] (logs: )?epoch 42", airflow.log(f"{prefix}succeeds"))
        failure = airflow.log(f"{prefix}fails")
        assert re.search(r"\[base\] (logs: )?epoch 14", failure)
        assert "'exit_code': 3" in failure
    assert "Pausing task as DEFERRED" in airflow.log("deferred_succeeds")
    # An XCom that needs no sidecar.
    for task, (_, pod) in ended.items():
        assert f"Building pod {pod} " in airflow.log(task)
    assert _pods(cluster) == []


def test_tasks_end_as_their_jobs_do_and_leave_none_running(
    cluster: LocalTarget, tmp_path: Path
) -> None:
    world = World(cluster, "default")
    variables = cluster.airflow()
    with AirflowProcess("training", tmp_path, variables) as airflow:
        airflow.tells("is_killed", "] alive")
        airflow.process.send_signal(signal.SIGTERM)  # the task's on_kill is called
        airflow.ends(_PATIENCE)
    ended = json.loads(airflow.output.splitlines()[-1])
    assert {task: state for task, (state, _) in ended.items()} == {
        "plan": "success",
        "succeeds": "success",
        "deferred_succeeds": "success",
        "fails": "failed",
        "deferred_fails": "failed",
        "skips": "skipped",
        "deferred_skips": "skipped",
        "takes_too_long": "failed",
        "deferred_takes_too_long": "failed",
        "mapped[0]": "success",
        "mapped[1]": "success",
        "kept": "success",
        "sensed": "success",
        "deferred_sensed": "success",
        "is_killed": "failed",
    }
    xcoms = {task: xcoms for task, (_, xcoms) in ended.items()}
    assert xcoms["mapped[0]"]["return_value"] == "first"
    assert xcoms["mapped[1]"]["return_value"] == "second"
    for prefix in ("", "deferred_"):
        _success_is_shown(airflow.log(f"{prefix}succeeds"), xcoms[f"{prefix}succeeds"])
        assert "exit code 3" in airflow.log(f"{prefix}fails")
        too_long = airflow.log(f"{prefix}takes_too_long")
        assert "execution timeout was up" in too_long
        assert "epoch 21" in too_long
    # Failed jobs stay for inspection; those that were unfinished when their tasks ended are gone.
    # Jobs of other tests in this namespace have no label of this DAG.
    labels = [job["metadata"].get("labels", {}) for job in world.listed(*_JOBS)]
    left = {found["task_id"] for found in labels if found.get("dag_id") == "training"}
    assert left == {"fails", "deferred_fails", "skips", "deferred_skips", "kept"}


def _success_is_shown(log: str, xcoms: dict[str, Any]) -> None:
    assert "PyTorchJob as it is submitted" in log
    assert re.search(r"epoch 42", log)
    assert xcoms["return_value"] == {"epochs": 42}
    name = xcoms["job"]["name"]
    assert xcoms["_link_TrainingJobLink"] == f"https://x/default/{name}"
    assert xcoms["_link_LeaderLogsLink"] == f"https://x/{name}-master-0"
    assert [entry["url"] for entry in xcoms["log_links"]] == [
        f"https://x/{name}-master-0",
        f"https://x/{name}-worker-0",
    ]
