"""MPIJob, for either operator that serves it; and HorovodJob, whose launcher runs horovodrun."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import MPI_JOB_V1, MPI_JOB_V2
from airflow_kftrain.manifests.pod_template import command_of
from airflow_kftrain.manifests.replicated import replicated_job
from airflow_kftrain.specs.env import merge_env
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.mpi_job import Horovod, HorovodJob, MPIJob, Mpirun

_NEEDED = (
    "PATH",
    "AIRFLOW_CTX_DAG_ID",
    "AIRFLOW_CTX_TASK_ID",
    "AIRFLOW_CTX_DAG_RUN_ID",
    "AIRFLOW_CTX_TRY_NUMBER",
    "KFTRAIN_RUN_ID",
    "KFTRAIN_ATTEMPT",
)
"""Variables that ranks need beside the author's: a remote shell brings none along."""
_STARTS_RANKS = ("mpirun", "mpiexec", "orterun", "horovodrun")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


def starts_ranks(command: Any) -> bool:
    """Whether a launcher's command starts ranks, or nobody knows: what a shell or an image does,
    and what a template will hold. Also behind words such as `timeout 60`."""
    if not isinstance(command, list | tuple) or not command or command[0] is LATER:
        return True
    names = [str(word).rpartition("/")[2] for word in command]
    return names[0] in _SHELLS or any(name.startswith(_STARTS_RANKS) for name in names)


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
            advice="Omit it: training-operator prepares both OpenMPI and Intel MPI.",
        )
    manifest = replicated_job(MPI_JOB_V1, job, _replicas(job))
    manifest["spec"]["slotsPerWorker"] = job.slots_per_worker
    # Which container of a worker the launcher enters; with sidecars it could be the wrong one.
    manifest["spec"]["mainContainer"] = MPI_JOB_V1.container
    return manifest


def _replicas(job: MPIJob) -> dict[str, Any]:
    replicas: dict[str, Any] = dict(job.replicas)
    launcher = replicas["Launcher"]
    is_horovod = isinstance(job, HorovodJob)
    wanted = is_horovod or job.mpirun is not None or job.function is not None
    if not wanted or launcher is LATER:
        return replicas
    command, args = command_of(job, launcher)
    if command is None:
        raise InvalidSpec(
            "command",
            f"is required: {'horovodrun' if is_horovod else 'mpirun'} has to know what to start",
            advice="For example: command=['python', 'train.py'].",
        )
    settings: Any = job.horovod if isinstance(job, HorovodJob) else job.mpirun or Mpirun()
    if LATER in (command, settings):
        command = LATER
    elif isinstance(job, HorovodJob):
        command = [*_horovodrun(job, settings), *command]
    else:
        env = merge_env(job.env or [], launcher.env or [])
        command = [*mpirun_words(settings, job.ranks, env, job.implementation), *command]
    return {**replicas, "Launcher": launcher._replace(command=command, args=args)}


def mpirun_words(mpirun: Mpirun, ranks: Any, env: Any, implementation: Any) -> list[Any]:
    """`ranks`: None for as many as the hosts have slots."""
    ranks = ranks if mpirun.processes is None else mpirun.processes
    words: list[Any] = ["mpirun"]
    if ranks is not None:
        words += ["-np", ranks if ranks is LATER else str(ranks)]
    names = [*_NEEDED, *(item["name"] for item in (() if env is LATER else env))]
    options = LATER if mpirun.options is LATER else list(mpirun.options)
    if options is LATER or implementation is LATER:
        return [*words, LATER]
    if implementation in (None, "OpenMPI"):
        words += ["--allow-run-as-root", "-bind-to", "none", "-map-by", "slot"]
        for name in (*names, "PYTHONUNBUFFERED=1"):
            words += ["-x", name]
    else:  # Intel's and MPICH's
        words += ["-genvlist", ",".join(names), "-genv", "PYTHONUNBUFFERED", "1"]
    return [*words, *options]


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
