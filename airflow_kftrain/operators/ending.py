"""Turns the end of a job into the end of its task: log, return value or exception, and what happens
to the job. Only here are errors of this package translated into Airflow's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_kftrain.airflow_compat import exceptions, redacted
from airflow_kftrain.errors import (
    BadConnection,
    Forbidden,
    InvalidSpec,
    KfTrainError,
    NotServed,
    Refused,
)
from airflow_kftrain.function_payload.message import Returned, read_returned
from airflow_kftrain.loops import WorkerEnded
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.text import wrapped
from airflow_kftrain.operators.results import NotStorable, storable
from airflow_kftrain.ownership import ENDED, TaskState

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import Logger

    from airflow_kftrain.specs.lifecycle import Lifecycle

_PERMANENT = (InvalidSpec, BadConnection, Refused, Forbidden, NotServed)
"""Errors after which a retry of the task cannot help."""

_LONGEST_RESULT = 4096
"""The kubelet keeps so many bytes of a termination message."""


@contextmanager
def as_airflow_says() -> Iterator[None]:
    try:
        yield
    except KfTrainError as error:
        if _is_permanent(error):
            raise exceptions().AirflowFailException(str(error)) from error
        raise exceptions().AirflowException(str(error)) from error
    except WorkerEnded as error:
        raise exceptions().AirflowException(str(error)) from error


def _is_permanent(error: BaseException) -> bool:
    # A program that fetches tokens may fail only temporarily.
    return isinstance(error, _PERMANENT) and not error.retryable


def tell(outcome: Outcome, log: Logger) -> None:
    """Logs the report, and the end of the leader's log."""
    if outcome.tail:
        log.info("::group::The end of the leader's log")
        log.info("%s", outcome.tail)
        log.info("::endgroup::")
    # Secrets are masked first: one that is wrapped over two lines would not be found.
    story = wrapped(redacted(outcome.story))
    if outcome.verdict is Verdict.SUCCEEDED:
        log.info("%s", story)
    else:
        log.error("%s", story)


def headline(outcome: Outcome) -> str:
    """The text of the exception. The report is in the log, right above it."""
    more = " See the report above." if outcome.report not in ("", outcome.words) else ""
    return f"{outcome.words}{more}"


def value_or_error(outcome: Outcome, lifecycle: Lifecycle, log: Logger) -> Any:
    """The task's return value, or the exception that says why there is none and whether a retry can
    help."""
    if outcome.verdict is Verdict.SUCCEEDED:
        returned = read_returned(outcome.result)
        if returned is not None:
            return _returned(returned)
        return _result(outcome.result, lifecycle.result_required, log)
    known = exceptions()
    text = headline(outcome)
    skipping: Any = lifecycle.skip_on_exit_code
    if outcome.verdict is Verdict.FAILED and outcome.exit_code in (skipping or ()):
        raise known.AirflowSkipException(text)
    failing: Any = lifecycle.fail_on_exit_code
    if outcome.verdict is Verdict.FAILED and outcome.exit_code in (failing or ()):
        raise known.AirflowFailException(text)
    if not outcome.retryable:
        raise known.AirflowFailException(text)
    if outcome.verdict is Verdict.TIMED_OUT:
        raise known.AirflowTaskTimeout(text)
    raise known.AirflowException(text)


class NoValue(Exception):
    """The training has succeeded, but its value is lost: the job stays."""


def _returned(returned: Returned) -> Any:
    problem = returned.problem
    if not problem:
        try:
            return storable(returned.value)
        except NotStorable as error:
            problem = str(error)
    # Another training would end in the same way.
    raise no_value(f"Its value cannot be returned: {problem.rstrip('.')}")


def no_value(problem: str, who: str = "The function has returned") -> Exception:
    """The exception for a failure without a retry, after which the job is kept."""
    text = f"{who}, and the job has succeeded. {problem.rstrip('.')}. The job is kept."
    error: Exception = exceptions().AirflowFailException(text)
    error.__cause__ = NoValue(problem)
    return error


# `[1, 2` and `[{` do, `[1/3] epoch` and `[2026-11-21 10:00] done` do not.
_BEGINS_LIKE_JSON = re.compile(
    r'\s*(\{\s*["}]|"|NaN\b'
    r'|\[\s*(["\[\]{]|(-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity)\s*([,\]]|$)))'
)


def _looks_like_json(raw: str) -> bool:
    if _is_truncated(raw):  # Kubernetes keeps the end
        return raw.rstrip().endswith(("}", "]", '"'))
    return bool(_BEGINS_LIKE_JSON.match(raw))


def _is_truncated(raw: str) -> bool:
    return len(raw.encode("utf-8", "replace")) >= _LONGEST_RESULT


def _result(raw: str, required: bool, log: Logger) -> Any:
    """The result of the main container as a value. If it looks like JSON and cannot be read, the
    task fails, without a retry: another training would end in the same way. Plain text is common
    there, and is only logged."""
    import json

    if not raw.strip():
        if required:
            text = (
                "The training wrote no result to $KFTRAIN_RESULT_FILE. The task requires one "
                "(Lifecycle.result_required)."
            )
            raise exceptions().AirflowFailException(text)
        return None
    try:
        return storable(json.loads(raw))
    except (ValueError, RecursionError) as error:
        problem = _unreadable(raw, error)
        meant = isinstance(error, NotStorable) or _looks_like_json(raw)
    log.warning("::group::The result that the training wrote")
    log.warning("%s", raw)
    log.warning("::endgroup::")
    if meant or required:
        raise no_value(problem, "The training has ended")
    log.warning(
        "%s The task returns nothing; with Lifecycle(result_required=True) it would fail.", problem
    )
    return None


