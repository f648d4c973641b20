"""Airflow's own KubernetesPodOperator, as it is, on the embedded cluster."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.sdk import timezone

from tests.cluster.targets import LocalTarget
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest

# Airflow takes its time to start, more so beside other tests.
pytestmark = pytest.mark.timeout(180)

_DAGS = Path(__file__).parent / "dags"
_PATIENCE = 90


class AirflowProcess:
    """A DAG, run as its author would try it; its tasks and triggers run in this one process."""

    def __init__(self, dag: str, home: Path, variables: dict[str, str]) -> None:
        self._output = home / "output"
        settings = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(_DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        with open(self._output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(_DAGS / f"{dag}.py")],
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

    def log(self, task: str) -> str:
        """What is told while the task runs."""
        begun = self.output.partition(f"starting task_id={task} ")[2]
        return begun.partition("starting task_id=")[0]

    def tells(self, task: str, text: str) -> None:
        def look() -> bool:
            assert self.process.poll() is None, self.output
            return text in self.log(task)

        eventually(look, lambda: self.output)


def _pods(target: LocalTarget) -> list[Manifest]:
    """Of this DAG, in the namespace of the connection."""
    path = target.api.path("v1", "Pod", "default", None)
    query = {"labelSelector": "dag_id=pods"}
    return list(target.api.call("GET", path, query=query).required("the pods")["items"])


def test_tasks_end_as_their_pods_do_and_leave_none(target: LocalTarget, tmp_path: Path) -> None:
    with AirflowProcess("pods", tmp_path, target.airflow()) as airflow:
        airflow.tells("is_killed", "[base] alive")
        assert len(_pods(target)) == 1
        airflow.process.send_signal(signal.SIGTERM)  # the task's on_kill is called
        assert airflow.process.wait(_PATIENCE) == 0, airflow.output
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
    assert _pods(target) == []


def test_a_trigger_that_is_killed_deletes_the_pod(
    world: World, target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the triggerer does it when a deferred task is marked as failed or cleared."""
    for name, value in target.airflow().items():
        monkeypatch.setenv(name, value)
    pod = world.pod("p", "sleep", "600")
    pod.phase("Running")
    trigger = KubernetesPodTrigger(
        pod_name=pod.name,
        pod_namespace=world.namespace,
        trigger_start_time=timezone.utcnow(),
        base_container_name="main",
        kubernetes_conn_id="kubernetes_default",
        poll_interval=0.1,
    )

    async def kill_it() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(trigger.run()), 1)
        await trigger.on_kill()

    asyncio.run(kill_it())
    eventually(pod.is_gone, lambda: pod.status)
