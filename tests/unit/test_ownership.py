"""Who may adopt, replace, delete or sweep a job, and who must not."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain import Owner, PyTorchJob, build_manifest
from airflow_kftrain.job_state import GONE, JobState, Phase
from airflow_kftrain.manifests.identity import (
    DELIVERED_ANNOTATION,
    DIGEST_ANNOTATION,
    UNATTENDED_ANNOTATION,
)
from airflow_kftrain.ownership import (
    Claim,
    Course,
    TaskState,
    is_orphan,
    is_superseded,
    may_kill,
    read_claim,
    settle,
)
from tests.unit.nonsense import JSON, spoiled

FIRST = Owner("airflow.example.com", "nightly", "train", "manual__1", "ti-1", 3, 1, 0)
RETRY = FIRST._replace(ti_id="ti-2", try_number=2)
CLEARED = RETRY._replace(clears=1)
LOOPED = FIRST._replace(map_index=-1, region_id="0199b4a0-00aa", region_index=2)
CREATED = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)

CLAIM = Claim("train-1", "uid-1", "42", FIRST, "digest-1", created=CREATED)
LIVING = [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING]
FINAL = [Phase.SUCCEEDED, Phase.FAILED, Phase.GONE]
RUNNING = JobState(Phase.RUNNING)

# Every state of a task instance up to Airflow 3.3, in which "awaiting_input" is new.
ENDED = ["success", "failed", "skipped", "upstream_failed", "removed"]
AT_WORK = [
    "scheduled",
    "queued",
    "running",
    "restarting",
    "up_for_retry",
    "up_for_reschedule",
    "deferred",
    "awaiting_input",
]


def resource(owner: Owner = FIRST, **metadata: Any) -> dict[str, Any]:
    """As the API server has it after a create call."""
    manifest = build_manifest(PyTorchJob(image="img", workers=1), owner=owner, namespace="ml")
    manifest["metadata"] |= {
        "uid": "uid-1",
        "resourceVersion": "42",
        "creationTimestamp": "2026-11-21T12:00:00Z",
        **metadata,
    }
    return manifest


def annotated(**annotations: str) -> Claim:
    job = resource()
    notes = {f"airflow-kftrain/{key.replace('_', '-')}": text for key, text in annotations.items()}
    job["metadata"]["annotations"] |= notes
    return read_claim(job)


def course(claim: Claim, owner: Owner, phase: Phase = Phase.RUNNING, **given: Any) -> Course:
    digest = given.get("digest", "digest-1")
    return settle(claim, JobState(phase), owner, digest, reattach=given.get("reattach", True))


BEFORE, AFTER = CREATED - timedelta(minutes=1), CREATED + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("claim", "owner", "started", "expected"),
    [
        (CLAIM._replace(owner=RETRY), FIRST, BEFORE, True),
        (CLAIM._replace(owner=RETRY), FIRST, AFTER, False),  # of a run that was deleted
        (CLAIM._replace(owner=RETRY), FIRST, None, False),
        (CLAIM._replace(owner=RETRY, created=None), FIRST, BEFORE, False),
        (CLAIM._replace(owner=RETRY), RETRY, BEFORE, False),
        (CLAIM, RETRY, BEFORE, False),
        (CLAIM._replace(owner=RETRY._replace(map_index=4)), FIRST, BEFORE, False),
    ],
)
def test_a_try_is_over_when_a_newer_one_has_a_job(
    claim: Claim, owner: Owner, started: datetime | None, expected: bool
) -> None:
    assert is_superseded(claim, owner, started) is expected


# ----- labels and annotations


@pytest.mark.parametrize("owner", [FIRST, CLEARED, FIRST._replace(map_index=-1), LOOPED])
def test_a_claim_is_what_was_written_on_the_manifest(owner: Owner) -> None:
    job = resource(owner)
    assert read_claim(job) == Claim(
        name=job["metadata"]["name"],
        uid="uid-1",
        resource_version="42",
        owner=owner,
        digest=job["metadata"]["annotations"][DIGEST_ANNOTATION],
        created=CREATED,
    )


def test_the_identity_can_be_told_from_the_annotations_alone() -> None:
    assert read_claim(resource()).owner.identity == FIRST.identity


def test_what_happened_to_a_job_is_read() -> None:
    job = resource(deletionTimestamp="2026-11-21T12:00:05Z")
    job["metadata"]["annotations"] |= {DELIVERED_ANNOTATION: "ti-1", UNATTENDED_ANNOTATION: "true"}
    claim = read_claim(job)
    assert (claim.delivered, claim.unattended, claim.terminating) == (True, True, True)


@pytest.mark.parametrize("text", ["--5", "1.5", "", "٣", "99999999999", "-", "many", "1\n"])
def test_numbers_that_are_none_count_as_not_given(text: str) -> None:
    owner = annotated(map_index=text, **{"try": text}, clears=text, region_index=text).owner
    assert (owner.map_index, owner.try_number, owner.clears) == (-1, 1, 0)
    assert owner.region_index == -1


def test_clears_can_be_negative() -> None:
    """If an author adds retries between two tries, `max_tries - retries` becomes smaller."""
    assert annotated(clears="-2").owner.clears == -2


@given(spoiled(resource()))
def test_any_resource_makes_a_claim(job: Any) -> None:
    claim = read_claim(job)
    assert isinstance(claim.owner.identity, str)
    assert settle(claim, RUNNING, FIRST, "digest-1", reattach=True) in Course


@given(JSON)
def test_a_claim_of_nonsense_gives_no_right_to_anything(nonsense: Any) -> None:
    claim = read_claim({"metadata": nonsense})
    assert course(claim, FIRST) is Course.LEAVE
    assert not may_kill(claim, RUNNING, claim.uid, claim.owner.ti_id)
    assert not is_orphan(claim, RUNNING, TaskState(exists=False))


# ----- a new try and the job of an earlier one


@pytest.mark.parametrize("phase", [*LIVING, Phase.SUCCEEDED])
def test_a_retry_adopts_what_lives_or_has_succeeded_unheard(phase: Phase) -> None:
    assert course(CLAIM, RETRY, phase) is Course.ADOPT


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.GONE])
def test_a_retry_of_a_failure_trains_anew(phase: Phase) -> None:
    assert course(CLAIM, RETRY, phase) is Course.REPLACE


@pytest.mark.parametrize("phase", [*LIVING, *FINAL])
@pytest.mark.parametrize(
    ("claim", "owner", "given"),
    [
        pytest.param(CLAIM, CLEARED, {}, id="cleared"),
        pytest.param(CLAIM, RETRY, {"digest": "digest-2"}, id="the DAG was mended"),
        pytest.param(CLAIM._replace(delivered=True), RETRY, {}, id="its end was told"),
        pytest.param(CLAIM._replace(terminating=True), RETRY, {}, id="it is being deleted"),
        pytest.param(CLAIM, RETRY, {"reattach": False}, id="the author does not want it"),
    ],
)
def test_a_new_try_replaces(
    claim: Claim, owner: Owner, given: dict[str, Any], phase: Phase
) -> None:
    assert course(claim, owner, phase, **given) is Course.REPLACE


@pytest.mark.parametrize("reattach", [True, False])
@pytest.mark.parametrize("phase", [*LIVING, Phase.SUCCEEDED, Phase.FAILED])
def test_a_repeated_create_of_the_same_try_finds_its_own_job(phase: Phase, reattach: bool) -> None:
    """This is not a retry, so `reattach` has no effect on it."""
    assert course(CLAIM, FIRST, phase, reattach=reattach) is Course.ADOPT


@pytest.mark.parametrize("phase", [*LIVING, *FINAL])
def test_after_a_disruption_the_same_try_has_another_job(phase: Phase) -> None:
    again = FIRST._replace(generation=1)
    assert course(CLAIM, again, phase) is Course.REPLACE
    assert course(CLAIM._replace(owner=again), again, phase) is Course.ADOPT
    assert course(CLAIM._replace(owner=again), FIRST, phase) is Course.ADOPT


@pytest.mark.parametrize(
    "claim",
    [CLAIM._replace(terminating=True), CLAIM._replace(delivered=True), CLAIM._replace(digest="")],
)
def test_not_even_its_own_if_it_ends_was_told_or_asks_for_something_else(claim: Claim) -> None:
    assert course(claim, FIRST) is Course.REPLACE


@pytest.mark.parametrize("field", ["instance", "dag_id", "task_id", "run_id", "map_index"])
def test_a_job_of_another_task_instance_is_left_whatever_its_labels(field: str) -> None:
    other = FIRST._replace(**{field: 7 if field == "map_index" else "other"})
    assert course(CLAIM._replace(owner=other), RETRY) is Course.LEAVE


def test_a_job_without_our_annotations_is_left_whatever_its_labels() -> None:
    assert course(read_claim(resource(annotations={})), FIRST) is Course.LEAVE


# ----- ended from outside


@pytest.mark.parametrize("phase", LIVING)
def test_the_owner_may_kill_its_living_job(phase: Phase) -> None:
    assert may_kill(CLAIM, JobState(phase), "uid-1", "ti-1")


@pytest.mark.parametrize("state", [*(JobState(phase) for phase in FINAL), GONE])
def test_nobody_kills_what_has_ended(state: JobState) -> None:
    assert not may_kill(CLAIM, state, "uid-1", "ti-1")


@pytest.mark.parametrize(
    ("claim", "uid", "owner"),
    [
        pytest.param(CLAIM, "uid-1", "ti-2", id="another try"),
        pytest.param(CLAIM, "uid-2", "ti-1", id="another object of that name"),
        pytest.param(CLAIM._replace(terminating=True), "uid-1", "ti-1", id="killed already"),
        pytest.param(CLAIM._replace(owner=RETRY), "uid-1", "ti-1", id="adopted by a newer try"),
        # The order of a sensor has no owner, and neither has a job that somebody else has created.
        pytest.param(read_claim(resource(annotations={})), "uid-1", "", id="nobody's"),
        pytest.param(CLAIM._replace(uid=""), "", "ti-1", id="without a uid"),
    ],
)
def test_nobody_else_may(claim: Claim, uid: str, owner: str) -> None:
    assert not may_kill(claim, RUNNING, uid, owner)


# ----- orphans


@pytest.mark.parametrize("phase", LIVING)
@pytest.mark.parametrize(
    "task", [TaskState(exists=False), *(TaskState(True, state) for state in ENDED)]
)
def test_a_living_job_whose_task_has_ended_or_is_no_more_is_an_orphan(
    task: TaskState, phase: Phase
) -> None:
    assert is_orphan(CLAIM, JobState(phase), task)


@pytest.mark.parametrize("state", [None, *AT_WORK, "a state of Airflow 4"])
def test_a_job_whose_task_is_or_may_be_at_work_is_none(state: str | None) -> None:
    assert not is_orphan(CLAIM, RUNNING, TaskState(True, state))


@pytest.mark.parametrize(
    ("claim", "phase"),
    [
        *((CLAIM, phase) for phase in FINAL),
        (CLAIM._replace(terminating=True), Phase.RUNNING),
        (CLAIM._replace(unattended=True), Phase.RUNNING),
        (CLAIM._replace(owner=FIRST._replace(ti_id="")), Phase.RUNNING),
    ],
)
def test_neither_is_one_that_ended_is_ending_or_was_never_waited_for(
    claim: Claim, phase: Phase
) -> None:
    assert not is_orphan(claim, JobState(phase), TaskState(exists=False))


@given(
    st.sampled_from(list(Phase)),
    st.builds(TaskState, st.booleans(), st.sampled_from([None, *AT_WORK, *ENDED])),
    st.booleans(),
)
def test_no_job_is_an_orphan_and_to_be_adopted_as_finished(
    phase: Phase, task: TaskState, delivered: bool
) -> None:
    """The sweeper never deletes a job whose end a try waits for."""
    claim = CLAIM._replace(delivered=delivered)
    if is_orphan(claim, JobState(phase), task):
        assert phase in LIVING
        assert task.state not in AT_WORK or not task.exists
