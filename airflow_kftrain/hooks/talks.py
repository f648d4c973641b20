"""In which order calls are made, and when they are tried again. Pure: a talk is a generator that
gives calls and pauses, and is sent answers; who carries them, in a thread or in an event loop, is
not known here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from airflow_kftrain.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    NotServed,
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
from airflow_kftrain.hooks.api_calls import POD, Call
from airflow_kftrain.job_state import read_mapping, read_mappings, read_text
from airflow_kftrain.kinds import MPI_JOB_V1, MPI_JOB_V2, JobKind
from airflow_kftrain.manifests.identity import OWNER_ANNOTATION

SUBMIT_PATIENCE = 120.0
"""Seconds after which a submit is not tried again: an operator's upgrade takes about that long."""
PATIENCE = 15.0
"""Of all other calls."""

_LONGEST_PAUSE = 20.0
_LOGINS = 3
_LOOK_AGAIN = 2.0
FIRST_PAGE = 50
_PAGE_BYTES = 1 << 20
_MOST_PODS = 1000
_MOST_ABOUT = 8
_EVENTS_EACH = 50


class Pause(NamedTuple):
    """Nothing is asked for so long."""

    seconds: float
    why: str


T = TypeVar("T")
Objects = list[dict[str, Any]]
Talk = Generator[Call | Pause, Any, T]
"""For each Call it is sent an Answer, or has a ClusterError thrown into it if there is none."""


class Outside(NamedTuple):
    """What a talk does not have of itself; tests bring their own."""

    clock: Callable[[], float] = time.monotonic
    luck: Callable[[], float] = random.random


def pause_before_retry(error: ClusterError, attempt: int, luck: float, left: float) -> float | None:
    """Seconds, or None to give up. `attempt` counts from 1, `luck` is from 0 to 1 so that many who
    fail together do not come back together, `left` is how many seconds there are in all."""
    lasting = error.reason in (QUOTA_EXCEEDED, NOT_TRUSTED)
    # Each time the credentials are made anew.
    lasting = lasting or isinstance(error, Unauthorized) and attempt >= _LOGINS
    if not error.retryable or lasting:
        return None
    pause = min(2.0 ** (attempt - 1), _LONGEST_PAUSE) * (0.5 + luck / 2)
    pause = max(pause, (error.retry_after or 0) * (1 + luck / 4))
    return pause if pause <= left else None


def patiently(call: Call, end: float, outside: Outside) -> Talk[Answer]:
    """The answer to a call that may be tried until the clock shows `end`."""
    for attempt in count(1):
        try:
            answer: Answer = yield call
            check(call, answer)
            return answer
        except ClusterError as error:
            pause = pause_before_retry(error, attempt, outside.luck(), end - outside.clock())
            if pause is None:
                raise
            why = str(error)
        yield Pause(pause, why)
    raise AssertionError("counting has no end")


def ask(call: Call, outside: Outside) -> Talk[dict[str, Any]]:
    answer = yield from patiently(call, outside.clock() + PATIENCE, outside)
    return read_answer(call, answer)


def ask_for_text(call: Call, outside: Outside) -> Talk[str]:
    answer = yield from patiently(call, outside.clock() + PATIENCE, outside)
    return answer.text


def find(call: Call, outside: Outside) -> Talk[dict[str, Any] | None]:
    """None if there is no such object."""
    try:
        return (yield from ask(call, outside))
    except NotFound:
        return None


