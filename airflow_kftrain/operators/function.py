"""Operators that run a Python function as a job, created by `@task.pytorch` and similar decorators.

Each is the operator of its kind, with a function instead of `command` and `args`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.decorator import DecoratedOperator

from airflow_kftrain.airflow_compat import is_unmapping
from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.operators.mpi_job import HorovodJobOperator, MPIJobOperator
from airflow_kftrain.operators.pytorch_job import PyTorchJobOperator
from airflow_kftrain.operators.tf_job import TFJobOperator
from airflow_kftrain.operators.train_job import TrainJobOperator
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator, JobOperator
from airflow_kftrain.specs.code import Code
from airflow_kftrain.specs.later import LATER

if TYPE_CHECKING:
    from airflow_kftrain.messages import Outcome, WatchOrder
    from airflow_kftrain.specs.code import Function
    from airflow_kftrain.specs.lifecycle import Lifecycle

_PLAIN_CONTEXT = frozenset(
    {"ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz", "run_id", "params", "reason"}
)
"""The context variables whose values are JSON."""
_UNTIL_ALL_END = 60.0
"""Seconds to wait for pods that end shortly after the job has succeeded."""
_PAUSE = 1.0
_OF_THE_DECORATOR = ("multiple_outputs", "on_failure_fail_dagrun")
_ARGUMENTS = ("function", "op_args", "op_kwargs")


class FunctionOperator(DecoratedOperator, BaseTrainingJobOperator):
    """What these operators have in common. Each also inherits from the operator of its kind."""

    template_fields_renderers: ClassVar[dict[str, str]] = {
        **JobOperator.template_fields_renderers,
        **dict.fromkeys(_ARGUMENTS, "py"),
    }
    function: str | None = None
    """The source of the function, for the Rendered tab."""
    _function: Function | None = None

    def __init__(self, *, python_callable: Callable[..., Any], **kwargs: Any) -> None:
        for name in ("command", "args"):
            if kwargs.get(name) is not None:
                raise InvalidSpec(
                    name,
                    "cannot be combined with a function: the function is the command",
                    advice="Omit it.",
                )
        super().__init__(python_callable=python_callable, **kwargs)
        if not is_unmapping(self):
            from airflow_kftrain.function_payload.arguments import arguments_json

            arguments_json(*self._known())

    def _known(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, with None in place of values that are not known yet."""
        from airflow_kftrain.specs.later import mask

        def known(value: Any) -> Any:
            masked = mask(value)
            if masked is LATER:
                return None
            if isinstance(masked, dict):
                return {key: known(item) for key, item in masked.items()}
            return [known(item) for item in masked] if type(masked) is list else masked

        named = {name: known(value) for name, value in self.op_kwargs.items()}
        return [known(value) for value in self.op_args], named

    def _execute(self, context: Any, before: WatchOrder | None = None) -> Any:
        self.log.info("::group::The function of the job")
        self.log.info("%s", _shown(self.python_callable))
        self.log.info("::endgroup::")
        return super()._execute(context, before)

    def _given(self) -> dict[str, Any]:
        return {**super()._given(), "function": self._function or LATER}

    def render_template_fields(self, context: Any, jinja_env: Any = None) -> None:
        """The function is shown as it is: it is not a template."""
        super().render_template_fields(context, jinja_env)
        self.function = _shown(self.python_callable)

    def read_files(self, context: Any) -> None:
        """Packs the function, now that its arguments are known."""
        from airflow_kftrain.function_payload.arguments import arguments_json
        from airflow_kftrain.function_payload.source import check_callable, take

        super().read_files(context)
        kwargs = self._with_context(context or {})
        arguments = arguments_json(list(self.op_args), kwargs)
        code = self._given()["code"]
        files = tuple(code.files or ()) if isinstance(code, Code) else ()
        function = check_callable(self.python_callable)
        dag: Any = self.get_dag()
        dag_file = dag.fileloc if dag else function.__code__.co_filename
        taken = take(function, files, dag_file, arguments)
        self._function = taken._replace(stacks=self.timeouts.silence is not None)

    def hidden_texts(self) -> Iterable[str]:
        from airflow_kftrain.manifests.places import texts_by_path

        given = {**self.op_kwargs, "": list(self.op_args)}
        return [text for _, text in texts_by_path(given)]

    def _with_context(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments, plus the context variables that the function asks for."""
        import inspect

        kwargs = dict(self.op_kwargs)
        signature = inspect.signature(self.python_callable)
        bound = signature.bind_partial(*self.op_args).arguments
        for name in signature.parameters:
            if name in _PLAIN_CONTEXT and name in context and name not in (*kwargs, *bound):
                value = context[name]
                kwargs[name] = dict(value) if name == "params" else value
        return kwargs

    def value_of(self, order: WatchOrder, outcome: Outcome, lifecycle: Lifecycle) -> Any:
        from airflow_kftrain.function_payload.message import read_returned
        from airflow_kftrain.monitoring.decisions import Verdict
        from airflow_kftrain.operators.ending import no_value

        if outcome.verdict is Verdict.SUCCEEDED and read_returned(outcome.result) is None:
            result = _awaited(order)
            if not result:
                raise no_value("Its value is lost: the pod of rank 0 was deleted or killed")
            outcome = outcome._replace(result=result)
        value = super().value_of(order, outcome, lifecycle)
        if self.multiple_outputs and value is not None and not isinstance(value, dict):
            raise no_value(
                f"Its value is a {type(value).__name__}, but multiple_outputs needs a mapping"
            )
        return value


def _awaited(order: WatchOrder) -> str:
    """The termination message of rank 0, whichever pod it ran in. A job may succeed as soon as its
    first pod has, a moment before the others end."""
    from airflow_kftrain.errors import KfTrainError
    from airflow_kftrain.function_payload.message import read_returned
    from airflow_kftrain.hooks.training_job import TrainingJobHook
    from airflow_kftrain.monitoring.pods import read_pod

    hook = TrainingJobHook(order.connection)
    end = time.monotonic() + _UNTIL_ALL_END
    while True:
        try:
            raw = hook.pods(order.kind, order.job.namespace, order.job.name)
        except KfTrainError:
            return ""
        pods = [read_pod(order.kind, each) for each in raw]
        messages = [end.message for pod in pods for end in pod.ends if not end.failed]
        found = next((text for text in messages if read_returned(text) is not None), "")
        living = any(pod.phase in ("Pending", "Running") for pod in pods)
        if found or not living or time.monotonic() > end:
            return found
        time.sleep(_PAUSE)


def _shown(function: Callable[..., Any]) -> str:
    """The source of a function, as people read it."""
    import inspect

    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__module__}.{function.__qualname__}"


def check_at_decoration(
    operator: type, function: Any, settings: Mapping[str, Any], dag_file: str
) -> None:
    """Checks the function and its settings when it is decorated, since Airflow creates no operator
    for a mapped task until it runs. Raises InvalidSpec."""
    from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS

    from airflow_kftrain.function_payload.source import (
        check_callable,
        check_needs,
        parameter_names,
    )

    _check_settings(operator, settings)
    checked = check_callable(function)
    for name in parameter_names(checked):
        if name in KNOWN_CONTEXT_KEYS and name not in _PLAIN_CONTEXT:
            raise InvalidSpec(
                checked.__name__,
                f"asks for {name} from Airflow's context, which cannot be passed as JSON",
                advice=f"Use {', '.join(sorted(_PLAIN_CONTEXT))}, or pass the values that it needs "
                "as arguments.",
            )
    code = settings.get("code")
    files = code.files if isinstance(code, Code) else None
    known = files is None or (isinstance(files, list | tuple) and LATER not in files)
    if known:
        check_needs(checked, tuple(files or ()), dag_file)


def _check_settings(operator: type, settings: Mapping[str, Any]) -> None:
    from airflow_kftrain.operators.parameters import parameters_of, refuse_resources, refuse_unknown

    if settings.keys() - {*parameters_of(operator), *_OF_THE_DECORATOR}:
        refuse_unknown(operator, settings)
    if settings.get("resources") is not None:
        refuse_resources(operator)


class PyTorchFunctionOperator(FunctionOperator, PyTorchJobOperator):
    """`@task.pytorch`"""

    custom_operator_name = "@task.pytorch"
    template_fields: Sequence[str] = (*_ARGUMENTS, *PyTorchJobOperator.template_fields)


class TFFunctionOperator(FunctionOperator, TFJobOperator):
    """`@task.tensorflow`"""

    custom_operator_name = "@task.tensorflow"
    template_fields: Sequence[str] = (*_ARGUMENTS, *TFJobOperator.template_fields)


class MPIFunctionOperator(FunctionOperator, MPIJobOperator):
    """`@task.mpi`"""

    custom_operator_name = "@task.mpi"
    template_fields: Sequence[str] = (*_ARGUMENTS, *MPIJobOperator.template_fields)


class HorovodFunctionOperator(FunctionOperator, HorovodJobOperator):
    """`@task.horovod`"""

    custom_operator_name = "@task.horovod"
    template_fields: Sequence[str] = (*_ARGUMENTS, *HorovodJobOperator.template_fields)


class TrainFunctionOperator(FunctionOperator, TrainJobOperator):
    """`@task.trainjob`"""

    custom_operator_name = "@task.trainjob"
    template_fields: Sequence[str] = (*_ARGUMENTS, *TrainJobOperator.template_fields)
