"""PyTorchJobOperator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_kftrain.operators.training_job import JobOperator
from airflow_kftrain.specs.elastic import Elastic
from airflow_kftrain.specs.pytorch_job import PyTorchJob
from airflow_kftrain.specs.replicas import Replica


class PyTorchJobOperator(JobOperator):
    """Runs a PyTorchJob: `workers=4` if all pods are identical, otherwise `master` and `worker`, or
    `elastic`. The fields are those of `PyTorchJob`."""

    spec_type = PyTorchJob
    spec_fields: ClassVar[tuple[str, ...]] = (
        "workers",
        "master",
        "worker",
        "elastic",
        *JobOperator.spec_fields,
    )
    template_fields: Sequence[str] = (*spec_fields[:4], *JobOperator.template_fields)

    def __init__(
        self,
        *,
        workers: int | str | None = None,
        master: Replica | None = None,
        worker: Replica | None = None,
        elastic: Elastic | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.workers = workers
        self.master = master
        self.worker = worker
        self.elastic = elastic
        self.check_at_parse()
