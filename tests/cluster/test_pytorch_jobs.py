"""PyTorchJob of training-operator."""

from __future__ import annotations

from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.world import World


def test_success_of_master_and_workers(world: World) -> None:
    roles = {"Master": replica("pytorch", "sleep 1"), "Worker": replica("pytorch", count=2)}
    job = world.submit(pytorch_job(roles, run_policy={"cleanPodPolicy": "None"}))
    end = job.succeeds()
    assert end["reason"] == "PyTorchJobSucceeded"
    assert job.pod_names() == ["job-master-0", "job-worker-0", "job-worker-1"]


def test_a_worker_that_fails_under_never_fails_the_job(world: World) -> None:
    roles = {"Master": replica("pytorch", "sleep 60"), "Worker": replica("pytorch", "exit 3")}
    job = world.submit(pytorch_job(roles))
    end = job.fails()
    assert end["reason"] == "PyTorchJobFailed"
