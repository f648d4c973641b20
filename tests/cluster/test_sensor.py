"""Sensor"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import TrainingJobSensor
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.triggers.training_job import TrainingJobTrigger
from kftrain_local.faults.command import Fault, FaultProxy, running
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.operated import Instance, Operated, event_of
from tests.cluster.v1 import FOR_EVER
from tests.cluster.world import World

ERRORS = exceptions()
FAILS = "echo no such file; exit 3"


@pytest.fixture(autouse=True)
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def sensor(**more: Any) -> TrainingJobSensor:
    given = {"task_id": "t", "kind": "PyTorchJob", "name": "job", "deferrable": False}
    return TrainingJobSensor(**{**given, "poke_interval": 0.2, **more})


def run(task: TrainingJobSensor) -> Any:
    """On the worker; or on the worker, in a triggerer and on a worker again."""
    if not task.deferrable:
        return TrainingJobSensor.execute.__wrapped__(task, {"ti": Instance()})  # type: ignore[attr-defined]
    with pytest.raises(ERRORS.TaskDeferred) as caught:
        TrainingJobSensor.execute.__wrapped__(task, {"ti": Instance()})  # type: ignore[attr-defined]
    waits = caught.value
    return task.resume_execution(waits.method_name, {"event": event_of(waits)}, {})


modes = pytest.mark.parametrize("deferrable", [False, True], ids=["waiting", "deferred"])


@modes
def test_a_success_is_waited_for(world: World, deferrable: bool) -> None:
    job = world.start(pytorch_job({"Master": replica("pytorch", "sleep 1")}))
    assert run(sensor(deferrable=deferrable)) is None
    assert job.is_true("Succeeded")


@modes
def test_a_failure_fails_for_good_and_says_why(
    world: World, deferrable: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    world.start(pytorch_job({"Master": replica("pytorch", FAILS)}))
    with pytest.raises(ERRORS.AirflowFailException, match="exit code 3") as caught:
        run(sensor(deferrable=deferrable))
    assert str(caught.value).endswith("See the report above.")
    assert capsys.readouterr().out.count("no such file") == 1


@modes
def test_soft_fail_skips(world: World, deferrable: bool) -> None:
    world.start(pytorch_job({"Master": replica("pytorch", FAILS)}))
    with pytest.raises(ERRORS.AirflowSkipException):
        run(sensor(deferrable=deferrable, soft_fail=True))


def test_a_job_that_is_not_there_yet_is_waited_for(world: World) -> None:
    task = sensor()
    assert task.poke({}) is False
    job = world.start(pytorch_job({"Master": replica("pytorch")}))
    job.succeeds()
    assert task.poke({}) is True


def test_a_deferred_sensor_waits_for_a_job_that_comes_later(world: World) -> None:
    with pytest.raises(ERRORS.TaskDeferred) as caught:
        run_deferred(sensor(deferrable=True))
    stored = json.loads(json.dumps(caught.value.trigger.serialize()[1]))
    trigger = TrainingJobTrigger(**stored)

    async def event() -> Any:
        first = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.5)
        assert not first.done()
        manifest = pytorch_job({"Master": replica("pytorch")})
        await asyncio.to_thread(world.start, manifest)
        return (await first).payload

    assert asyncio.run(event())["verdict"] == "succeeded"


def run_deferred(task: TrainingJobSensor) -> None:
    TrainingJobSensor.execute.__wrapped__(task, {"ti": Instance()})  # type: ignore[attr-defined]


def test_waiting_ends_with_airflows_timeout(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    title = f"PyTorchJob {world.namespace}/job"
    with pytest.raises(ERRORS.AirflowSensorTimeout, match=f"{title} has not appeared"):
        run(sensor(timeout=0.5))
    assert capsys.readouterr().out.count(f"{title} has not appeared yet; waiting for it.") == 1


def test_a_sensor_that_was_deferred_for_too_long_says_what_is_not_there(world: World) -> None:
    task = sensor(deferrable=True)
    timed_out = {"error": "Trigger timeout"}
    with pytest.raises(ERRORS.AirflowSensorTimeout, match="has not appeared"):
        task.resume_execution("__fail__", timed_out, {})
    world.start(pytorch_job({"Master": replica("pytorch", FOR_EVER)}))
    with pytest.raises(ERRORS.AirflowSensorTimeout, match=r"^Trigger timeout$"):
        task.resume_execution("__fail__", timed_out, {})


def test_the_execution_timeout_holds_while_it_is_deferred_and_leaves_the_job(
    world: World, operated: Operated
) -> None:
    world.start(pytorch_job({"Master": replica("pytorch", FOR_EVER)}))
    with pytest.raises(ERRORS.AirflowTaskTimeout, match="execution timeout"):
        run(sensor(deferrable=True, execution_timeout=timedelta(seconds=4)))
    assert "deletionTimestamp" not in operated.job()["metadata"]


def test_the_execution_timeout_holds_where_there_is_no_job(world: World) -> None:
    missing = "had not appeared when the task's execution timeout was up"
    with pytest.raises(ERRORS.AirflowTaskTimeout, match=missing):
        run(sensor(deferrable=True, execution_timeout=timedelta(seconds=3)))


def test_a_worker_that_waits_outlasts_a_cluster_that_is_away(
    world: World,
    operated: Operated,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.start(pytorch_job({"Master": replica("pytorch")}))
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.0)
    away = Fault(verb="get", resource="pytorchjobs", code=503, times=2)
    with running(FaultProxy(world.target.kubeconfig, away)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        assert run(sensor()) is None
        assert away.hits == 2
    assert "waiting for the cluster" in capsys.readouterr().out


def test_what_waiting_does_not_heal_fails_at_once(
    world: World, operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Fault(verb="get", resource="pytorchjobs", code=403)
    with running(FaultProxy(world.target.kubeconfig, refusing)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        with pytest.raises(ERRORS.AirflowFailException):
            run(sensor())
        assert refusing.hits == 1
