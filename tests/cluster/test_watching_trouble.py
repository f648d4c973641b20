"""Watching jobs in trouble"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain.job_state import Phase, read_time
from airflow_kftrain.manifests.identity import INSTANCE_LABEL
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.specs.timeouts import Timeouts
from airflow_kftrain.watching import pods, survey
from kftrain_local.faults.command import Fault, FaultProxy
from tests.cluster.jobs import pytorch_job, replica, tf_job, train_job
from tests.cluster.objects import config_map
from tests.cluster.watched import INSTANCE, Told, order_for, start, until, watched
from tests.cluster.world import World

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the long pauses between reads."""
    monkeypatch.setattr(survey, "PAUSE", 1.0)
    monkeypatch.setattr(survey, "MOUNTING", 2.0)
    monkeypatch.setattr(pods, "LOOK_SECONDS", 0.5)


def test_an_image_name_that_cannot_be_read_ends_the_wait_at_once(world: World) -> None:
    """The verdict is ours: the job still exists, and whoever gets the event deletes it."""
    bad = replica("pytorch", image="invalid//name")
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60"), "Worker": bad}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "InvalidImageName")
    assert not outcome.retryable
    assert "worker-0" in outcome.words
    assert outcome.phase is not None
    assert not outcome.phase.is_final


def test_trouble_of_pods_without_our_label_is_seen_a_little_later(world: World) -> None:
    """For example those of a TrainJob's initializers."""
    manifest = pytorch_job({"Master": replica("pytorch", image="invalid//name")})
    manifest["metadata"]["labels"] = {INSTANCE_LABEL: INSTANCE}
    order = order_for(world, world.start(manifest), poll_interval=1.0)
    outcome = asyncio.run(Told().watch(order))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "InvalidImageName")


def test_what_a_job_waits_for_is_told_once(world: World) -> None:
    """Here for the second worker, which requests more than any node has."""
    big = replica("pytorch", "true", resources={"limits": {"cpu": "900"}})
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60"), "Worker": big}))
    told = Told()

    async def run() -> None:
        async with watched(told, order_for(world, job)):
            await until(lambda: "cannot be scheduled" in told.text)
            await asyncio.sleep(4)

    asyncio.run(run())
    lines = [line for line in told.lines if "cannot be scheduled" in line]
    assert len(lines) == 1
    assert lines[0].startswith("1 of 2 pods of the PyTorchJob run; worker-0: cannot be scheduled")


def test_a_job_that_does_not_start_in_time_fails_with_what_it_waits_for(world: World) -> None:
    big = replica("pytorch", "true", resources={"limits": {"cpu": "900"}})
    job = start(world, pytorch_job({"Master": big}))
    patience = Timeouts(startup=timedelta(seconds=4))
    outcome = asyncio.run(Told().watch(order_for(world, job, timeouts=patience)))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "StartupTimeout")
    assert outcome.words.startswith("master-0 could not be scheduled: Unschedulable: 0/1 nodes")
    assert "FailedScheduling" in outcome.report


MOUNT = {"name": "data", "mountPath": "/data"}


def mounting(**volume: Any) -> dict[str, Any]:
    """A master with one volume."""
    pod = {"volumes": [{"name": "data", **volume}]}
    return pytorch_job({"Master": replica("pytorch", "true", pod=pod, volumeMounts=[MOUNT])})


def test_a_volume_whose_secret_is_missing_is_told_at_once_and_ends_the_job(
    world: World, proxy: FaultProxy
) -> None:
    job = start(world, mounting(secret={"secretName": "misspelt"}))
    told = Told()
    patience = Timeouts(volume_name=timedelta(seconds=8))
    outcome = asyncio.run(told.watch(order_for(world, job, timeouts=patience, poll_interval=1.0)))
    said = 'MountVolume.SetUp failed for volume "data" : secret "misspelt" not found'
    waits = f"0 of 1 pods of the PyTorchJob run; master-0: cannot mount a volume: {said}."
    assert told.lines.count(waits) == 1
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "FailedMount")
    assert not outcome.retryable
    assert outcome.words.startswith(f"master-0 could not mount a volume: FailedMount: {said}.")
    assert proxy.calls["list", "events"] >= 2


