"""MPIJob, for either operator that serves it; and HorovodJob, whose launcher runs horovodrun."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import MPI_JOB_V1, MPI_JOB_V2
from airflow_kftrain.manifests.pod_template import command_of
from airflow_kftrain.manifests.replicated import replicated_job
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.mpi_job import Horovod, HorovodJob, MPIJob


def build_mpi_job(job: MPIJob) -> dict[str, Any]:
    if job.version == MPI_JOB_V1.version:
        return _build_v1(job)
    manifest = replicated_job(MPI_JOB_V2, job, _replicas(job))
    manifest["spec"]["slotsPerWorker"] = job.slots_per_worker
    if job.implementation is not None:
        manifest["spec"]["mpiImplementation"] = job.implementation
    return manifest


def _build_v1(job: MPIJob) -> dict[str, Any]:
    if job.implementation is not None:
        raise InvalidSpec(
            "implementation",
            f"MPIJob {MPI_JOB_V1.version} has no such setting",
            value=job.implementation,
            advice="Leave it out: training-operator prepares both OpenMPI and Intel MPI.",
        )
    manifest = replicated_job(MPI_JOB_V1, job, _replicas(job))
    manifest["spec"]["slotsPerWorker"] = job.slots_per_worker
    # Which container of a worker the launcher enters; with sidecars it could be the wrong one.
    manifest["spec"]["mainContainer"] = MPI_JOB_V1.container
    return manifest


def _replicas(job: MPIJob) -> dict[str, Any]:
    replicas: dict[str, Any] = dict(job.replicas)
    launcher = replicas["Launcher"]
    if not isinstance(job, HorovodJob) or launcher is LATER:
        return replicas
    command, args = command_of(job, launcher)
    if command is None:
        raise InvalidSpec(
            "command",
            "must be given: horovodrun has to know what to start",
            advice="Write command=['python', 'train.py'], say.",
        )
    if command is not LATER and job.horovod is not LATER:
        command = [*_horovodrun(job, job.horovod), *command]
    return {**replicas, "Launcher": launcher._replace(command=command, args=args)}


def _check_ranks(fewest: Any, ranks: Any, most: Any) -> None:
    if LATER in (fewest, ranks, most):
        return
    if fewest > ranks:
        raise InvalidSpec(
            "horovod.min_np", f"more than the {ranks} ranks of the workers", value=fewest
        )
    if most < ranks:
        raise InvalidSpec(
            "horovod.max_np", f"less than the {ranks} ranks of the workers", value=most
        )


def _horovodrun(job: HorovodJob, horovod: Horovod) -> list[Any]:
    ranks = job.ranks
    fewest = ranks if horovod.min_np is None else horovod.min_np
    most = ranks if horovod.max_np is None else horovod.max_np
    _check_ranks(fewest, ranks, most)
    settings = {
        "-np": ranks,
        "--min-np": fewest,
        "--max-np": most,
        "--slots-per-host": job.slots_per_worker,
        "--host-discovery-script": horovod.discovery_script,
        "--elastic-timeout": horovod.elastic_timeout,
        "--log-level": horovod.log_level,
        "--network-interface": horovod.network_interface,
    }
    words: list[Any] = ["horovodrun"]
    for flag, value in settings.items():
        if value is not None:
            words += [flag, value if value is LATER else str(value)]
    return [*words, "--verbose"] if horovod.verbose is True else words
