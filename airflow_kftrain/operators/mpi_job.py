"""MPIJobOperator and HorovodJobOperator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kftrain.airflow_compat import is_unmapping
from airflow_kftrain.operators.training_job import JobOperator
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER, mask
from airflow_kftrain.specs.mpi_job import Horovod, HorovodJob, MPIJob, Mpirun
from airflow_kftrain.specs.replicas import Replica

if TYPE_CHECKING:
    from airflow_kftrain.hooks.training_job import TrainingJobHook


class MPIJobOperator(JobOperator):
    """Runs an MPIJob. `command` is the launcher's, such as ["mpirun", "python", "train.py"]. The
    fields are those of `MPIJob`."""

    spec_type: ClassVar[type[JobSpec]] = MPIJob
    spec_fields: ClassVar[tuple[str, ...]] = (
        "workers",
        "launcher",
        "worker",
        "slots_per_worker",
        "implementation",
        "version",
        "mpirun",
        *JobOperator.spec_fields,
    )
    template_fields: Sequence[str] = (*spec_fields[:7], *JobOperator.template_fields)

    def __init__(
        self,
        *,
        workers: int | str | None = None,
        launcher: Replica | None = None,
        worker: Replica | None = None,
        slots_per_worker: int | str = 1,
        implementation: str | None = None,
        version: str | None = None,
        mpirun: Mpirun | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.workers = workers
        self.launcher = launcher
        self.worker = worker
        self.slots_per_worker = slots_per_worker
        self.implementation = implementation
        self.version = version
        self.mpirun = mpirun
        self.check_at_parse()

    def check_at_parse(self) -> None:
        super().check_at_parse()
        if self.spec_type is MPIJob and self.mpirun is None and not is_unmapping(self):
            self._warn_of_a_launcher_alone()

    def _warn_of_a_launcher_alone(self) -> None:
        from airflow_kftrain.manifests.mpi_job import starts_ranks

        launcher = mask(self.launcher)
        field, command = "command", mask(self.command)
        if launcher is LATER:
            return
        if launcher is not None and launcher.command is not None:
            field, command = "launcher.command", launcher.command
        if not starts_ranks(command):
            warnings.warn(
                f"{self.task_id}: {field} starts neither mpirun, mpiexec, horovodrun nor a shell, "
                f"so only the launcher runs it: {list(command)}. Add mpirun=Mpirun() to run it "
                "once per rank.",
                stacklevel=2,
            )

    def ask_cluster(self, hook: TrainingJobHook) -> None:
        if self.version is None:
            self.version = hook.mpi_version()


class HorovodJobOperator(MPIJobOperator):
    """Runs Horovod as an MPIJob. `command` is the training program; horovodrun starts it. The
    fields are those of `HorovodJob`."""

    spec_type: ClassVar[type[JobSpec]] = HorovodJob
    spec_fields: ClassVar[tuple[str, ...]] = ("horovod", *MPIJobOperator.spec_fields)
    template_fields: Sequence[str] = ("horovod", *MPIJobOperator.template_fields)

    def __init__(
        self,
        *,
        horovod: Horovod = Horovod(),  # noqa: B008  # immutable
        **kwargs: Any,
    ) -> None:
        # First, since the constructor of MPIJobOperator checks all fields.
        self.horovod = horovod
        super().__init__(**kwargs)
