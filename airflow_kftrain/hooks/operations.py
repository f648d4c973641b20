"""Decides in which order calls are made, and when they are repeated."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from airflow_kftrain.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    NotServed,
    OtherCluster,
    Unauthorized,
)
from airflow_kftrain.hooks import api_calls
from airflow_kftrain.hooks.answers import (
    ALREADY_EXISTS,
    NOT_TRUSTED,
    QUOTA_EXCEEDED,
    Answer,
    check,
    read_answer,
)
from airflow_kftrain.hooks.api_calls import POD, WORKLOAD, WORKLOAD_VERSIONS, Call, OtherKind
from airflow_kftrain.job_state import read_mapping, read_mappings, read_text
from airflow_kftrain.kinds import MPI_JOB_V1, MPI_JOB_V2, JobKind
from airflow_kftrain.manifests.identity import OWNER_ANNOTATION

SUBMIT_PATIENCE = 120.0
"""Seconds after which a submit is not repeated: the upgrade of an operator takes about that
long."""
PATIENCE = 15.0
"""The same for all other calls."""

_LONGEST_PAUSE = 20.0
_LOGINS = 3
_LOOK_AGAIN = 2.0
FIRST_PAGE = 50
_PAGE_BYTES = 1 << 20
_MOST_PODS = 1000
_MOST_ABOUT = 8
_EVENTS_EACH = 50


Objects = list[dict[str, Any]]

_log = logging.getLogger(__name__)


class Outside(NamedTuple):
    """How an operation reaches the outside world; tests replace it."""

    send: Callable[[Call], Awaitable[Answer]]
    """Raises ClusterError if there is no response."""
    clock: Callable[[], float] = time.monotonic
    luck: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def pause(self, seconds: float, why: str) -> None:
        _log.warning("%s Trying again in %.0f s.", why, seconds)
        await self.sleep(seconds)


def pause_before_retry(error: ClusterError, attempt: int, luck: float, left: float) -> float | None:
    """Seconds, or None to give up. `attempt` counts from 1; `luck`, from 0 to 1, keeps clients that
    fail together from coming back together; `left` is the number of seconds that are left in
    total."""
    lasting = isinstance(error, OtherCluster) or error.reason in (QUOTA_EXCEEDED, NOT_TRUSTED)
    # The credentials are read again each time.
    lasting = lasting or isinstance(error, Unauthorized) and attempt >= _LOGINS
    if not error.retryable or lasting:
        return None
    pause = min(2.0 ** (attempt - 1), _LONGEST_PAUSE) * (0.5 + luck / 2)
    pause = max(pause, (error.retry_after or 0) * (1 + luck / 4))
    return pause if pause <= left else None


async def patiently(call: Call, end: float, outside: Outside) -> Answer:
    """The answer to a call that may be repeated until the clock reaches `end`."""
    for attempt in count(1):
        try:
            said = await outside.send(call)
            check(call, said)
            return said
        except ClusterError as error:
            pause = pause_before_retry(error, attempt, outside.luck(), end - outside.clock())
            if pause is None:
                raise
            why = str(error)
        await outside.pause(pause, why)
    raise AssertionError("counting has no end")


async def answer(call: Call, outside: Outside) -> Answer:
    return await patiently(call, outside.clock() + PATIENCE, outside)


async def ask(call: Call, outside: Outside) -> dict[str, Any]:
    return read_answer(call, await answer(call, outside))


async def ask_for_text(call: Call, outside: Outside) -> str:
    return (await answer(call, outside)).text


async def find(call: Call, outside: Outside) -> dict[str, Any] | None:
    """The object, or None if it does not exist."""
    try:
        return await ask(call, outside)
    except NotFound:
        return None


async def submit(kind: JobKind, manifest: Mapping[str, Any], outside: Outside) -> dict[str, Any]:
    """Creates a job, or finds the one that an earlier call of ours has created, since its response
    may have been lost. If a job of that name is being deleted, it waits until that is gone."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    create = api_calls.create_job(kind, manifest)
    get = api_calls.get_job(kind, namespace, name)
    end = outside.clock() + SUBMIT_PATIENCE
    while True:
        try:
            return read_answer(create, await patiently(create, end, outside))
        except Conflict as error:
            if error.reason != ALREADY_EXISTS:
                raise
            refused = error
        there = await find(get, outside)
        going = there is None or "deletionTimestamp" in read_mapping(there.get("metadata"))
        if not going and there is not None:
            if _same_owner(there, manifest):
                return there
            raise _foreign(create, there)
        if outside.clock() + _LOOK_AGAIN > end:
            raise _still_going(create, refused)
        await outside.pause(_LOOK_AGAIN, f"{kind.kind} {namespace}/{name} is still being deleted.")


