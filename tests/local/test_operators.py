"""Training jobs as tasks of a real Airflow, on the embedded cluster."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain.local.faults.proxy import FaultProxy, running
from airflow_kftrain.local.faults.rules import Fault
from airflow_kftrain.ownership import read_claim
from tests.cluster.operated import Instance, Operated, execute, operator
from tests.cluster.targets import LocalTarget
from tests.cluster.world import World
from tests.local.test_pod_operator import AirflowProcess

# Airflow takes its time to start, more so beside other tests.
pytestmark = pytest.mark.timeout(720)

_PATIENCE = 600
_JOBS = ("PyTorchJob", "kubeflow.org/v1")


def test_tasks_end_as_their_jobs_do_and_leave_none_running(
    target: LocalTarget, tmp_path: Path
) -> None:
    world = World(target, "default")
    variables = {**target.airflow(), "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1"}
    with AirflowProcess("training", tmp_path, variables) as airflow:
        airflow.tells("is_killed", "] alive")
        airflow.process.send_signal(signal.SIGTERM)  # the task's on_kill is called
        assert airflow.process.wait(_PATIENCE) == 0, airflow.output
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
    # Failed ones stay to be looked at; those that lived when their tasks ended are gone.
    left = {job["metadata"]["labels"]["task_id"] for job in world.listed(*_JOBS)}
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


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def test_a_fresh_job_costs_two_calls(
    operated: Operated, target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(FaultProxy(str(target.kubeconfig))) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        execute(operator(wait_for_completion=False), Instance())
        assert dict(proxy.calls) == {("list", "pytorchjobs"): 1, ("create", "pytorchjobs"): 1}


def test_a_job_that_changes_while_it_is_adopted_is_looked_at_again(
    operated: Operated, target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Instance(retries=1)
    execute(operator("sleep 600", retries=1, wait_for_completion=False), lost)
    before = operated.runs()
    changed = Fault(verb="patch", resource="pytorchjobs", code=409, times=2)
    with running(FaultProxy(str(target.kubeconfig), changed)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        retry = Instance(before=lost)
        execute(operator("sleep 600", retries=1, wait_for_completion=False), retry)
        assert dict(proxy.calls) == {
            ("list", "pytorchjobs"): 1,
            ("patch", "pytorchjobs"): 3,
            ("get", "pytorchjobs"): 2,
        }
    job = operated.job()
    assert job["metadata"]["uid"] == before["metadata"]["uid"]
    assert read_claim(job).owner.ti_id == retry.id
