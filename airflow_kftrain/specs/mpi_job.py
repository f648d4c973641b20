"""MPIJob: a launcher that starts ranks on its workers. HorovodJob: the same, with horovodrun."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.job import JobSpec, sized
from airflow_kftrain.specs.later import LATER, any_later
from airflow_kftrain.specs.nouns import check_fields, check_noun
from airflow_kftrain.specs.replicas import Replica, check_replica
from airflow_kftrain.specs.values import flag, one_of, positive, seconds, text


@dataclass(frozen=True, kw_only=True)
class MPIJob(JobSpec):
    """`command` is the launcher's, such as ["mpirun", "python", "train.py"]; the workers wait for
    it. Give `workers` where they are all alike, or `launcher` and `worker`."""

    workers: int | str | None = None
    launcher: Replica | None = None
    worker: Replica | None = None
    """Its `command`, if any, replaces the operator's own way to wait for ranks."""
    slots_per_worker: int | str = 1
    """Ranks that a worker takes."""
    implementation: str | None = None
    """"OpenMPI" (default), "Intel" or "MPICH": mpi-operator needs to know."""
    version: str | None = None
    """"v2beta1" (mpi-operator) or "v1" (training-operator); a cluster has one of them. None is
    what the cluster serves, and v2beta1 where nobody can ask it."""

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
            }
        )
        self._refuse_both("workers", "launcher", "worker")
        if isinstance(self.worker, Replica) and self.worker.count is not None:
            positive("worker.count", self.worker.count)
        if self.workers is None and self.worker is None:
            raise InvalidSpec(
                "workers",
                "must be given: it is not said how many workers the job has",
                advice="Write workers=4, or worker=Replica(count=4).",
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
        """How many ranks the workers take together."""
        workers: Any = self.replicas["Worker"]
        count = workers if workers is LATER else workers.count
        if any_later((count, self.slots_per_worker)):
            return LATER
        return int(count or 0) * int(self.slots_per_worker)


class Horovod(NamedTuple):
    """Settings of horovodrun."""

    min_np: int | str | None = None
    """Fewest ranks to go on with when workers are lost; None is all of them."""
    max_np: int | str | None = None
    discovery_script: str = "/etc/mpi/discover_hosts.sh"
    """The operator's list of workers that are up."""
    elastic_timeout: timedelta = timedelta(minutes=20)
    network_interface: str | None = None
    """Left to Horovod if None."""
    log_level: str = "INFO"
    verbose: bool = False


@dataclass(frozen=True, kw_only=True)
class HorovodJob(MPIJob):
    """`command` is the training program, such as ["python", "train.py"]: horovodrun starts it."""

    horovod: Horovod = Horovod()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check({"horovod": _horovod})


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
