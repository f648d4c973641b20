"""Whose job is it, and what may be done with it: labels and annotations -> a decision. Pure.

No job is ever adopted or deleted but by these rules; manifests/identity.py writes what they read.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from airflow_kftrain.job_state import JobState, Phase, read_mapping, read_text
from airflow_kftrain.manifests.identity import (
    CLEARS_ANNOTATION,
    DELIVERED_ANNOTATION,
    DIGEST_ANNOTATION,
    OWNER_ANNOTATION,
    PREFIX,
    TRY_ANNOTATION,
    Owner,
)


class Claim(NamedTuple):
    """What a job says of itself."""

    name: str
    uid: str
    resource_version: str
    owner: Owner
    """With empty fields where the job does not say."""
    digest: str = ""
    delivered: bool = False
    """Some try has been told how it ended."""
    terminating: bool = False


class Course(Enum):
    """What a new try does with the job of a try before it."""

    ADOPT = "adopt"
    REPLACE = "replace"
    """Delete it, and start anew."""


def read_claim(resource: object) -> Claim:
    """Never raises."""
    metadata = read_mapping(read_mapping(resource).get("metadata"))
    notes = read_mapping(metadata.get("annotations"))

    def note(key: str) -> str:
        return read_text(notes.get(key))

    return Claim(
        name=read_text(metadata.get("name")),
        uid=read_text(metadata.get("uid")),
        resource_version=read_text(metadata.get("resourceVersion")),
        owner=Owner(
            instance=note(f"{PREFIX}/instance"),
            dag_id=note(f"{PREFIX}/dag-id"),
            task_id=note(f"{PREFIX}/task-id"),
            run_id=note(f"{PREFIX}/run-id"),
            ti_id=note(OWNER_ANNOTATION),
            map_index=_number(note(f"{PREFIX}/map-index"), -1),
            try_number=_number(note(TRY_ANNOTATION), 1),
            clears=_number(note(CLEARS_ANNOTATION), 0),
        ),
        digest=note(DIGEST_ANNOTATION),
        delivered=bool(note(DELIVERED_ANNOTATION)),
        terminating=bool(metadata.get("deletionTimestamp")),
    )


def settle(claim: Claim, state: JobState, owner: Owner, digest: str, *, reattach: bool) -> Course:
    """What the try `owner` does with an earlier job of its own task instance.

    Adopted is what asks for the same, was not cleared, and whose end nobody was told: a success
    too, since Airflow may have lost the try that waited for it, and would train twice.
    """
    same = claim.digest == digest and claim.owner.clears == owner.clears
    if not reattach or not same or claim.delivered or claim.terminating:
        return Course.REPLACE
    if claim.owner.ti_id == owner.ti_id:
        return Course.ADOPT
    return Course.REPLACE if state.phase in (Phase.FAILED, Phase.GONE) else Course.ADOPT


def may_kill(claim: Claim, state: JobState, uid: str, owner: str) -> bool:
    """Whether the try `owner` may delete the job because its task was ended from outside. The
    task's own state has to be asked before (watching/ending.py does)."""
    return claim.uid == uid and claim.owner.ti_id == owner and not state.phase.is_final


class TaskState(NamedTuple):
    """What Airflow says of a task instance; a lookup that fails has none of these."""

    exists: bool
    state: str | None = None


_AT_WORK = frozenset(
    {
        "scheduled",
        "queued",
        "running",
        "deferred",
        "restarting",
        "up_for_retry",
        "up_for_reschedule",
    }
)


def is_orphan(claim: Claim, state: JobState, task: TaskState) -> bool:
    """Whether nobody will ever look after a job again: it lives, and its task has ended, or is
    there no more. A task without a state may start at any moment, and settle it then."""
    if state.phase.is_final or claim.terminating or not claim.owner.ti_id:
        return False
    if not task.exists:
        return True
    return task.state is not None and task.state not in _AT_WORK


def _number(text: str, default: int) -> int:
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 10 else default
