"""Watching jobs in trouble"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

from airflow_kftrain.job_state import Phase
from airflow_kftrain.manifests.identity import INSTANCE_LABEL
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.specs.timeouts import Timeouts
from airflow_kftrain.watching import pods, survey
from tests.cluster.jobs import pytorch_job, replica, tf_job, train_job
from tests.cluster.watched import INSTANCE, Told, order_for, start, until, watched
from tests.cluster.world import World

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that are far apart come sooner."""
    monkeypatch.setattr(survey, "PAUSE", 1.0)
    monkeypatch.setattr(pods, "LOOK_SECONDS", 0.5)


def test_an_image_name_that_cannot_be_read_ends_the_wait_at_once(world: World) -> None:
    """The verdict is ours: the job still lives, and whoever gets the event deletes it."""
    bad = replica("pytorch", image="invalid//name")
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60"), "Worker": bad}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "InvalidImageName")
    assert not outcome.retryable
    assert "worker-0" in outcome.words
    assert outcome.phase is not None
    assert not outcome.phase.is_final


def test_trouble_of_pods_without_our_label_is_seen_a_little_later(world: World) -> None:
    """As a TrainJob's initializers are."""
    manifest = pytorch_job({"Master": replica("pytorch", image="invalid//name")})
    manifest["metadata"]["labels"] = {INSTANCE_LABEL: INSTANCE}
    order = order_for(world, world.start(manifest), poll_interval=1.0)
    outcome = asyncio.run(Told().watch(order))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "InvalidImageName")


def test_what_a_job_waits_for_is_told_once(world: World) -> None:
    """Here for the second worker, which asks for more than any node has."""
    big = replica("pytorch", "true", resources={"limits": {"cpu": "900"}})
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60"), "Worker": big}))
    told = Told()

    async def run() -> None:
        async with watched(told, order_for(world, job)):
            await until(lambda: "finds no node" in told.text)
            await asyncio.sleep(4)

    asyncio.run(run())
    lines = [line for line in told.lines if "finds no node" in line]
    assert len(lines) == 1
    assert lines[0].startswith("1 of 2 pods of the PyTorchJob run; worker-0: finds no node")


def test_a_job_that_does_not_start_in_time_fails_with_what_it_waits_for(world: World) -> None:
    big = replica("pytorch", "true", resources={"limits": {"cpu": "900"}})
    job = start(world, pytorch_job({"Master": big}))
    patience = Timeouts(startup=timedelta(seconds=4))
    outcome = asyncio.run(Told().watch(order_for(world, job, timeouts=patience)))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "StartupTimeout")
    assert "finds no node" in outcome.words
    assert "FailedScheduling" in outcome.report


def test_a_job_that_runs_has_no_startup_timeout_whatever_its_status_says(world: World) -> None:
    """A worker without a node keeps a job with a leader that trains in Created, or Running."""
    big = replica("pytorch", "true", resources={"limits": {"cpu": "900"}})
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60"), "Worker": big}))
    told = Told()
    patience = Timeouts(startup=timedelta(seconds=3))

    async def run() -> bool:
        async with watched(told, order_for(world, job, timeouts=patience)) as task:
            await until(lambda: "finds no node" in told.text)
            await asyncio.sleep(4)
            return task.done()

    assert not asyncio.run(run())


def test_the_crash_of_a_container_that_restarts_is_remembered(world: World) -> None:
    """The operator deletes the pod that crashes when its limit is reached, and its log with it."""
    crashing = replica("pytorch", "echo no such file; sleep 1; exit 7", policy="OnFailure")
    job = start(world, pytorch_job({"Master": crashing}, run_policy={"backoffLimit": 2}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.FAILED)
    assert outcome.exit_code == 7
    assert "no such file" in outcome.report


def test_a_crash_loop_that_nobody_counts_ends_the_wait(world: World) -> None:
    crashing = replica("pytorch", "echo alas; exit 7", policy="OnFailure")
    job = start(world, pytorch_job({"Master": crashing}))
    patience = Timeouts(crash_loop=timedelta(seconds=1))
    outcome = asyncio.run(Told().watch(order_for(world, job, timeouts=patience)))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "CrashLoopBackOff")
    assert "alas" in outcome.report


def test_a_train_job_that_fails_is_explained_by_what_its_pods_left(world: World) -> None:
    job = start(world, train_job("echo no such file; exit 3"))
    told = Told()
    outcome = asyncio.run(told.watch(order_for(world, job)))
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.FAILED)
    assert outcome.exit_code == 3
    assert "no such file" in outcome.report


