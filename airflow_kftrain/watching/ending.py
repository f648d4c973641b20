"""Deletes the job of a task that was ended from outside: the only safe way to do that.

Airflow may tell a trigger of a kill although nobody has killed the task (the triggerer was slow,
and another one has taken over), and tells it of a clear only after the next try has started. So the
state of the task is read first, and the job is deleted only in the version in which it was seen to
belong to the order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from airflow_kftrain.errors import ClusterError, Conflict, KfTrainError, OtherCluster
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import JobState, read_state
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.ownership import Claim, TaskState, may_kill, read_claim
from airflow_kftrain.watching.moves import follow

_log = logging.getLogger(__name__)

PATIENCE = 25.0
"""Seconds in total: Airflow gives a trigger's on_kill 30."""
_LOOK_UPS = 3
_CONFLICTS = 5
"""How many conflicts are tolerated: a job that trains changes now and then, but not that often."""
_PAUSE = 1.0

_AT_WORK: set[asyncio.Future[bool]] = set()


async def end_job(order: WatchOrder, look_up: Callable[[], Awaitable[TaskState]]) -> bool:
    """Deletes the job if its task was really ended. Returns whether it was deleted; the log says
    why. Do not call it after the trigger has fired: then the worker is responsible for the job.

    It raises nothing, and continues when it is cancelled: Airflow 3.3 cancels a trigger again every
    second until it has ended, even while its on_kill is running.
    """
    work = asyncio.ensure_future(_end_in_time(order, look_up))
    _AT_WORK.add(work)  # an asyncio task without a reference may be garbage-collected
    work.add_done_callback(_AT_WORK.discard)
    return await asyncio.shield(work)


async def _end_in_time(order: WatchOrder, look_up: Callable[[], Awaitable[TaskState]]) -> bool:
    name = f"{order.job.kind} {order.job.namespace}/{order.job.name}"
    try:
        return await asyncio.wait_for(_end(order, look_up, name), PATIENCE)
    except asyncio.TimeoutError:
        why = f"no answer within {PATIENCE:.0f} seconds"
    except KfTrainError as error:
        why = str(error)
    _log.warning(
        "Cannot delete %s, whose task has ended: %s It continues until it is swept, by the "
        "triggerer if [kftrain] instance is configured, or by `airflow-kftrain sweep`.",
        name,
        why if why.endswith(".") else f"{why}.",
    )
    return False


async def _end(order: WatchOrder, look_up: Callable[[], Awaitable[TaskState]], name: str) -> bool:
    task = await _read_task_state(look_up)
    if task is None:
        _log.warning("%s stays: Airflow does not return the state of its task.", name)
        return False
    if task.state == "deferred":
        _log.info(
            "%s stays: its task is still deferred, so another triggerer watches the job, or a "
            "newer try has taken it over.",
            name,
        )
        return False

    def is_mine(claim: Claim, state: JobState) -> bool:
        return may_kill(claim, state, order.job.uid, order.owner)

    state = task.state if task.exists else "gone"
    hook = AsyncTrainingJobHook(order.connection, order.cluster)
    while True:
        try:
            done = await delete_if(hook, order.kind, order.job.namespace, order.job.name, is_mine)
        except ClusterError as error:
            if error.retryable and await follow(hook, order):
                continue
            if not may_pass(error):
                raise
            _log.warning("%s Trying again.", error)
            await asyncio.sleep(_PAUSE)
            continue
        if done:
            _log.info("Deleted %s, since its task is %s.", name, state)
        else:
            _log.info(
                "%s is not deleted: it has finished, no longer exists, or belongs to another try.",
                name,
            )
        return done


async def delete_if(
    hook: AsyncTrainingJobHook,
    kind: JobKind,
    namespace: str,
    name: str,
    may: Callable[[Claim, JobState], bool],
    *,
    foreground: bool = False,
) -> bool:
    """Deletes a job if `may` allows it for the version that was read. Returns whether it was
    deleted. A job that changes in between is read again. Raises ClusterError."""
    for _ in range(_CONFLICTS):
        job = await hook.get(kind, namespace, name)
        claim = read_claim(job)
        if job is None or not may(claim, read_state(kind, job)):
            return False
        version = claim.resource_version
        try:
            return await hook.delete(
                kind,
                namespace,
                name,
                uid=claim.uid,
                resource_version=version,
                foreground=foreground,
            )
        except Conflict as error:
            conflict = error
    raise conflict


def may_pass(error: ClusterError) -> bool:
    """Whether the same delete may succeed later: conflicts end when the job stops changing. But
    nobody waits until a connection is restored."""
    return isinstance(error, Conflict) or (error.retryable and not isinstance(error, OtherCluster))


async def _read_task_state(look_up: Callable[[], Awaitable[TaskState]]) -> TaskState | None:
    """The state of the task; None if Airflow does not answer."""
    for attempt in range(_LOOK_UPS):
        if attempt:
            await asyncio.sleep(_PAUSE)
        try:
            return await look_up()
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing is known
            _log.warning("Cannot read the state of the task: %s", error)
    return None
