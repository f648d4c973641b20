"""TFJobOperator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_kftrain.operators.training_job import JobOperator
from airflow_kftrain.specs.replicas import Replica
from airflow_kftrain.specs.tf_job import TFJob


class TFJobOperator(JobOperator):
    """Runs a TFJob: `workers=4` if there are only identical workers, otherwise one field per role.
    The fields are those of `TFJob`."""

    spec_type = TFJob
    spec_fields: ClassVar[tuple[str, ...]] = (
        "workers",
        "chief",
        "worker",
        "ps",
        "evaluator",
        "success_policy",
        "dynamic_workers",
        *JobOperator.spec_fields,
    )
    template_fields: Sequence[str] = (*spec_fields[:7], *JobOperator.template_fields)

    def __init__(
        self,
        *,
        workers: int | str | None = None,
        chief: Replica | None = None,
        worker: Replica | None = None,
        ps: Replica | None = None,
        evaluator: Replica | None = None,
        success_policy: str | None = None,
        dynamic_workers: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.workers = workers
        self.chief = chief
        self.worker = worker
        self.ps = ps
        self.evaluator = evaluator
        self.success_policy = success_policy
        self.dynamic_workers = dynamic_workers
        self.check_at_parse()
