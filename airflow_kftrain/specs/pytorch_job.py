"""PyTorchJob: one master and its workers, or an elastic group of workers under torchrun."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.elastic import Elastic, check_elastic
from airflow_kftrain.specs.job import JobSpec, sized
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering
from airflow_kftrain.specs.replicas import Replica, check_replica
from airflow_kftrain.specs.values import whole_number


@answering
@dataclass(frozen=True, kw_only=True)
class PyTorchJob(JobSpec):
    """Use `workers` if all pods are identical, otherwise `master` and `worker`, or `elastic`."""

    workers: int | str | None = None
    """Pods in addition to the one master; 0 is the master alone."""
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
            raise InvalidSpec("master.count", "must be 1", value=self.master.count)
        self._refuse_both("workers", "master", "worker", "elastic")
        if self.elastic is not None:
            self._check_elastic()
        elif self.workers is None and self.master is None and self.worker is None:
            raise InvalidSpec(
                "workers",
                "is required: the number of pods is unknown",
                advice="Use workers=4, or master and worker, or elastic=Elastic(nodes=4).",
            )

    def _check_elastic(self) -> None:
        if self.master is not None:
            raise InvalidSpec(
                "master",
                "cannot be combined with elastic: an elastic job has only workers",
                advice="Omit it; configure the workers with worker.",
            )
        if self.worker not in (None, LATER) and self.worker.count is not None:
            raise InvalidSpec("worker.count", "is already set by elastic.nodes", advice="Omit it.")

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
