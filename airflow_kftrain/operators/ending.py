"""From how a job ended to how its task ends: the log, the value or the exception, and what becomes
of the job. Nowhere else are errors of this package translated into Airflow's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.errors import (
    BadConnection,
    Conflict,
    Forbidden,
    InvalidSpec,
    KfTrainError,
    NotFound,
    NotServed,
    Refused,
)
from airflow_kftrain.job_state import Phase
from airflow_kftrain.manifests.identity import DELIVERED_ANNOTATION
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.operators.results import NotStorable, storable
from airflow_kftrain.ownership import Claim, read_claim

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from airflow_kftrain.hooks.training_job import TrainingJobHook
    from airflow_kftrain.specs.lifecycle import Lifecycle

_PERMANENT = (InvalidSpec, BadConnection, Refused, Forbidden, NotServed)
"""Nothing that a retry of the task could mend."""

_LOOKS = 5
_LONGEST_RESULT = 4096
"""What the kubelet keeps of a termination message."""


@contextmanager
def as_airflow_says() -> Iterator[None]:
    try:
        yield
    except KfTrainError as error:
        if _is_permanent(error):
            raise exceptions().AirflowFailException(str(error)) from error
        raise exceptions().AirflowException(str(error)) from error


def _is_permanent(error: BaseException) -> bool:
    # A program that fetches tokens may fail for a while only.
    return isinstance(error, _PERMANENT) and not error.retryable


def tell(outcome: Outcome, log: Logger) -> None:
    """The report, and the end of the leader's log."""
    if outcome.tail:
        log.info("::group::The end of the leader's log")
        log.info("%s", outcome.tail)
        log.info("::endgroup::")
    if outcome.verdict is Verdict.SUCCEEDED:
        log.info("%s", outcome.story)
    else:
        log.error("%s", outcome.story)


def value_or_error(outcome: Outcome, lifecycle: Lifecycle, log: Logger) -> Any:
    """The task's return value, or the exception that says why there is none and whether a retry
    can help."""
    if outcome.verdict is Verdict.SUCCEEDED:
        return _result(outcome.result, lifecycle.result_required, log)
    known = exceptions()
    text = outcome.story
    skipping: Any = lifecycle.skip_on_exit_code
    if outcome.verdict is Verdict.FAILED and outcome.exit_code in (skipping or ()):
        raise known.AirflowSkipException(text)
    if not outcome.retryable:
        raise known.AirflowFailException(text)
    if outcome.verdict is Verdict.TIMED_OUT:
        raise known.AirflowTaskTimeout(text)
    raise known.AirflowException(text)


def _result(raw: str, required: bool, log: Logger) -> Any:
    """What the main container left, as a value. Nothing of it is lost: what cannot be read stands
    in the log."""
    import json

    if not raw.strip():
        problem = "The training left no result: nothing was written to $KFTRAIN_RESULT_FILE."
    else:
        try:
            return storable(json.loads(raw))
        except (ValueError, RecursionError) as error:
            problem = _unreadable(raw, error)
            log.warning("::group::What the training left as its result")
            log.warning("%s", raw)
            log.warning("::endgroup::")
    if required:
        # To train again would bring the same.
        raise exceptions().AirflowFailException(f"{problem} The task asks for one.")
    if raw.strip():
        log.warning("%s The task returns nothing.", problem)
    return None


def _unreadable(raw: str, error: ValueError | RecursionError) -> str:
    if isinstance(error, NotStorable):
        return f"Airflow cannot store the result: {error}"
    if isinstance(error, RecursionError):
        return "The result cannot be read: it is nested too deeply."
    if len(raw.encode("utf-8", "replace")) >= _LONGEST_RESULT:
        return (
            f"The result is cut: Kubernetes keeps {_LONGEST_RESULT} bytes of it. Write what is "
            "bigger to a storage, and return its address."
        )
    return f"The result is not JSON: {error}. Write it with json.dump."


# What becomes of the job


def look_up(order: WatchOrder, outcome: Outcome, log: Logger) -> dict[str, Any] | None:
    """The job as it is now, if it is there and can be asked for."""
    from airflow_kftrain.hooks.training_job import TrainingJobHook

    if outcome.phase is Phase.GONE or not order.job.name:
        return None
    try:
        hook = TrainingJobHook(order.connection)
        found = hook.get(order.kind, order.job.namespace, order.job.name)
        return found if read_claim(found).uid == order.job.uid else None
    except KfTrainError as error:
        log.warning("The job is left as it is, which does not change how it ended: %s", error)
        return None


def close(
    order: WatchOrder,
    outcome: Outcome,
    lifecycle: Lifecycle,
    retry: bool,
    log: Logger,
    found: dict[str, Any] | None,
) -> None:
    """Delete the job, or mark it as delivered so that no later try takes its result for its own.

    A job that lives is always deleted: its task has ended. What cannot be done now does not hide
    how the job ended; what is left behind, the sweeper finds.
    """
    if found is None:
        return
    if outcome.phase is None and outcome.retryable and retry:
        log.info("Nobody knows how it is with the job: the next try looks, and goes on with it.")
        return
    living = outcome.phase is None or not outcome.phase.is_final
    doomed = living or _is_deleted(lifecycle.on_finish, outcome.phase)
    try:
        _close(order, found, delete=doomed, foreground=living, log=log)
    except KfTrainError as error:
        log.warning("The job is left as it is, which does not change how it ended: %s", error)