def submit(kind: JobKind, manifest: Mapping[str, Any], outside: Outside) -> Talk[dict[str, Any]]:
    """Creates a job, or finds the one that an earlier call of ours has created: an answer may get
    lost. One of that name that is being deleted is waited for."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    create = api_calls.create_job(kind, manifest)
    get = api_calls.get_job(kind, namespace, name)
    end = outside.clock() + SUBMIT_PATIENCE
    while True:
        try:
            answer = yield from patiently(create, end, outside)
            return read_answer(create, answer)
        except Conflict as error:
            if error.reason != ALREADY_EXISTS:
                raise
            refused = error
        there = yield from find(get, outside)
        going = there is None or "deletionTimestamp" in read_mapping(there.get("metadata"))
        if not going and there is not None:
            if _same_owner(there, manifest):
                return there
            raise _foreign(create, there)
        if outside.clock() + _LOOK_AGAIN > end:
            raise _still_going(create, refused)
        yield Pause(_LOOK_AGAIN, f"{kind.kind} {namespace}/{name} is still being deleted.")


def _same_owner(there: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    ours = _owner(manifest)
    return bool(ours) and _owner(there) == ours


def _owner(resource: Mapping[str, Any]) -> str:
    metadata = read_mapping(resource.get("metadata"))
    return read_text(read_mapping(metadata.get("annotations")).get(OWNER_ANNOTATION))


def _foreign(call: Call, there: Mapping[str, Any]) -> Conflict:
    owner = _owner(there)
    whose = f"belongs to another try ({owner})" if owner else "was not made by Airflow"
    return Conflict(
        call.doing,
        f"one of that name is there already, and it {whose}",
        advice="Choose another name, or delete it.",
        code=409,
        reason=ALREADY_EXISTS,
    )


def _still_going(call: Call, refused: Conflict) -> Conflict:
    return Conflict(
        call.doing,
        f"one of that name is still being deleted after {SUBMIT_PATIENCE:.0f} s",
        advice="Look for a finalizer that nobody removes: kubectl get ... -o yaml.",
        code=409,
        reason=refused.reason,
    )


def delete(call: Call, get: Call, uid: str, outside: Outside) -> Talk[bool]:
    """False if it is gone already, also where another has its name by now. `call` deletes only
    what has that uid, `get` finds what has the name."""
    try:
        yield from patiently(call, outside.clock() + PATIENCE, outside)
    except NotFound:
        return False
    except Conflict:
        # Kubernetes has more than one text for another uid than was expected.
        there = yield from find(get, outside)
        if there is None or read_mapping(there.get("metadata")).get("uid") != uid:
            return False
        raise
    return True


def next_limit(answer: Answer, objects: int) -> int:
    """How many objects of the next page make about a mebibyte."""
    if not objects:
        return FIRST_PAGE
    return min(max(_PAGE_BYTES * objects // (len(answer.text) + 1), 1), 500)


def pods(kind: JobKind, namespace: str, name: str, outside: Outside) -> Talk[Objects]:
    """Of one job, at most a thousand."""
    selector, found = kind.selectors.pods.format(name=name), Objects()
    limit, token = FIRST_PAGE, ""
    while True:
        call = api_calls.list_page(POD, namespace, selector, limit=limit, token=token)
        answer = yield from patiently(call, outside.clock() + PATIENCE, outside)
        page = read_answer(call, answer)
        items = [dict(item) for item in read_mappings(page.get("items"))]
        found += items
        token = read_text(read_mapping(page.get("metadata")).get("continue"))
        if not token or len(found) >= _MOST_PODS:
            return found[:_MOST_PODS]
        limit = next_limit(answer, len(items))


def events(namespace: str, about: Sequence[str], outside: Outside) -> Talk[Objects]:
    """About the first few of these objects (uids or names), oldest first; none where we may not
    read events, since they are only evidence."""
    found: dict[str, dict[str, Any]] = {}
    for each in list(dict.fromkeys(about))[:_MOST_ABOUT]:
        call = api_calls.list_events(namespace, each, _EVENTS_EACH)
        try:
            page = yield from ask(call, outside)
        except (Forbidden, NotFound):
            return []
        for item in read_mappings(page.get("items")):
            metadata = read_mapping(item.get("metadata"))
            found[read_text(metadata.get("uid")) or str(len(found))] = dict(item)
    return sorted(found.values(), key=_time_of_event)


def _time_of_event(event: Mapping[str, Any]) -> str:
    created = read_mapping(event.get("metadata")).get("creationTimestamp")
    return read_text(event.get("lastTimestamp")) or read_text(created)


def mpi_version(outside: Outside) -> Talk[str]:
    """Which MPIJob the cluster serves; mpi-operator's comes first."""
    for kind in (MPI_JOB_V2, MPI_JOB_V1):
        try:
            served = yield from ask(api_calls.served_kinds(kind.group, kind.version), outside)
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