def _same_owner(there: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    ours = _owner(manifest)
    return bool(ours) and _owner(there) == ours


def _owner(resource: Mapping[str, Any]) -> str:
    metadata = read_mapping(resource.get("metadata"))
    return read_text(read_mapping(metadata.get("annotations")).get(OWNER_ANNOTATION))


def _foreign(call: Call, there: Mapping[str, Any]) -> Conflict:
    owner = _owner(there)
    whose = f"belongs to another try ({owner})" if owner else "was not created by Airflow"
    return Conflict(
        call.doing,
        f"a job of that name already exists; it {whose}",
        advice="Choose another name, or delete it.",
        code=409,
        reason=ALREADY_EXISTS,
    )


def _still_going(call: Call, refused: Conflict) -> Conflict:
    return Conflict(
        call.doing,
        f"a job of that name is still being deleted after {SUBMIT_PATIENCE:.0f} s",
        advice="Check for a finalizer that is never removed: kubectl get ... -o yaml.",
        code=409,
        reason=refused.reason,
    )


async def delete(call: Call, get: Call, uid: str, outside: Outside) -> bool:
    """Returns False if the object is gone already, even if another one has its name. `call` deletes
    only the object with this uid, `get` reads the object with this name."""
    try:
        await answer(call, outside)
    except NotFound:
        return False
    except Conflict:
        # Kubernetes has several texts for an unexpected uid.
        there = await find(get, outside)
        if there is None or read_mapping(there.get("metadata")).get("uid") != uid:
            return False
        raise
    return True


def next_limit(answer: Answer, objects: int) -> int:
    """How many objects to ask for so that the next page has about a mebibyte."""
    if not objects:
        return FIRST_PAGE
    return min(max(_PAGE_BYTES * objects // (len(answer.text) + 1), 1), 500)


async def pods(kind: JobKind, namespace: str, name: str, outside: Outside) -> Objects:
    """The pods of one job, at most a thousand."""
    selector, found = kind.selectors.pods.format(name=name), Objects()
    limit, token = FIRST_PAGE, ""
    while True:
        call = api_calls.list_page(POD, namespace, selector, limit=limit, token=token)
        said = await answer(call, outside)
        page = read_answer(call, said)
        items = [dict(item) for item in read_mappings(page.get("items"))]
        found += items
        token = read_text(read_mapping(page.get("metadata")).get("continue"))
        if not token or len(found) >= _MOST_PODS:
            return found[:_MOST_PODS]
        limit = next_limit(said, len(items))


async def events(namespace: str, about: Sequence[str], outside: Outside) -> Objects:
    """The events of the first few of these objects (uids or names), oldest first. Empty if reading
    events is forbidden: they are only evidence."""
    found: dict[str, dict[str, Any]] = {}
    for each in list(dict.fromkeys(about))[:_MOST_ABOUT]:
        call = api_calls.list_events(namespace, each, _EVENTS_EACH)
        try:
            page = await ask(call, outside)
        except (Forbidden, NotFound):
            return []
        for item in read_mappings(page.get("items")):
            metadata = read_mapping(item.get("metadata"))
            found[read_text(metadata.get("uid")) or str(len(found))] = dict(item)
    return sorted(found.values(), key=_time_of_event)


def _time_of_event(event: Mapping[str, Any]) -> str:
    created = read_mapping(event.get("metadata")).get("creationTimestamp")
    return read_text(event.get("lastTimestamp")) or read_text(created)


async def workload_kind(outside: Outside) -> OtherKind:
    """Kueue's Workload, in a version that the cluster serves. Raises NotServed."""
    call = api_calls.served_versions(WORKLOAD.group)
    call = call._replace(kind=WORKLOAD.kind, operator=WORKLOAD.operator)
    group = await ask(call, outside)
    served = [each.get("version") for each in read_mappings(group.get("versions"))]
    for version in WORKLOAD_VERSIONS:
        if version in served:
            return WORKLOAD._replace(version=version)
    raise NotServed(
        call.doing,
        f"the cluster serves Kueue in no version that airflow-kftrain can read ({served})",
        advice=f"It reads {' and '.join(WORKLOAD_VERSIONS)}.",
        code=404,
    )


async def mpi_version(outside: Outside) -> str:
    """Which version of MPIJob the cluster serves; mpi-operator's comes first."""
    for kind in (MPI_JOB_V2, MPI_JOB_V1):
        try:
            served = await ask(api_calls.served_kinds(kind.group, kind.version), outside)
        except (NotFound, NotServed):
            continue
        names = [each.get("name") for each in read_mappings(served.get("resources"))]
        if kind.plural in names:
            return kind.version
    raise NotServed(
        "run an MPIJob",
        "the cluster serves neither MPIJob (kubeflow.org/v2beta1) nor MPIJob (kubeflow.org/v1)",
        advice=f"Install {MPI_JOB_V2.operator} or {MPI_JOB_V1.operator}.",
        code=404,
    )
