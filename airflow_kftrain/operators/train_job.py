"""TrainJobOperator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_kftrain.operators.training_job import JobOperator
from airflow_kftrain.specs.mpi_job import Mpirun
from airflow_kftrain.specs.train_job import Initializer, Runtime, TrainJob


class TrainJobOperator(JobOperator):
    """Runs a TrainJob of Kubeflow Trainer: the task says what to run, the runtime says how. The
    fields are those of `TrainJob`."""

    spec_type = TrainJob
    spec_fields: ClassVar[tuple[str, ...]] = (
        "runtime",
        "num_nodes",
        "num_proc_per_node",
        "initializer",
        "runtime_patches",
        "mpirun",
        *JobOperator.spec_fields,
    )
    template_fields: Sequence[str] = (*spec_fields[:6], *JobOperator.template_fields)

    def __init__(
        self,
        *,
        runtime: str | Runtime,
        num_nodes: int | str | None = None,
        num_proc_per_node: int | str | None = None,
        initializer: Initializer | None = None,
        runtime_patches: Sequence[Any] | None = None,
        mpirun: Mpirun | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.runtime = runtime
        self.num_nodes = num_nodes
        self.num_proc_per_node = num_proc_per_node
        self.initializer = initializer
        self.runtime_patches = runtime_patches
        self.mpirun = mpirun
        self.check_at_parse()
