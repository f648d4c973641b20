"""PyTorchJob: one master and its workers, or an elastic group of workers under torchrun."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.elastic import Elastic, check_elastic
from airflow_kftrain.specs.job import JobSpec, sized
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.replicas import Replica, check_replica
from airflow_kftrain.specs.values import whole_number


@dataclass(frozen=True, kw_only=True)
class PyTorchJob(JobSpec):
    """Give `workers` where all pods are alike, or `master` and `worker`, or `elastic`."""

    workers: int | str | None = None
    """Pods beside the one master; 0 is the master alone."""
    master: Replica | None = None
    worker: Replica | None = None
    elastic: Elastic | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            {
                "workers": whole_number,
                "master": check_replica,
                "worker": check_replica,
                "elastic": check_elastic,
            }
        )
        if isinstance(self.master, Replica) and self.master.count not in (None, 1, LATER):
            raise InvalidSpec("master.count", "there is exactly one", value=self.master.count)
        self._refuse_both("workers", "master", "worker", "elastic")
        if self.elastic is not None:
            self._check_elastic()
        elif self.workers is None and self.master is None and self.worker is None:
            raise InvalidSpec(
                "workers",
                "must be given: it is not said how many pods the job has",
                advice="Write workers=4, or master and worker, or elastic=Elastic(nodes=4).",
            )

    def _check_elastic(self) -> None:
        if self.master is not None:
            raise InvalidSpec(
                "master",
                "cannot go together with elastic: an elastic job has workers only",
                advice="Leave it out; worker says what is special about the workers.",
            )
        if self.worker not in (None, LATER) and self.worker.count is not None:
            raise InvalidSpec(
                "worker.count", "is given by elastic.nodes already", advice="Leave it out."
            )

    @property
    def replicas(self) -> dict[str, Replica]:
        """Replicas by role."""
        if self.elastic is not None:
            nodes = LATER if self.elastic is LATER else self.elastic.max_nodes
            return {"Worker": sized(self.worker, nodes)}
        workers = 0 if self.worker is None else 1
        return {
            "Master": sized(self.master, 1),
            "Worker": sized(self.worker, workers if self.workers is None else self.workers),
        }
