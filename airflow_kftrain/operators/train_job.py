"""TrainJobOperator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_kftrain.operators.training_job import JobOperator
from airflow_kftrain.specs.train_job import Initializer, Runtime, TrainJob


class TrainJobOperator(JobOperator):
    """Kubeflow Trainer: a runtime says how, the task says what. The fields are those of
    `TrainJob`."""

    spec_type = TrainJob
    spec_fields: ClassVar[tuple[str, ...]] = (
        "runtime",
        "num_nodes",
        "num_proc_per_node",
        "initializer",
        "runtime_patches",
        *JobOperator.spec_fields,
    )
    template_fields: Sequence[str] = (*spec_fields[:5], *JobOperator.template_fields)

    def __init__(
        self,
        *,
        runtime: str | Runtime,
        num_nodes: int | str | None = None,
        num_proc_per_node: int | str | None = None,
        initializer: Initializer | None = None,
        runtime_patches: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.runtime = runtime
        self.num_nodes = num_nodes
        self.num_proc_per_node = num_proc_per_node
        self.initializer = initializer
        self.runtime_patches = runtime_patches
        self.check_at_parse()
