"""`@task.pytorch` and similar decorators: they run a Python function as a distributed training job.

`airflow_kftrain.decorators.pytorch` is the same decorator with types, for editors and type
checkers. The parameters are those of the operator, except `command` and `args`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import TypedDict

    from airflow.sdk.bases.decorator import Task
    from typing_extensions import ParamSpec, Unpack

    from airflow_kftrain.specs.code import Code
    from airflow_kftrain.specs.containers import Container
    from airflow_kftrain.specs.elastic import Elastic
    from airflow_kftrain.specs.env import Env
    from airflow_kftrain.specs.lifecycle import Lifecycle, Links, Logs
    from airflow_kftrain.specs.mpi_job import Horovod, Mpirun
    from airflow_kftrain.specs.pods import Pod
    from airflow_kftrain.specs.policies import RunPolicy
    from airflow_kftrain.specs.replicas import Replica
    from airflow_kftrain.specs.resources import Resources
    from airflow_kftrain.specs.timeouts import Timeouts
    from airflow_kftrain.specs.train_job import Initializer, Runtime

    Given = ParamSpec("Given")
    Made = TypeVar("Made")

    class OfAirflow(TypedDict, total=False):
        """Parameters of all Airflow operators."""

        task_id: str
        multiple_outputs: bool | None
        retries: int
        retry_delay: timedelta | float
        retry_exponential_backoff: bool | float
        max_retry_delay: timedelta | float | None
        execution_timeout: timedelta | None
        trigger_rule: str
        pool: str
        pool_slots: int
        queue: str
        priority_weight: int
        weight_rule: Any
        owner: str
        depends_on_past: bool
        wait_for_downstream: bool
        max_active_tis_per_dag: int | None
        max_active_tis_per_dagrun: int | None
        executor: str | None
        executor_config: dict[str, Any] | None
        do_xcom_push: bool
        inlets: Any
        outlets: Any
        params: Any
        default_args: dict[str, Any] | None
        on_execute_callback: Any
        on_failure_callback: Any
        on_success_callback: Any
        on_retry_callback: Any
        on_skipped_callback: Any
        doc_md: str | None
        map_index_template: str | None
        task_group: Any
        dag: Any

    class OfAll(OfAirflow, total=False):
        """Parameters that all kinds have in common."""

        image: str | None
        env: Env | None
        container_resources: Resources | Any | None
        pod: Pod | None
        container: Container | None
        run_policy: RunPolicy | None
        queue_name: str | None
        queue_priority: str | None
        code: Code | None
        namespace: str | None
        kubernetes_conn_id: str | None
        deferrable: bool | None
        wait_for_completion: bool
        poll_interval: timedelta
        timeouts: Timeouts
        lifecycle: Lifecycle
        logs: Logs
        links: Links

    class OfPyTorch(OfAll, total=False):
        workers: int | str | None
        master: Replica | None
        worker: Replica | None
        elastic: Elastic | None

    class OfTensorFlow(OfAll, total=False):
        workers: int | str | None
        chief: Replica | None
        worker: Replica | None
        ps: Replica | None
        evaluator: Replica | None
        success_policy: str | None
        dynamic_workers: bool | None

    class OfMPI(OfAll, total=False):
        workers: int | str | None
        launcher: Replica | None
        worker: Replica | None
        slots_per_worker: int | str
        implementation: str | None
        version: str | None
        mpirun: Mpirun | None

    class OfHorovod(OfMPI, total=False):
        horovod: Horovod

    class OfTrainJob(OfAll, total=False):
        runtime: str | Runtime
        num_nodes: int | str | None
        num_proc_per_node: int | str | None
        initializer: Initializer | None
        runtime_patches: Sequence[Any] | None
        mpirun: Mpirun | None


def pytorch(
    python_callable: None = None, **settings: Unpack[OfPyTorch]
) -> Callable[[Callable[Given, Made]], Task[Given, Made]]:
    """Runs the function in the pods of a PyTorchJob: `workers`, or `master` and `worker`, or
    `elastic`. The return value is that of the process whose RANK is 0."""
    made: Callable[[Callable[Given, Made]], Task[Given, Made]]
    made = _decorated("PyTorchFunctionOperator", python_callable, settings)
    return made


def tensorflow(
    python_callable: None = None, **settings: Unpack[OfTensorFlow]
) -> Callable[[Callable[Given, Made]], Task[Given, Made]]:
    """Runs the function in all pods of a TFJob. The return value is that of the chief, or of worker
    0 if there is no chief."""
    made: Callable[[Callable[Given, Made]], Task[Given, Made]]
    made = _decorated("TFFunctionOperator", python_callable, settings)
    return made


def mpi(
    python_callable: None = None, **settings: Unpack[OfMPI]
) -> Callable[[Callable[Given, Made]], Task[Given, Made]]:
    """Runs the function in an MPIJob: mpirun starts it once per slot. The return value is that of
    rank 0."""
    made: Callable[[Callable[Given, Made]], Task[Given, Made]]
    made = _decorated("MPIFunctionOperator", python_callable, settings)
    return made


def horovod(
    python_callable: None = None, **settings: Unpack[OfHorovod]
) -> Callable[[Callable[Given, Made]], Task[Given, Made]]:
    """Runs the function in an MPIJob: horovodrun starts it once per slot. The return value is that
    of rank 0."""
    made: Callable[[Callable[Given, Made]], Task[Given, Made]]
    made = _decorated("HorovodFunctionOperator", python_callable, settings)
    return made


def trainjob(
    python_callable: None = None, **settings: Unpack[OfTrainJob]
) -> Callable[[Callable[Given, Made]], Task[Given, Made]]:
    """A TrainJob. Where its runtime is torch's, torchrun starts the function; where it is one with
    MPI, say `mpirun=Mpirun()`; elsewhere each pod calls it once."""
    made: Callable[[Callable[Given, Made]], Task[Given, Made]]
    made = _decorated("TrainFunctionOperator", python_callable, settings)
    return made


def _decorated(
    operator: str, python_callable: Callable[..., Any] | None, settings: Mapping[str, Any]
) -> Any:
    """Loads the operators only now, since most DAG files with a `task` do not need them."""
    from airflow.sdk.bases.decorator import task_decorator_factory

    from airflow_kftrain.operators import function

    def decorate(function_given: Callable[..., Any]) -> Any:
        # The decorator is used in the DAG file, so that is the file of the calling frame.
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        made = getattr(function, operator)
        function.check_at_decoration(made, function_given, settings, frame.f_code.co_filename)
        return task_decorator_factory(
            function_given,
            decorated_operator_class=made,
            **settings,
        )

    return decorate if python_callable is None else decorate(python_callable)
