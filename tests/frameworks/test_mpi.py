"""Open MPI: mpirun in the launcher starts ranks in the worker pods."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest

from tests.cluster.jobs import mpi_job, mpi_job_v1, train_job
from tests.cluster.v1 import not_run
from tests.cluster.world import World
from tests.control_plane import MPI_OPERATOR
from tests.control_plane.api import Manifest
from tests.frameworks.roles import PYTHON, environment, result, role, with_programs

_MPIRUN = f'exec mpirun -np 4 {PYTHON} /programs/pi.py > "$RESULT_FILE"'
_OF_POD = len("-abcde")


@not_run
def test_mpi_job_v1(world: World) -> None:
    computes_pi_in_the_worker_pods(world, mpi_job_v1)


@pytest.mark.profile(MPI_OPERATOR)
def test_mpi_job_v2beta1(world: World) -> None:
    computes_pi_in_the_worker_pods(world, mpi_job)


def computes_pi_in_the_worker_pods(world: World, make: Callable[..., Manifest]) -> None:
    roles = {"Launcher": role("mpi", _MPIRUN, 1), "Worker": role("mpi", None, 2)}
    policy = {"cleanPodPolicy": "None", "backoffLimit": 0}
    job = world.start(make(roles, slotsPerWorker=2, run_policy=policy))
    job.succeeds()
    (launcher,) = (name for name in job.pod_names() if name.startswith("job-launcher"))
    found = result(world, launcher)
    assert found["size"] == 4, found
    assert math.isclose(found["pi"], math.pi, rel_tol=1e-9), found
    # POD is in the spec of each pod, so a rank in the launcher would report the launcher's name.
    assert Counter(found["pods"]) == {"job-worker-0": 2, "job-worker-1": 2}, found


def test_a_train_job_has_ranks_in_its_launcher_too(world: World) -> None:
    patches = [with_programs("node", "launcher")]
    trainer = {"numProcPerNode": 2, **environment()}
    runtime = "deepspeed-distributed"
    job = world.start(
        train_job(_MPIRUN, 2, runtime=runtime, trainer=trainer, runtimePatches=patches)
    )
    job.succeeds()
    (launcher,) = (name for name in job.pod_names() if name.startswith("job-launcher"))
    found = result(world, launcher)
    assert math.isclose(found["pi"], math.pi, rel_tol=1e-9), found
    ranks = Counter(pod[:-_OF_POD] for pod in found["pods"])
    assert ranks == {"job-node-0-0": 2, "job-launcher-0-0": 2}, found
