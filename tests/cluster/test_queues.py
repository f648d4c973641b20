"""Queues without Kueue"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from airflow_kftrain.errors import NotServed
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.specs.timeouts import Timeouts
from airflow_kftrain.watching import queues
from tests.cluster.hooks import CONNECTION, Looped
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.watched import Told, order_for, start, until, watched
from tests.cluster.world import Job, World
from tests.control_plane.api import Manifest

pytestmark = pytest.mark.usefixtures("connection")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "FIRST_LOOK_SECONDS", 0.5)
    monkeypatch.setattr(queues, "LOOK_SECONDS", (1.0, 1.0))


def suspended(world: World) -> Job:
    manifest: Manifest = pytorch_job({"Master": replica("pytorch")}, run_policy={"suspend": True})
    return start(world, manifest, {"kueue.x-k8s.io/queue-name": "gpu"})


def test_workloads_are_not_served(world: World) -> None:
    with Looped(CONNECTION) as hook, pytest.raises(NotServed) as caught:
        hook.workload_kind()
    assert "does not serve Workload. Install Kueue" in str(caught.value)


def test_a_queued_job_is_told_once_that_there_is_no_kueue_and_starts_all_the_same(
    world: World,
) -> None:
    job = suspended(world)
    told = Told()

    async def run() -> None:
        async with watched(told, order_for(world, job)) as watch:
            await until(lambda: told.about("no Kueue"))
            await asyncio.sleep(3)
            job.patch({"spec": {"runPolicy": {"suspend": False}}})
            assert (await watch).verdict is Verdict.SUCCEEDED

    asyncio.run(run())
    lines = told.about("queue gpu")
    assert lines[0] == "The PyTorchJob waits in queue gpu."
    (line,) = lines[1:]
    assert line.startswith(
        "The PyTorchJob is suspended, and waits for queue gpu in a cluster that has no Kueue, so "
        "nobody will start it (cannot ask for the versions of kueue.x-k8s.io: "
    )
    assert line.endswith("Install Kueue, or omit queue_name.")


def test_a_job_that_is_suspended_for_longer_than_its_limit_fails(world: World) -> None:
    limits = Timeouts(queue=timedelta(seconds=3))
    outcome = asyncio.run(Told().watch(order_for(world, suspended(world), timeouts=limits)))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "QueueTimeout")
    assert outcome.retryable
    assert outcome.words.startswith(
        "The PyTorchJob did not leave its queue within 0:00:03 (Timeouts.queue). The PyTorchJob is "
        "suspended, and waits for queue gpu"
    )