def test_a_volume_that_is_there_in_the_end_is_waited_for(world: World) -> None:
    job = start(world, mounting(configMap={"name": "late"}))
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job, poll_interval=1.0)) as task:
            await until(lambda: 'configmap "late" not found' in told.text)
            await asyncio.to_thread(world.create, config_map("late", k="v"))
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED


def test_where_events_may_not_be_listed_a_volume_is_waited_for_as_before(
    world: World, proxy: FaultProxy
) -> None:
    proxy.add(Fault(resource="events", code=403))
    job = start(world, mounting(secret={"secretName": "misspelt"}))
    told = Told()
    patience = Timeouts(startup=timedelta(seconds=8), volume_name=timedelta(0))
    outcome = asyncio.run(told.watch(order_for(world, job, timeouts=patience, poll_interval=1.0)))
    assert outcome.reason == "StartupTimeout"
    assert "is being created (image, volumes)" in outcome.words


def test_a_job_that_comes_up_costs_no_list_of_events(world: World, proxy: FaultProxy) -> None:
    world.create(config_map("there", k="v"))
    job = start(world, mounting(configMap={"name": "there"}))
    outcome = asyncio.run(Told().watch(order_for(world, job, poll_interval=1.0)))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert proxy.calls["list", "events"] == 0


def test_a_job_that_runs_has_no_startup_timeout_whatever_its_status_says(world: World) -> None:
    """If a worker has no node, the status of a job whose leader trains stays Created or Running."""
    big = replica("pytorch", "true", resources={"limits": {"cpu": "900"}})
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 60"), "Worker": big}))
    told = Told()
    patience = Timeouts(startup=timedelta(seconds=3))

    async def run() -> bool:
        async with watched(told, order_for(world, job, timeouts=patience)) as task:
            await until(lambda: "cannot be scheduled" in told.text)
            await asyncio.sleep(4)
            return task.done()

    assert not asyncio.run(run())


def test_the_crash_of_a_container_that_restarts_is_remembered(world: World) -> None:
    """When its limit is reached, the operator deletes the pod that crashes, and its log."""
    crashing = replica("pytorch", "echo no such file; sleep 1; exit 7", policy="OnFailure")
    job = start(world, pytorch_job({"Master": crashing}, run_policy={"backoffLimit": 2}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.FAILED)
    assert outcome.exit_code == 7
    assert "no such file" in outcome.report


def test_of_pods_of_one_name_the_log_of_the_one_that_failed_is_told(
    world: World, proxy: FaultProxy, tmp_path: Path
) -> None:
    """The operator recreates a deleted pod under the same name."""
    second = tmp_path / "second"
    script = f"if [ -e {second} ]; then echo of the second; else echo of the first; fi; exit 7"
    job = start(world, pytorch_job({"Master": replica("pytorch", script, policy="OnFailure")}))
    order = order_for(world, job, timeouts=Timeouts(crash_loop=timedelta(seconds=15)))

    async def run() -> Outcome:
        async with watched(Told(), order) as task:
            await until(lambda: proxy.calls["get", "pods/log"])
            second.touch()
            pod = job.pod("job-master-0")
            # Times in Kubernetes have whole seconds, and distinguish pods of one name.
            created = read_time(pod.now()["metadata"]["creationTimestamp"])
            assert created is not None
            await until(lambda: datetime.now(timezone.utc) - created > timedelta(seconds=1))
            await asyncio.to_thread(pod.delete)
            return await asyncio.wait_for(task, 100)

    outcome = asyncio.run(run())
    assert (outcome.verdict, outcome.exit_code) == (Verdict.FAILED, 7)
    assert "of the second" in outcome.report, outcome.report
    assert "of the first" not in outcome.report


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
            return await asyncio.wait_for(task, 60)

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
    """A parameter server decides nothing: the operator continues without it."""
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
    """A task that looks late, for example after a restart, reads the state first."""
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
            return await asyncio.wait_for(task, 60)

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
            await until(lambda: "has not appeared" in told.text)
            assert not task.done()
            await asyncio.to_thread(world.start, manifest)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
    title = f"PyTorchJob {world.namespace}/later"
    assert told.lines[0] == f"{title} has not appeared yet; waiting for it."
    assert told.text.count("has not appeared") == 1
