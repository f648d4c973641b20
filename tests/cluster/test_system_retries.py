"""A job that the cluster has ended runs again in the same try: where it was, and alone."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain import Lifecycle, PyTorchJobOperator
from airflow_kftrain.errors import ClusterError
from airflow_kftrain.operators.cleanup import Cleanup
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.operated import Instance, Operated, execute
from tests.cluster.watched import order_for, start
from tests.cluster.world import Pod, World, eventually

LOG: Any = logging.getLogger(__name__)


TRAIN = (Path(__file__).parents[2] / "example_dags/programs/resume.py").read_text("utf-8")


def test_a_training_that_is_evicted_goes_on_from_its_checkpoint(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operated = Operated(world, monkeypatch)
    task = PyTorchJobOperator(
        task_id="train",
        image="python:3.12-slim",
        command=[sys.executable, "-c", TRAIN],
        env={"CHECKPOINTS": str(tmp_path), "STEPS": 60},
        workers=0,
        lifecycle=Lifecycle(system_retries=2, grace=timedelta(minutes=1)),
        deferrable=False,
    )
    instance = Instance()
    with ThreadPoolExecutor(1) as pool:
        evicted = pool.submit(_evict_after, operated, 10)
        value = execute(task, instance)
    evicted.result()
    assert value["steps"] == 60
    assert 10 <= value["begun_at_step"] < 60
    assert (value["attempt"], instance.try_number) == ("2", 1)
    assert len(instance.xcoms["job"]["earlier"]) == 1
    shown = instance.xcoms["kftrain"]
    assert shown["usage"]["system_retries"] == 1


def _evict_after(operated: Operated, step: int) -> None:
    pod = Pod(operated.world, f"{operated.runs()['metadata']['name']}-master-0")
    assert pod.now()["spec"]["terminationGracePeriodSeconds"] == 60
    eventually(lambda: f"step {step}\n" in pod.log().text, pod.now)
    pod.evict()


@pytest.mark.usefixtures("connection")
def test_pods_that_stay_are_an_error(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 300")}))
    job.becomes("Running")
    cleanup = Cleanup(order_for(world, job), LOG)
    with pytest.raises(ClusterError) as caught:
        cleanup.await_pods(3.0, lambda: False)
    assert "its pod job-master-0 on " in str(caught.value)
    assert "still exists 3 s after the job has ended" in str(caught.value)
    cleanup.await_pods(60.0, lambda: True)  # a worker that is stopped does not wait


@pytest.mark.usefixtures("connection")
def test_pods_that_end_are_waited_for(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 4; exit 1")}))
    job.becomes("Running")
    Cleanup(order_for(world, job), LOG).await_pods(60.0, lambda: False)
    assert [pod["status"]["phase"] for pod in world.listed("Pod")] == ["Failed"]