def delete(order: WatchOrder, log: Logger) -> None:
    """The job of a task that ends now."""
    from airflow_kftrain.hooks.training_job import TrainingJobHook

    try:
        hook = TrainingJobHook(order.connection)
        found = hook.get(order.kind, order.job.namespace, order.job.name)
        _close(order, found, delete=True, foreground=True, log=log)
    except KfTrainError as error:
        log.warning("The job cannot be deleted now, the sweeper will find it: %s", error)


def _is_deleted(on_finish: str, phase: Phase | None) -> bool:
    return on_finish == "delete" or (on_finish == "delete_on_success" and phase is Phase.SUCCEEDED)


def _close(
    order: WatchOrder, found: dict[str, Any] | None, *, delete: bool, foreground: bool, log: Logger
) -> None:
    from airflow_kftrain.hooks.training_job import TrainingJobHook

    hook = TrainingJobHook(order.connection)
    for _ in range(_LOOKS):
        claim = read_claim(found)
        if found is None or claim.uid != order.job.uid or claim.terminating:
            return
        if claim.owner.ti_id != order.owner:
            log.info("Another try goes on with the job: it is left alone.")
            return
        try:
            if delete:
                _delete(hook, order, claim, foreground, log)
            else:
                _mark(hook, order, claim)
            return
        except NotFound:
            return
        except Conflict:  # it has changed since it was read
            found = hook.get(order.kind, order.job.namespace, order.job.name)
    raise Conflict(f"close {order.job.kind} {order.job.name}", "it changes all the time")


def _delete(
    hook: TrainingJobHook, order: WatchOrder, claim: Claim, foreground: bool, log: Logger
) -> None:
    hook.delete(
        order.kind,
        order.job.namespace,
        order.job.name,
        uid=claim.uid,
        resource_version=claim.resource_version,
        # With its pods: a try after this one waits until they are gone.
        foreground=foreground,
    )
    log.info("Deleted %s %s/%s.", order.job.kind, order.job.namespace, order.job.name)


def _mark(hook: TrainingJobHook, order: WatchOrder, claim: Claim) -> None:
    notes = {DELIVERED_ANNOTATION: claim.owner.ti_id}
    patch = {"metadata": {"annotations": notes, "resourceVersion": claim.resource_version}}
    hook.patch(order.kind, order.job.namespace, order.job.name, patch)


# When the worker has to go before the job does


def retry_remains(context: Mapping[str, Any]) -> bool:
    instance: Any = context["ti"]
    task: Any = context["task"]
    return bool(task.retries) and instance.try_number <= (instance.max_tries or 0)


@contextmanager
def left_to_a_retry(
    context: Mapping[str, Any], log: Logger, withdraw: Callable[[], None]
) -> Iterator[None]:
    """While there may be a job and no verdict on it: whatever goes wrong then, it is deleted unless
    a retry goes on with it. The execution timeout ends it in any case."""
    known = exceptions()
    try:
        yield
    except known.TaskDeferred:
        raise
    except BaseException as error:
        final = _is_permanent(error) or isinstance(error, known.AirflowTaskTimeout)
        if final or not retry_remains(context):
            try:
                withdraw()
            except KfTrainError as trouble:
                log.warning("Cannot make sure that no job of this try goes on: %s", trouble)
        raise


def left_behind(order: WatchOrder, context: Mapping[str, Any], log: Logger) -> NoReturn:
    """The worker got SIGTERM while it waited: because its task was ended, or only because the
    worker has to go. Then a retry, if there is one, goes on with the job."""
    if _is_still_wanted(context, log) and retry_remains(context):
        text = "The worker is being ended. The job trains on, and the next try goes on with it."
        log.info("%s", text)
    else:
        text = "The worker is being ended, and nobody would look after the job: it is deleted."
        log.info("%s", text)
        delete(order, log)
    raise exceptions().AirflowException(text)


def _is_still_wanted(context: Mapping[str, Any], log: Logger) -> bool:
    """By Airflow's word; in doubt it is."""
    import asyncio

    from airflow_kftrain.airflow_compat import map_index_of, task_state

    instance: Any = context["ti"]
    map_index = map_index_of(instance)
    try:
        state = asyncio.run(
            task_state(instance.dag_id, instance.run_id, instance.task_id, map_index)
        )
    except Exception as error:  # noqa: BLE001  # whatever it is, there is no answer
        log.warning("Airflow does not say what has become of the task: %s", error)
        return True
    return state.exists and state.state == "running"


def trigger_failed(order: WatchOrder | None, context: Mapping[str, Any], log: Logger) -> None:
    """The trigger could not go on; the job knows nothing of it."""
    if order is None:
        return
    if retry_remains(context):
        log.info("The job trains on, and the next try goes on with it.")
    else:
        delete(order, log)
