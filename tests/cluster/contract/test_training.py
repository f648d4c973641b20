"""Training: processes find each other by what they are told."""

from __future__ import annotations

import json

from tests.cluster.jobs import pytorch_job, tf_job, train_job
from tests.cluster.v1 import ended
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest
from tests.programs import ALL_PEERS, ALL_REDUCE

_RESULT = {"name": "RESULT_FILE", "value": "/dev/termination-log"}


def _replica(container: str, program: str, count: int = 1) -> Manifest:
    main = {"name": container, "image": "x", "command": ["python", "-c", program], "env": [_RESULT]}
    template = {"spec": {"containers": [main]}}
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def _results(world: World) -> dict[str, str]:
    """What the pods have computed, when all have ended."""

    def look() -> dict[str, str]:
        pods = world.listed("Pod")
        if not all(pod["status"].get("phase") == "Succeeded" for pod in pods):
            return {}
        return {pod["metadata"]["name"]: ended(pod)["message"] for pod in pods}

    return eventually(look)


def test_three_pytorch_jobs_at_once_each_sum_up_what_their_processes_have(world: World) -> None:
    roles = {
        "Master": _replica("pytorch", ALL_REDUCE),
        "Worker": _replica("pytorch", ALL_REDUCE, 2),
    }
    jobs = [world.start(pytorch_job(roles, name=name)) for name in ("one", "two", "three")]
    for job in jobs:
        job.succeeds()
    results = _results(world)
    assert (len(results), set(results.values())) == (9, {"6"})
    annotations = jobs[0].pod("one-worker-0").now()["metadata"]["annotations"]
    real = json.loads(annotations["kftrain.local/cluster-env"])["pytorch"]
    assert (real["MASTER_ADDR"], real["MASTER_PORT"]) == ("one-master-0", "23456")


def test_every_process_of_a_tf_job_reaches_all_that_it_is_told_of(world: World) -> None:
    roles = {
        "PS": _replica("tensorflow", ALL_PEERS),
        "Worker": _replica("tensorflow", ALL_PEERS, 2),
    }
    world.start(tf_job(roles)).succeeds()
    assert _results(world) == {"job-ps-0": "3", "job-worker-0": "3", "job-worker-1": "3"}


def test_the_nodes_of_a_train_job_sum_up_what_they_have(world: World) -> None:
    trainer = {"numNodes": 2, "command": ["python", "-c", ALL_REDUCE], "env": [_RESULT]}
    world.start(train_job(trainer=trainer)).succeeds()
    assert list(_results(world).values()) == ["3", "3"]