def test_a_train_job_tells_the_names_of_its_pods(world: World) -> None:
    job = start(world, train_job("sleep 2; echo done", nodes=2))
    told = Told()
    outcome = asyncio.run(told.watch(order_for(world, job)))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert [(pod.role, pod.index, pod.leads) for pod in outcome.pods] == [
        ("node", 0, True),
        ("node", 1, False),
    ]
    assert outcome.pods[0].pod.startswith("job-node-0-0-")
    assert told.pods[0] == outcome.pods
    assert outcome.tail == "done"


def test_a_job_that_is_deleted_is_gone(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60")}))
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job)) as task:
            await until(lambda: "Running" in told.text)
            await asyncio.to_thread(job.delete)
            return await asyncio.wait_for(task, 30)

    outcome = asyncio.run(run())
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.GONE)
    assert outcome.retryable


def test_a_job_that_was_deleted_before_anybody_looked_is_gone(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60")}))
    order = order_for(world, job)
    job.delete()
    outcome = asyncio.run(Told().watch(order))
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.GONE)


def test_another_job_of_that_name_is_not_the_one(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60")}))
    order = order_for(world, job)
    job.delete()
    start(world, pytorch_job({"Master": replica("pytorch", "true")})).succeeds()
    outcome = asyncio.run(Told().watch(order))
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.GONE)


def test_the_success_of_a_job_that_is_deleted_at_once_counts(world: World) -> None:
    roles = {"Master": replica("pytorch", "sleep 3")}
    job = start(world, pytorch_job(roles, run_policy={"ttlSecondsAfterFinished": 0}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.phase) == (Verdict.SUCCEEDED, Phase.SUCCEEDED)


def test_a_failed_replica_ends_the_wait_if_its_author_wants_so(world: World) -> None:
    """A parameter server decides nothing: the operator goes on without it."""
    roles = {
        "PS": replica("tensorflow", "echo alas; exit 3"),
        "Worker": replica("tensorflow", "sleep 60"),
    }
    roles["PS"]["restartPolicy"] = "Never"
    job = start(world, tf_job(roles, enableDynamicWorker=True))
    outcome = asyncio.run(Told().watch(order_for(world, job, fail_fast=True)))
    assert outcome.verdict is Verdict.FAILED
    assert "ps-0" in outcome.words
    assert outcome.exit_code == 3


def test_the_deadline_ends_the_wait_and_not_before(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60")}))
    deadline = datetime.now(timezone.utc) + timedelta(seconds=4)
    outcome = asyncio.run(Told().watch(order_for(world, job, deadline=deadline)))
    assert datetime.now(timezone.utc) >= deadline
    assert (outcome.verdict, outcome.reason) == (Verdict.TIMED_OUT, "ExecutionTimeout")
    assert outcome.phase is Phase.RUNNING


def test_a_job_that_ended_before_its_deadline_has_not_missed_it(world: World) -> None:
    """Whoever looks late, after a restart say, reads the state first."""
    job = start(world, pytorch_job({"Master": replica("pytorch")}))
    job.succeeds()
    deadline = datetime.now(timezone.utc) - timedelta(seconds=4)
    outcome = asyncio.run(Told().watch(order_for(world, job, deadline=deadline)))
    assert outcome.verdict is Verdict.SUCCEEDED


def test_a_job_in_a_queue_is_said_to_be_there(world: World) -> None:
    roles = {"Master": replica("pytorch")}
    job = start(world, pytorch_job(roles, run_policy={"suspend": True}))
    told = Told()

    async def run() -> Outcome:
        patience = Timeouts(startup=timedelta(seconds=2))
        async with watched(told, order_for(world, job, timeouts=patience)) as task:
            await until(lambda: "waits in a queue" in told.text)
            await asyncio.sleep(3)
            await asyncio.to_thread(job.patch, {"spec": {"runPolicy": {"suspend": False}}})
            return await asyncio.wait_for(task, 30)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
    assert told.text.count("waits in a queue") == 1


def test_a_job_that_somebody_else_made_is_watched_by_its_name(world: World) -> None:
    job = world.start(pytorch_job({"Master": replica("pytorch", "echo hello")}))
    order = order_for(world, job, instance="", owner="")
    outcome = asyncio.run(Told().watch(order))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert outcome.tail == "hello"


def test_a_job_that_is_not_there_yet_is_waited_for_if_only_its_name_is_known(world: World) -> None:
    told = Told()

    async def run() -> Outcome:
        manifest = pytorch_job({"Master": replica("pytorch", "true")}, name="later")
        other = await asyncio.to_thread(world.start, pytorch_job({"Master": replica("pytorch")}))
        order = order_for(world, other, instance="", owner="", poll_interval=1.0)
        order = order._replace(job=order.job._replace(name="later", uid=""))
        async with watched(told, order) as task:
            await asyncio.sleep(2)
            assert not task.done()
            await asyncio.to_thread(world.start, manifest)
            return await asyncio.wait_for(task, 30)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
