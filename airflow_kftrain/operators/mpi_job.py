"""MPIJobOperator and HorovodJobOperator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kftrain.operators.training_job import JobOperator
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.mpi_job import Horovod, HorovodJob, MPIJob
from airflow_kftrain.specs.replicas import Replica

if TYPE_CHECKING:
    from airflow_kftrain.hooks.training_job import TrainingJobHook


class MPIJobOperator(JobOperator):
    """MPI: `command` is the launcher's, such as ["mpirun", "python", "train.py"]. The fields are
    those of `MPIJob`."""

    spec_type: ClassVar[type[JobSpec]] = MPIJob
    spec_fields: ClassVar[tuple[str, ...]] = (
        "workers",
        "launcher",
        "worker",
        "slots_per_worker",
        "implementation",
        "version",
        *JobOperator.spec_fields,
    )
    template_fields: Sequence[str] = (*spec_fields[:6], *JobOperator.template_fields)

    def __init__(
        self,
        *,
        workers: int | str | None = None,
        launcher: Replica | None = None,
        worker: Replica | None = None,
        slots_per_worker: int | str = 1,
        implementation: str | None = None,
        version: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.workers = workers
        self.launcher = launcher
        self.worker = worker
        self.slots_per_worker = slots_per_worker
        self.implementation = implementation
        self.version = version
        self.check_at_parse()

    def ask_cluster(self, hook: TrainingJobHook) -> None:
        if self.version is None:
            self.version = hook.resolve_mpi_version()


class HorovodJobOperator(MPIJobOperator):
    """Horovod on MPI: `command` is the training program, and horovodrun starts it. The fields are
    those of `HorovodJob`."""

    spec_type: ClassVar[type[JobSpec]] = HorovodJob
    spec_fields: ClassVar[tuple[str, ...]] = ("horovod", *MPIJobOperator.spec_fields)
    template_fields: Sequence[str] = ("horovod", *MPIJobOperator.template_fields)

    def __init__(
        self,
        *,
        horovod: Horovod = Horovod(),  # noqa: B008  # immutable
        **kwargs: Any,
    ) -> None:
        # First, since an MPIJobOperator checks all fields when it is made.
        self.horovod = horovod
        super().__init__(**kwargs)
