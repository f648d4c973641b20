"""MPIJob: a launcher that starts ranks on its workers. HorovodJob: the same with horovodrun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.job import JobSpec, sized
from airflow_kftrain.specs.later import LATER, any_later
from airflow_kftrain.specs.nouns import answering, check_fields, check_noun
from airflow_kftrain.specs.replicas import Replica, check_replica
from airflow_kftrain.specs.values import flag, one_of, positive, seconds, text, text_list


@answering
class Mpirun(NamedTuple):
    """The launcher's mpirun: `command` is then what each rank runs, such as ["python", "train.py"].

    Ranks get the variables in `env`; they stay where their worker is, and may run as root."""

    processes: int | str | None = None
    """Number of ranks. None: as many as the workers have slots."""
    options: Sequence[str] = ()
    """More options of mpirun, such as ["-mca", "btl_tcp_if_include", "eth0"]."""


@answering
@dataclass(frozen=True, kw_only=True)
class MPIJob(JobSpec):
    """`command` is the launcher's, such as ["mpirun", "python", "train.py"]; the workers wait for
    it. Use `workers` if they are identical, otherwise `launcher` and `worker`."""

    workers: int | str | None = None
    launcher: Replica | None = None
    worker: Replica | None = None
    """Its `command`, if any, replaces the operator's command that waits for ranks."""
    slots_per_worker: int | str = 1
    """Ranks per worker."""
    implementation: str | None = None
    """"OpenMPI" (default), "Intel" or "MPICH": mpi-operator needs to know."""
    version: str | None = None
    """"v2beta1" (mpi-operator) or "v1" (training-operator); a cluster has one of them. None: the
    version that the cluster serves, or v2beta1 if the cluster cannot be asked."""
    mpirun: Mpirun | None = None
    """Run `command` with mpirun, once per rank. None: `command` has to start mpirun itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            {
                "workers": positive,
                "launcher": check_replica,
                "worker": check_replica,
                "slots_per_worker": positive,
                "implementation": _implementation,
                "version": _version,
                "mpirun": check_mpirun,
            }
        )
        self._refuse_both("workers", "launcher", "worker")
        if isinstance(self.worker, Replica) and self.worker.count is not None:
            positive("worker.count", self.worker.count)
        if self.workers is None and self.worker is None:
            raise InvalidSpec(
                "workers",
                "is required: the number of workers is unknown",
                advice="Use workers=4, or worker=Replica(count=4).",
            )

    @property
    def replicas(self) -> dict[str, Replica]:
        """Replicas by role."""
        return {
            "Launcher": sized(self.launcher, 1),
            "Worker": sized(self.worker, 1 if self.workers is None else self.workers),
        }

    @property
    def ranks(self) -> Any:
        """The number of ranks of all workers together."""
        workers: Any = self.replicas["Worker"]
        count = workers if workers is LATER else workers.count
        if any_later((count, self.slots_per_worker)):
            return LATER
        return int(count or 0) * int(self.slots_per_worker)


@answering
class Horovod(NamedTuple):
    """Settings of horovodrun."""

    min_np: int | str | None = None
    """The smallest number of ranks to continue with after losing workers; None: all of them."""
    max_np: int | str | None = None
    discovery_script: str = "/etc/mpi/discover_hosts.sh"
    """The script of mpi-operator that lists the running workers."""
    elastic_timeout: timedelta = timedelta(minutes=20)
    network_interface: str | None = None
    """None: Horovod chooses."""
    log_level: str = "INFO"
    verbose: bool = False


@answering
@dataclass(frozen=True, kw_only=True)
class HorovodJob(MPIJob):
    """`command` is the training program, such as ["python", "train.py"]: horovodrun starts it."""

    horovod: Horovod = Horovod()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check({"horovod": _horovod})
        if self.mpirun is not None:
            raise InvalidSpec("mpirun", "is not for Horovod: horovodrun starts the ranks")


def check_mpirun(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    checks = {"processes": positive, "options": text_list}
    return check_fields(field, check_noun(field, value, Mpirun), checks)


def _implementation(field: str, value: Any) -> Any:
    return one_of(field, value, ["OpenMPI", "Intel", "MPICH"])


def _version(field: str, value: Any) -> Any:
    return one_of(field, value, ["v2beta1", "v1"])


def _log_level(field: str, value: Any) -> Any:
    return one_of(field, value, ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"])


def _horovod(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    return check_fields(
        field,
        check_noun(field, value, Horovod),
        {
            "min_np": positive,
            "max_np": positive,
            "discovery_script": text,
            "elastic_timeout": seconds,
            "network_interface": text,
            "log_level": _log_level,
            "verbose": flag,
        },
    )
