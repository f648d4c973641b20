"""Whose job is it, and what may be done with it: labels and annotations -> a decision. Pure.

No job is ever adopted or deleted but by these rules; manifests/identity.py writes what they read.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from airflow_kftrain.job_state import JobState, Phase, read_mapping, read_text, read_time
from airflow_kftrain.manifests.identity import (
    CLEARS_ANNOTATION,
    DELIVERED_ANNOTATION,
    DIGEST_ANNOTATION,
    OWNER_ANNOTATION,
    PREFIX,
    TRY_ANNOTATION,
    UNATTENDED_ANNOTATION,
    Owner,
)

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")


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
    unattended: bool = False
    """Its task was not to wait for it: nobody looks after it, and nobody is missing."""
    terminating: bool = False
    created: datetime | None = None


class Course(Enum):
    """What a new try does with a job that is there already."""

    ADOPT = "adopt"
    REPLACE = "replace"
    """Delete it, and start anew."""
    LEAVE = "leave"
    """It is not of this task instance, whatever its labels say: start beside it."""


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
        unattended=bool(note(UNATTENDED_ANNOTATION)),
        terminating=bool(metadata.get("deletionTimestamp")),
        created=read_time(metadata.get("creationTimestamp")),
    )


def settle(claim: Claim, state: JobState, owner: Owner, digest: str, *, reattach: bool) -> Course:
    """What the try `owner` does with a job that carries the label of its task instance.

    Adopted is what asks for the same, was not cleared, and whose end nobody was told: a success
    too, since Airflow may have lost the try that waited for it, and would train twice. A failure is
    only adopted by the very try that made the job: a retry is there to try anew.
    """
    if claim.owner.identity != owner.identity:
        return Course.LEAVE
    if claim.digest != digest or claim.delivered or claim.terminating:
        return Course.REPLACE
    if claim.owner.ti_id == owner.ti_id:
        return Course.ADOPT  # the create of this try is repeated, which is no retry
    if not reattach or claim.owner.clears != owner.clears:
        return Course.REPLACE
    return Course.REPLACE if state.phase in (Phase.FAILED, Phase.GONE) else Course.ADOPT


def is_superseded(claim: Claim, owner: Owner, started: datetime | None) -> bool:
    """Whether the job is a newer try's, so that the try `owner`, which began at `started`, is over
    without knowing it: its worker was frozen, say. In a run that was deleted and made anew the
    tries count from 1 again; what is left of the former run is older than they are."""
    if claim.owner.identity != owner.identity or claim.owner.try_number <= owner.try_number:
        return False
    return started is not None and claim.created is not None and claim.created >= started


def may_kill(claim: Claim, state: JobState, uid: str, owner: str) -> bool:
    """Whether the try `owner` may delete the job because its task was ended from outside. The
    task's own state has to be asked before (watching/ending.py does)."""
    same = bool(uid and owner) and claim.uid == uid and claim.owner.ti_id == owner
    return same and not claim.terminating and not state.phase.is_final


class TaskState(NamedTuple):
    """What Airflow says of a task instance; a lookup that fails has none of these."""

    exists: bool
    state: str | None = None


# All others may still come to the job, or are of an Airflow that is newer than this list.
_ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


def is_orphan(claim: Claim, state: JobState, task: TaskState) -> bool:
    """Whether nobody will ever look after a job again: it lives, and its task has ended, or is
    there no more. A task without a state may start at any moment, and settle it then."""
    if not claim.owner.ti_id or claim.unattended:
        return False
    if claim.terminating or state.phase.is_final:
        return False
    return not task.exists or task.state in _ENDED


def _number(text: str, default: int) -> int:
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else default
