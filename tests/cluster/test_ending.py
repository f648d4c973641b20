"""Ending the job of a task"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.ownership import TaskState
from airflow_kftrain.watching import ending
from airflow_kftrain.watching.ending import end_job
from kftrain_local.faults.command import Fault, FaultProxy, running
from tests.cluster.owned import FIRST, RETRY, adopt, connection, order_for, owned_job
from tests.cluster.world import World, eventually

FAILED = TaskState(True, "failed")


@pytest.fixture(autouse=True)
def reachable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*connection(world.target.kubeconfig, world.namespace))
    monkeypatch.setattr(ending, "_PAUSE", 0.2)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    import airflow.settings  # noqa: F401  # it configures logging, which must not happen later

    caplog.set_level("INFO", "airflow_kftrain")
    return caplog


def end(order: WatchOrder, state: TaskState | Exception = FAILED) -> bool:
    """As a trigger that is told of a kill."""

    async def look_up() -> TaskState:
        if isinstance(state, Exception):
            raise state
        return state

    return asyncio.run(end_job(order, look_up))


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(TaskState(True, "failed"), id="marked failed"),
        pytest.param(TaskState(True, "success"), id="marked success"),
        pytest.param(TaskState(True, "skipped"), id="its run timed out"),
        pytest.param(TaskState(True, "removed"), id="left its DAG"),
        pytest.param(TaskState(True, None), id="cleared"),
        pytest.param(TaskState(True, "queued"), id="cleared and queued"),
        pytest.param(TaskState(False), id="deleted with its run"),
    ],
)
def test_the_job_of_a_task_that_was_ended_is_deleted(
    world: World, log: pytest.LogCaptureFixture, state: TaskState
) -> None:
    job = world.start(owned_job())
    assert end(order_for(world, job), state)
    eventually(job.is_gone)
    assert f"Deleted PyTorchJob {world.namespace}/{job.name}, since its task is" in log.text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        pytest.param(TaskState(True, "deferred"), "is still deferred", id="is deferred"),
        pytest.param(OSError("no API server"), "does not return", id="is not known"),
    ],
)
def test_the_job_of_a_task_stays_whose_state(
    world: World, log: pytest.LogCaptureFixture, state: TaskState | Exception, words: str
) -> None:
    job = world.start(owned_job())
    assert not end(order_for(world, job), state)
    assert "deletionTimestamp" not in job.now()["metadata"]
    assert words in log.text


def test_a_state_that_cannot_be_read_at_once_is_asked_for_again(world: World) -> None:
    job = world.start(owned_job())
    answers: list[TaskState | Exception] = [OSError("busy"), OSError("busy"), FAILED]

    async def look_up() -> TaskState:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert asyncio.run(end_job(order_for(world, job), look_up))


def test_a_job_that_a_newer_try_has_adopted_stays(world: World) -> None:
    job = world.start(owned_job())
    adopt(job, RETRY)
    assert not end(order_for(world, job, FIRST))
    assert "deletionTimestamp" not in job.now()["metadata"]
    assert end(order_for(world, job, RETRY))


def test_another_object_of_the_same_name_stays(world: World) -> None:
    first = world.start(owned_job())
    first.delete(propagationPolicy="Background")
    eventually(first.is_gone)
    second = world.start(owned_job())
    assert second.name == first.name
    assert not end(order_for(world, first))
    assert "deletionTimestamp" not in second.now()["metadata"]


def test_a_job_that_nobody_owns_is_not_ended_for_a_sensor(world: World) -> None:
    manifest = owned_job()
    manifest["metadata"]["annotations"] = {}
    job = world.start(manifest)
    assert not end(order_for(world, job)._replace(owner="", instance=""))
    assert "deletionTimestamp" not in job.now()["metadata"]


def test_a_job_that_has_ended_stays_to_be_looked_at(
    world: World, log: pytest.LogCaptureFixture
) -> None:
    job = world.start(owned_job("true"))
    job.succeeds()
    assert not end(order_for(world, job))
    assert not job.is_gone()
    assert "is not deleted" in log.text


def test_a_job_that_is_gone_is_no_trouble(world: World) -> None:
    job = world.start(owned_job())
    job.delete(propagationPolicy="Background")
    eventually(job.is_gone)
    assert not end(order_for(world, job))


def test_an_order_of_a_kind_that_is_not_known_ends_nothing(
    world: World, log: pytest.LogCaptureFixture
) -> None:
    job = world.start(owned_job())
    assert not end(order_for(world, job, api_version="kubeflow.org/v9"))
    assert "kubeflow.org/v9" in log.text


def test_it_goes_on_although_airflow_cancels_it_every_second(world: World) -> None:
    """Airflow sends the same cancellation again until the trigger has ended."""
    job = world.start(owned_job())

    async def look_up() -> TaskState:
        await asyncio.sleep(2.5)  # the first look-up of a triggerer takes that long
        return FAILED

    async def cancelled_again_and_again() -> None:
        telling = asyncio.ensure_future(end_job(order_for(world, job), look_up))
        for _ in range(3):
            await asyncio.sleep(0.3)
            telling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await telling
        await asyncio.wait(set(ending._AT_WORK), timeout=60)

    asyncio.run(cancelled_again_and_again())
    eventually(job.is_gone)


# ----- while the cluster is in trouble


def through(proxy: FaultProxy, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*connection(proxy.kubeconfig, world.namespace))


def test_a_job_that_is_adopted_in_the_very_moment_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.start(owned_job())
    with running(FaultProxy(world.target.kubeconfig, Fault(verb="delete", delay=1.5))) as proxy:
        through(proxy, world, monkeypatch)

        def adopt_once_it_is_to_be_deleted() -> None:
            eventually(lambda: proxy.calls["delete", "pytorchjobs"])
            adopt(job, RETRY)

        newer_try = threading.Thread(target=adopt_once_it_is_to_be_deleted)
        newer_try.start()
        assert not end(order_for(world, job))
        newer_try.join()
    assert "deletionTimestamp" not in job.now()["metadata"]


@pytest.mark.parametrize("times", [2, 7])
def test_a_job_that_only_trained_on_in_that_moment_is_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    job = world.start(owned_job())
    changing = Fault(verb="delete", code=409, times=times)
    with running(FaultProxy(world.target.kubeconfig, changing)) as proxy:
        through(proxy, world, monkeypatch)
        assert end(order_for(world, job))
        # The operator may write its status at that very moment, too.
        assert proxy.calls["delete", "pytorchjobs"] > times
    eventually(job.is_gone)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_refusals_that_pass_are_outlasted(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    job = world.start(owned_job())
    with running(FaultProxy(world.target.kubeconfig, Fault(code=code, times=3))) as proxy:
        through(proxy, world, monkeypatch)
        assert end(order_for(world, job))
    eventually(job.is_gone)


def test_a_server_that_is_away_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.start(owned_job())
    with running(FaultProxy(world.target.kubeconfig)) as proxy:
        through(proxy, world, monkeypatch)
        proxy.away(4)
        assert end(order_for(world, job))
    eventually(job.is_gone)


def test_an_answer_that_is_lost_leaves_no_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.start(owned_job())
    with running(
        FaultProxy(world.target.kubeconfig, Fault(verb="delete", times=1, cut=0))
    ) as proxy:
        through(proxy, world, monkeypatch)
        end(order_for(world, job))
    eventually(job.is_gone)


@pytest.mark.parametrize("trouble", ["away", "freeze"])
def test_a_server_that_does_not_come_back_is_given_up_in_time(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
    trouble: str,
) -> None:
    monkeypatch.setattr(ending, "PATIENCE", 3.0)
    job = world.start(owned_job())
    with running(FaultProxy(world.target.kubeconfig)) as proxy:
        through(proxy, world, monkeypatch)
        getattr(proxy, trouble)()
        began = time.monotonic()
        assert not end(order_for(world, job))
        assert time.monotonic() - began < 12
        proxy.clear()
    assert "deletionTimestamp" not in job.now()["metadata"]
    assert "It continues until it is swept" in log.text
    assert "airflow-kftrain sweep" in log.text


def test_a_right_that_is_missing_is_named_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    job = world.start(owned_job())
    with running(FaultProxy(world.target.kubeconfig, Fault(verb="delete", code=403))) as proxy:
        through(proxy, world, monkeypatch)
        assert not end(order_for(world, job))
        assert proxy.calls["delete", "pytorchjobs"] == 1
    assert f"cannot delete PyTorchJob {world.namespace}/{job.name}" in log.text
    assert "deletionTimestamp" not in job.now()["metadata"]


def test_all_of_it_fits_into_what_airflow_allows() -> None:
    from airflow.configuration import conf

    allowed = conf.getfloat("triggerer", "on_kill_timeout", fallback=30.0)
    assert allowed - 5 >= ending.PATIENCE
