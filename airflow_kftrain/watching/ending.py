"""Ends the job of a task that was ended from outside: the one safe delete.

A trigger is told of a kill when nobody has killed anything (its triggerer was slow, and another one
has taken over), and of a clear only after the next try has begun. So the task's own state is asked
first, and no job is deleted but in the very version in which it was seen to be the order's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from airflow_kftrain.errors import ClusterError, Conflict, KfTrainError
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import JobState, read_state
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.ownership import Claim, TaskState, may_kill, read_claim

_log = logging.getLogger(__name__)

PATIENCE = 25.0
"""Seconds in all: Airflow gives a trigger's on_kill 30."""
_LOOK_UPS = 3
_CONFLICTS = 5
"""A job that trains changes now and then; more than so often at once it does not."""
_PAUSE = 1.0

_AT_WORK: set[asyncio.Future[bool]] = set()


async def end_job(order: WatchOrder, look_up: Callable[[], Awaitable[TaskState]]) -> bool:
    """Deletes the job if its task was really ended; whether it did. What it did and why stands in
    the log. Not for a trigger that has fired: the job is its worker's by then.

    It raises nothing, and goes on if it is cancelled: Airflow 3.3 cancels a trigger anew every
    second until it has ended, also while its on_kill is at work.
    """
    work = asyncio.ensure_future(_end_in_time(order, look_up))
    _AT_WORK.add(work)  # a task that nobody holds may vanish
    work.add_done_callback(_AT_WORK.discard)
    return await asyncio.shield(work)


async def _end_in_time(order: WatchOrder, look_up: Callable[[], Awaitable[TaskState]]) -> bool:
    name = f"{order.job.kind} {order.job.namespace}/{order.job.name}"
    try:
        return await asyncio.wait_for(_end(order, look_up, name), PATIENCE)
    except asyncio.TimeoutError:
        why = f"nobody could be asked within {PATIENCE:.0f} seconds"
    except KfTrainError as error:
        why = str(error)
    _log.warning(
        "Cannot end %s, whose task was ended: %s It goes on until it is swept: by the triggerer if "
        "[kftrain] instance is configured, or by `airflow-kftrain sweep`.",
        name,
        why if why.endswith(".") else f"{why}.",
    )
    return False


async def _end(order: WatchOrder, look_up: Callable[[], Awaitable[TaskState]], name: str) -> bool:
    task = await _insist(look_up)
    if task is None:
        _log.warning("%s stays: Airflow does not say what became of its task.", name)
        return False
    if task.state == "deferred":
        _log.info(
            "%s stays: its task is still deferred, so that another triggerer watches it, or a "
            "newer try has seen to it.",
            name,
        )
        return False

    def is_mine(claim: Claim, state: JobState) -> bool:
        return may_kill(claim, state, order.job.uid, order.owner)

    state = task.state if task.exists else "gone"
    hook = AsyncTrainingJobHook(order.connection)
    while True:
        try:
            done = await delete_if(hook, order.kind, order.job.namespace, order.job.name, is_mine)
        except ClusterError as error:
            if not may_pass(error):
                raise
            _log.warning("%s Trying again.", error)
            await asyncio.sleep(_PAUSE)
            continue
        if done:
            _log.info("Deleted %s, since its task is %s.", name, state)
        else:
            _log.info("%s needs no end: it has one, is gone, or is another try's.", name)
        return done


async def delete_if(
    hook: AsyncTrainingJobHook,
    kind: JobKind,
    namespace: str,
    name: str,
    may: Callable[[Claim, JobState], bool],
) -> bool:
    """Deletes a job as it is found, if it may be deleted so; whether it was. A job that changes in
    between is looked at again. Raises ClusterError."""
    for _ in range(_CONFLICTS):
        job = await hook.get(kind, namespace, name)
        claim = read_claim(job)
        if job is None or not may(claim, read_state(kind, job)):
            return False
        version = claim.resource_version
        try:
            return await hook.delete(kind, namespace, name, uid=claim.uid, resource_version=version)
        except Conflict as error:
            conflict = error
    raise conflict


def may_pass(error: ClusterError) -> bool:
    """Whether the same delete may succeed later; a job that changes all the time stops to."""
    return error.retryable or isinstance(error, Conflict)


async def _insist(look_up: Callable[[], Awaitable[TaskState]]) -> TaskState | None:
    """None if Airflow does not answer."""
    for attempt in range(_LOOK_UPS):
        if attempt:
            await asyncio.sleep(_PAUSE)
        try:
            return await look_up()
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing is known
            _log.warning("Cannot read the state of the task: %s", error)
    return None
