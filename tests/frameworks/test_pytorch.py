"""PyTorch: DistributedDataParallel, torchrun, and a rank that is killed during the training."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.jobs import pytorch_job, train_job
from tests.cluster.world import World
from tests.control_plane.api import Manifest
from tests.frameworks.roles import PYTHON, TORCHRUN, environment, results, role, with_programs

_PLAIN = f"exec {PYTHON} /programs/train.py"
_TORCHRUN = f"exec {TORCHRUN} /programs/train.py"


def ddp_job(name: str, workers: int, seed: int = 1) -> Manifest:
    variables = {"SEED": str(seed)}
    roles = {
        "Master": role("pytorch", _PLAIN, 1, **variables),
        "Worker": role("pytorch", _PLAIN, workers, **variables),
    }
    return pytorch_job(roles, name=name, run_policy={"cleanPodPolicy": "None"})


def are_right(found: dict[str, Any], ranks: int, begun: int = 0) -> None:
    """Every rank has the model that one process computes from the whole batches."""
    told = sorted(found.values(), key=lambda result: int(result["rank"]))
    assert [result["rank"] for result in told] == list(range(ranks)), found
    for result in told:
        assert result["world"] == ranks, found
        assert result["sum"] == ranks * (ranks + 1) / 2, found
        assert result["begun"] == [begun] * ranks, found
        assert result["same on all ranks"], found
        assert result["same as alone"], found
        assert result["changed"], found
    assert len({result["parameters"] for result in told}) == 1, found


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pytorch_job_trains_as_one_process_would(world: World, workers: int) -> None:
    job = world.start(ddp_job("job", workers))
    job.succeeds()
    found = results(job)
    are_right(found, 1 + workers)
    assert found["job-master-0"]["rank"] == 0


def test_torchrun_goes_on_from_a_checkpoint_when_a_rank_is_killed(world: World) -> None:
    variables = {
        "CHECKPOINT": "/checkpoints/last.pt",
        "DIES_AFTER": "4",
        "PET_MONITOR_INTERVAL": "0.5",
    }
    elastic = {"minReplicas": 1, "maxReplicas": 2, "rdzvBackend": "c10d", "maxRestarts": 3}
    job = world.start(
        pytorch_job(
            {"Worker": role("pytorch", _TORCHRUN, 2, **variables)},
            run_policy={"cleanPodPolicy": "None"},
            nprocPerNode="1",
            elasticPolicy=elastic,
        )
    )
    job.succeeds()
    found = results(job)
    are_right(found, 2, begun=4)
    # torchrun counts only the restarts that its own rank has caused.
    assert max(result["restarts"] for result in found.values()) >= 1
    # torchrun has restarted the ranks, and not the cluster the pods.
    counts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in job.pods()]
    assert counts == [0, 0]


def test_a_train_job_runs_torchrun_on_two_nodes(world: World) -> None:
    trainer = {"numProcPerNode": 1, **environment()}
    job = world.start(
        train_job(_TORCHRUN, 2, trainer=trainer, runtimePatches=[with_programs("node")])
    )
    job.succeeds()
    are_right(results(job), 2)


def test_three_jobs_at_once_do_not_mix(world: World) -> None:
    names = ("one", "two", "three")
    jobs = [world.start(ddp_job(name, 1, seed)) for seed, name in enumerate(names)]
    models = set()
    for job in jobs:
        job.succeeds()
        found = results(job)
        are_right(found, 2)
        models |= {result["parameters"] for result in found.values()}
    assert len(models) == 3  # each job has its own data
