"""Which task a job belongs to, and what may be done with it: labels and annotations -> a decision.
Pure.

Jobs are adopted and deleted only by these rules; manifests/identity.py writes what they read.
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
    GENERATION_ANNOTATION,
    OWNER_ANNOTATION,
    PREFIX,
    REGION_ID_ANNOTATION,
    REGION_INDEX_ANNOTATION,
    TRY_ANNOTATION,
    UNATTENDED_ANNOTATION,
    Owner,
)

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")


class Claim(NamedTuple):
    """What the labels and annotations of a job say."""

    name: str
    uid: str
    resource_version: str
    owner: Owner
    """With empty fields for what the job does not say."""
    digest: str = ""
    delivered: bool = False
    """Whether a try has received the end of the job."""
    unattended: bool = False
    """Whether its task does not wait for it: nobody watches it, and that is intended."""
    terminating: bool = False
    created: datetime | None = None


class Course(Enum):
    """What a new try does with an existing job."""

    ADOPT = "adopt"
    REPLACE = "replace"
    """Delete it, and create a new one."""
    LEAVE = "leave"
    """It belongs to another task instance, whatever its labels say: create a new one beside it."""


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
            region_id=note(REGION_ID_ANNOTATION),
            region_index=_number(note(REGION_INDEX_ANNOTATION), -1),
            generation=_number(note(GENERATION_ANNOTATION), 0),
        ),
        digest=note(DIGEST_ANNOTATION),
        delivered=bool(note(DELIVERED_ANNOTATION)),
        unattended=bool(note(UNATTENDED_ANNOTATION)),
        terminating=bool(metadata.get("deletionTimestamp")),
        created=read_time(metadata.get("creationTimestamp")),
    )


def settle(claim: Claim, state: JobState, owner: Owner, digest: str, *, reattach: bool) -> Course:
    """What the try `owner` does with a job that has the label of its task instance.

    It adopts a job that asks for the same, was not cleared, and whose end no try has received. This
    includes a job that has succeeded: Airflow may have lost the try that waited for it, and would
    train again. A failed job is adopted only by the try that created it: a retry is meant to try
    again.
    """
    if claim.owner.identity != owner.identity:
        return Course.LEAVE
    if claim.digest != digest or claim.delivered or claim.terminating:
        return Course.REPLACE
    if claim.owner.ti_id == owner.ti_id:
        # The same try repeats its create call; this is not a retry. But after a disruption it runs
        # the job again.
        repeats = claim.owner.generation >= owner.generation
        return Course.ADOPT if repeats else Course.REPLACE
    if not reattach or claim.owner.clears != owner.clears:
        return Course.REPLACE
    return Course.REPLACE if state.phase in (Phase.FAILED, Phase.GONE) else Course.ADOPT


def is_superseded(claim: Claim, owner: Owner, started: datetime | None) -> bool:
    """Whether the job belongs to a newer try. Then the try `owner`, which started at `started`, is
    over without knowing it: its worker may have been frozen. In a run that was deleted and
    recreated, tries count from 1 again; jobs of the former run are older than they are."""
    if claim.owner.identity != owner.identity or claim.owner.try_number <= owner.try_number:
        return False
    return started is not None and claim.created is not None and claim.created >= started


def may_kill(claim: Claim, state: JobState, uid: str, owner: str) -> bool:
    """Whether the try `owner` may delete the job because its task was ended from outside. Read the
    state of the task before, as watching/ending.py does."""
    same = bool(uid and owner) and claim.uid == uid and claim.owner.ti_id == owner
    return same and not claim.terminating and not state.phase.is_final


class TaskState(NamedTuple):
    """What Airflow says about a task instance. If reading it fails, there is no TaskState."""

    exists: bool
    state: str | None = None


# Tasks in all other states may still need the job; or the state is one of a newer Airflow.
ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


def is_orphan(claim: Claim, state: JobState, task: TaskState) -> bool:
    """Whether nobody will ever need the job: it is unfinished, and its task has ended or no longer
    exists. A task without a state may start at any moment, and decide then."""
    if not claim.owner.ti_id or claim.unattended:
        return False
    if claim.terminating or state.phase.is_final:
        return False
    return not task.exists or task.state in ENDED


def _number(text: str, default: int) -> int:
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else default