def _unreadable(raw: str, error: ValueError | RecursionError) -> str:
    if isinstance(error, NotStorable):
        return f"Airflow cannot store the result: {error}"
    if isinstance(error, RecursionError):
        return "The result cannot be read: it is nested too deeply."
    if _is_truncated(raw):
        return (
            f"The result is truncated: Kubernetes keeps {_LONGEST_RESULT} bytes of it. Write "
            "larger data to a store, and return its location."
        )
    return (
        "What the training wrote to $KFTRAIN_RESULT_FILE is not JSON: "
        f"{error}. Write it with json.dump."
    )


# When the worker has to exit before the job has ended


def retry_remains(context: Mapping[str, Any]) -> bool:
    instance: Any = context["ti"]
    task: Any = context["task"]
    return bool(task.retries) and instance.try_number <= (instance.max_tries or 0)


@contextmanager
def left_to_a_retry(
    context: Mapping[str, Any], log: Logger, withdraw: Callable[[], None]
) -> Iterator[None]:
    """Surrounds code during which a job may exist without a verdict. If the code fails, the job is
    deleted, unless a retry will adopt it. After an execution timeout it is always deleted."""
    known = exceptions()
    try:
        yield
    except known.TaskDeferred:
        raise
    except BaseException as error:
        if isinstance(error, WorkerEnded):
            goes_on = another_try_comes(context, log)
        else:
            final = _is_permanent(error) or isinstance(error, known.AirflowTaskTimeout)
            goes_on = not final and retry_remains(context)
        if not goes_on:
            try:
                withdraw()
            except KfTrainError as trouble:
                log.warning("Cannot verify that no job of this try is left: %s", trouble)
        raise


def left_behind(order: WatchOrder, context: Mapping[str, Any], log: Logger) -> NoReturn:
    """Called if the worker received SIGTERM while its job is unfinished: either the task was ended,
    or only the worker has to exit. In the second case the next try adopts the job, if there is
    one."""
    if another_try_comes(context, log):
        text = "The worker is being stopped. The job continues, and the next try adopts it."
        log.info("%s", text)
    else:
        text = "The worker is being stopped and no try will adopt the job: it is deleted."
        log.info("%s", text)
        delete(order, log)
    raise exceptions().AirflowException(text)


# The task was ended, or cleared while its worker ran: a new try would replace the job.
_GIVEN_UP = ENDED | {"restarting"}


def another_try_comes(context: Mapping[str, Any], log: Logger) -> bool:
    """Whether an unfinished job is left to another try. This asks Airflow: if a scheduler was late,
    another one may have reset its tasks, and these run again even without retries."""
    task = told_state(context, log)
    if task is None or task.state == "running":
        return retry_remains(context)
    return task.exists and task.state not in _GIVEN_UP


def told_state(context: Mapping[str, Any], log: Logger) -> TaskState | None:
    """The state of the task from Airflow; None if Airflow does not answer."""
    import asyncio

    from airflow_kftrain.airflow_compat import map_index_of, region_of, task_state

    instance: Any = context["ti"]
    asked = (instance.dag_id, instance.run_id, instance.task_id, map_index_of(instance))
    looped = bool(region_of(context)[0])
    try:
        return asyncio.run(task_state(*asked, looped))
    except Exception as error:  # noqa: BLE001  # whatever it is, there is no answer
        log.warning("Cannot read the state of the task from Airflow: %s", error)
        return None


def when_accepted(
    operator: BaseOperator, is_killed: Callable[[], bool], work: Callable[[], None]
) -> None:
    """Calls `work` when Airflow has accepted the success of the task, and does nothing if Airflow
    rejects it: if another try has been started in the meantime, the job belongs to that try."""

    def do(context: Mapping[str, Any]) -> None:
        if _is_accepted(context, is_killed, operator.log):
            work()
        else:
            operator.log.info(
                "Airflow has not accepted the success of this try: the job is not changed."
            )

    # This callback is the only code that runs after Airflow's answer. It also runs after a
    # rejection.
    operator.on_success_callback = [*_listed(operator.on_success_callback), do]


def _is_accepted(context: Mapping[str, Any], is_killed: Callable[[], bool], log: Logger) -> bool:
    from airflow_kftrain.airflow_compat import region_of

    if region_of(context)[0]:
        # The state of an iteration of a task loop cannot be read. But SIGTERM comes before a
        # rejection.
        return not is_killed()
    task = told_state(context, log)
    return task is not None and task.state == "success"


def _listed(callbacks: Any) -> list[Any]:
    return list(callbacks) if isinstance(callbacks, Sequence) else [callbacks] if callbacks else []


def delete(order: WatchOrder, log: Logger) -> None:
    """Deletes the job of a task that is ending."""
    from airflow_kftrain.operators.cleanup import Cleanup

    cleanup = Cleanup(order, log)
    cleanup.end(cleanup.find())


def trigger_failed(order: WatchOrder | None, context: Mapping[str, Any], log: Logger) -> None:
    """Called if the trigger has failed. That did not affect the job."""
    if order is None:
        return
    if retry_remains(context):
        log.info("The job continues, and the next try adopts it.")
    else:
        delete(order, log)
