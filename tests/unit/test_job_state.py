"""Reading a status. The sequences are those that the real operators write."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.job_state import (
    GONE,
    JobState,
    Phase,
    ReplicaCount,
    Reported,
    read_number,
    read_state,
    read_time,
)
from airflow_kftrain.kinds import (
    BATCH_JOB,
    KINDS,
    MPI_JOB_V1,
    MPI_JOB_V2,
    PADDLE_JOB,
    PYTORCH_JOB,
    TF_JOB,
    TRAIN_JOB,
    JobKind,
)
from tests.unit.nonsense import JSON, TIMES, spoiled

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)

QUEUED, STARTING, RUNNING, RESTARTING, SUCCEEDED, FAILED = (
    Phase.QUEUED,
    Phase.STARTING,
    Phase.RUNNING,
    Phase.RESTARTING,
    Phase.SUCCEEDED,
    Phase.FAILED,
)


def at(seconds: int) -> str:
    return (NOON + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    type_: str, seconds: int, *, status: Any = "True", reason: str = "", message: str = ""
) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": at(seconds),
        "lastTransitionTime": at(seconds),
    }


def off(type_: str, seconds: int, reason: str = "") -> dict[str, Any]:
    return condition(type_, seconds, status="False", reason=reason)


def conditions(*items: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"conditions": list(items), **status}


def resource(status: Any = None, spec: Any = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "train", "creationTimestamp": at(0)},
        "spec": {} if spec is None else spec,
        "status": {} if status is None else status,
    }


def state_of(kind: JobKind, *items: dict[str, Any], **status: Any) -> JobState:
    return read_state(kind, resource(conditions(*items, **status)))


CREATED = condition("Created", 0)
SUSPEND = {"runPolicy": {"suspend": True}}


ZERO = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}


def children(**counts: int) -> dict[str, Any]:
    return {"jobsStatus": [{"name": "node", **ZERO, **counts}]}


def initialized(node: dict[str, int], **initializer: int) -> dict[str, Any]:
    """Child jobs of a TrainJob that fetch data before the training."""
    first = {"name": "dataset-initializer", **ZERO, **initializer}
    return {"jobsStatus": [first, {"name": "node", **ZERO, **node}]}


# Every status in the order in which the operator writes it, each with the phase that a watcher must
# know then, after the earlier ones.
SEQUENCES: dict[str, tuple[JobKind, list[tuple[dict[str, Any], Phase]]]] = {
    "v1 success": (
        PYTORCH_JOB,
        [
            ({}, STARTING),
            (conditions(CREATED), STARTING),
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (
                conditions(
                    CREATED, off("Running", 5), condition("Succeeded", 60), completionTime=at(60)
                ),
                SUCCEEDED,
            ),
        ],
    ),
    "v1 failure": (
        PYTORCH_JOB,
        [
            (conditions(CREATED), STARTING),
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (conditions(CREATED, off("Running", 5), condition("Failed", 60)), FAILED),
        ],
    ),
    "v1 fast job that nobody saw running": (
        PADDLE_JOB,
        [
            (conditions(CREATED), STARTING),
            (conditions(CREATED, condition("Succeeded", 1)), SUCCEEDED),
        ],
    ),
    "v1 job whose Created condition got lost": (
        TF_JOB,
        [
            (conditions(), STARTING),
            (conditions(condition("Running", 5)), RUNNING),
            (conditions(off("Running", 5), condition("Succeeded", 9)), SUCCEEDED),
        ],
    ),
    "v1 restart": (
        PYTORCH_JOB,
        [
            (conditions(CREATED), STARTING),
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (conditions(CREATED, condition("Restarting", 9)), RESTARTING),
            (conditions(CREATED, condition("Running", 12)), RUNNING),
            (conditions(CREATED, condition("Restarting", 20)), RESTARTING),
            (conditions(CREATED, condition("Restarting", 20), condition("Failed", 21)), FAILED),
        ],
    ),
    "v1 restart that stays True beside success": (
        TF_JOB,
        [
            (conditions(CREATED, condition("Restarting", 20)), RESTARTING),
            (
                conditions(CREATED, condition("Restarting", 20), condition("Succeeded", 20)),
                SUCCEEDED,
            ),
        ],
    ),
    "v1 chief succeeds as a worker fails": (
        TF_JOB,
        [
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (
                conditions(
                    CREATED, off("Running", 5), condition("Succeeded", 9), condition("Failed", 9)
                ),
                FAILED,
            ),
        ],
    ),
    "v1 ExitCode failure without completionTime": (
        PYTORCH_JOB,
        [(conditions(CREATED, off("Running", 5), condition("Failed", 60)), FAILED)],
    ),
    "v1 made suspended, as a queue does": (
        PYTORCH_JOB,
        [
            (conditions(CREATED), STARTING),
            (conditions(CREATED, condition("Suspended", 0)), QUEUED),
            (conditions(CREATED, off("Suspended", 99, "PyTorchJobResumed")), STARTING),
            (conditions(CREATED, off("Suspended", 99), condition("Running", 105)), RUNNING),
        ],
    ),
    "v1 preempted while running": (
        PYTORCH_JOB,
        [
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (
                conditions(
                    CREATED,
                    off("Running", 50, "PyTorchJobSuspended"),
                    condition("Suspended", 50),
                ),
                QUEUED,
            ),
            (conditions(CREATED, off("Running", 50), off("Suspended", 99)), STARTING),
            (conditions(CREATED, off("Suspended", 99), condition("Running", 105)), RUNNING),
        ],
    ),
    "v1 preempted and resumed between two looks": (
        PYTORCH_JOB,
        [
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (conditions(CREATED, off("Running", 50), off("Suspended", 99)), STARTING),
        ],
    ),
    "v1 preempted while it restarts, which suspending does not take back": (
        PYTORCH_JOB,
        [
            (conditions(CREATED, condition("Restarting", 1)), RESTARTING),
            (conditions(CREATED, condition("Restarting", 1), condition("Suspended", 5)), QUEUED),
            (conditions(CREATED, condition("Restarting", 1), off("Suspended", 7)), STARTING),
            (conditions(CREATED, off("Suspended", 7), condition("Running", 9)), RUNNING),
            (conditions(CREATED, off("Suspended", 7), condition("Restarting", 11)), RESTARTING),
        ],
    ),
    "MPI v1 failure with its reason written twice": (
        MPI_JOB_V1,
        [
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (
                conditions(
                    CREATED, off("Running", 5), condition("Failed", 9, reason="MPIJobMPIJobFailed")
                ),
                FAILED,
            ),
        ],
    ),
    "MPI v2 launcher that ends before Running was ever True": (
        MPI_JOB_V2,
        [
            (conditions(CREATED), STARTING),
            (
                conditions(
                    CREATED, condition("Succeeded", 3), off("Running", 3), completionTime=at(3)
                ),
                SUCCEEDED,
            ),
        ],
    ),
    "MPI v2 eviction that is not the end": (
        MPI_JOB_V2,
        [
            (conditions(CREATED, condition("Running", 5)), RUNNING),
            (
                conditions(
                    CREATED, off("Running", 5), condition("Failed", 30, reason="MPIJobEvicted")
                ),
                RESTARTING,
            ),
            (
                conditions(
                    CREATED,
                    off("Running", 5),
                    off("Failed", 30),
                    condition("Succeeded", 90),
                    completionTime=at(90),
                ),
                SUCCEEDED,
            ),
        ],
    ),
    "MPI v2 eviction that ends in failure": (
        MPI_JOB_V2,
        [
            (
                conditions(
                    CREATED, off("Running", 5), condition("Failed", 30, reason="MPIJobEvicted")
                ),
                RESTARTING,
            ),
            (
                conditions(
                    CREATED,
                    off("Running", 5),
                    condition("Failed", 30, reason="BackoffLimitExceeded/"),
                    completionTime=at(99),
                ),
                FAILED,
            ),
        ],
    ),
    "MPI v2 suspended and resumed": (
        MPI_JOB_V2,
        [
            (
                conditions(
                    CREATED, condition("Suspended", 0), off("Running", 0, "MPIJobSuspended")
                ),
                QUEUED,
            ),
            (conditions(CREATED, off("Running", 0), off("Suspended", 40)), STARTING),
            (conditions(CREATED, off("Suspended", 40), condition("Running", 45)), RUNNING),
        ],
    ),
    "TrainJob success": (
        TRAIN_JOB,
        [
            ({}, STARTING),
            (children(active=1), STARTING),
            (children(active=1, ready=1), RUNNING),
            (children(), RUNNING),
            (
                conditions(
                    condition("Complete", 60, reason="AllJobsCompleted"), **children(succeeded=1)
                ),
                SUCCEEDED,
            ),
        ],
    ),
    "TrainJob failure, all counts zero just before": (
        TRAIN_JOB,
        [
            (children(active=1, ready=1), RUNNING),
            (children(), RUNNING),
            (
                conditions(condition("Failed", 60, reason="FailedJobs"), **children(failed=1)),
                FAILED,
            ),
        ],
    ),
    "TrainJob past its deadline, active stays 1": (
        TRAIN_JOB,
        [
            (children(active=1, ready=1), RUNNING),
            (
                conditions(
                    condition("Failed", 60, reason="DeadlineExceeded"), **children(active=1)
                ),
                FAILED,
            ),
        ],
    ),
    "TrainJob suspended and resumed": (
        TRAIN_JOB,
        [
            (
                conditions(condition("Suspended", 0, reason="Suspended"), **children(suspended=1)),
                QUEUED,
            ),
            (conditions(off("Suspended", 40, "Resumed"), **children(active=1)), STARTING),
            (conditions(off("Suspended", 40, "Resumed"), **children(active=1, ready=1)), RUNNING),
        ],
    ),
    "TrainJob whose job restarts": (
        TRAIN_JOB,
        [
            (children(active=1), STARTING),
            (children(failed=1), RUNNING),
            (children(active=1), RUNNING),
        ],
    ),
    "TrainJob with an initializer, which is no training": (
        TRAIN_JOB,
        [
            (initialized({}, active=1), STARTING),
            (initialized({}, active=1, ready=1), STARTING),
            (initialized({}, succeeded=1), STARTING),
            (initialized({"active": 1}, succeeded=1), STARTING),
            (initialized({"active": 1, "ready": 1}, succeeded=1), RUNNING),
        ],
    ),
    "TrainJob whose initializer fails": (
        TRAIN_JOB,
        [
            (initialized({}, failed=1), STARTING),
            (conditions(condition("Failed", 9), **initialized({}, failed=1)), FAILED),
        ],
    ),
    "batch Job success": (
        BATCH_JOB,
        [
            ({}, STARTING),
            ({"active": 1, "ready": 0, "startTime": at(0)}, STARTING),
            ({"active": 1, "ready": 1, "startTime": at(0)}, RUNNING),
            ({"active": 0, "ready": 0, "uncountedTerminatedPods": {"succeeded": ["u"]}}, RUNNING),
            (conditions(condition("SuccessCriteriaMet", 9), succeeded=1), RUNNING),
            (conditions(condition("Complete", 9), succeeded=1, completionTime=at(9)), SUCCEEDED),
        ],
    ),
    "batch Job failure": (
        BATCH_JOB,
        [
            ({"active": 1, "ready": 1}, RUNNING),
            (conditions(condition("FailureTarget", 9), failed=1), RUNNING),
            (conditions(condition("Failed", 9, reason="BackoffLimitExceeded"), failed=1), FAILED),
        ],
    ),
    "batch Job seen first while a pod is replaced": (
        BATCH_JOB,
        [({"active": 1, "ready": 0, "failed": 1}, RUNNING)],
    ),
    "batch Job suspended and resumed": (
        BATCH_JOB,
        [
            (conditions(condition("Suspended", 0, reason="JobSuspended")), QUEUED),
            (conditions(off("Suspended", 40, "JobResumed"), active=1, ready=0), STARTING),
            (conditions(off("Suspended", 40, "JobResumed"), active=1, ready=1), RUNNING),
        ],
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_each_step_of_a_real_sequence_gives_its_phase(name: str) -> None:
    kind, steps = SEQUENCES[name]
    state = None
    for status, phase in steps:
        state = read_state(kind, resource(status)).after(state)
        assert state.phase is phase


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_step_may_be_missed(name: str) -> None:
    kind, steps = SEQUENCES[name]
    for (first, _), (last, phase) in itertools.combinations(steps, 2):
        seen = read_state(kind, resource(last)).after(read_state(kind, resource(first)))
        # What only memory can know is lost with the step that showed it.
        alone = read_state(kind, resource(last)).phase
        assert seen.phase in {phase, alone}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.version}")
@pytest.mark.parametrize("final", ["Failed", "Success"])
def test_a_final_state_stays_when_the_object_is_deleted(kind: JobKind, final: str) -> None:
    type_ = "Failed" if final == "Failed" else kind.status.succeeded
    ended = state_of(kind, condition(type_, 9), completionTime=at(9))
    assert ended.phase is (FAILED if final == "Failed" else SUCCEEDED)
    assert GONE.after(ended) == ended


def test_a_job_that_was_not_final_is_gone_when_it_is_deleted() -> None:
    assert GONE.after(state_of(PYTORCH_JOB, CREATED)).phase is Phase.GONE
    assert GONE.after(None).phase is Phase.GONE
    assert Phase.GONE.is_final


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        (PYTORCH_JOB, [condition("Created", 5), condition("Running", 5)]),
        (PYTORCH_JOB, [condition("Created", 5), condition("Restarting", 5)]),
        (PYTORCH_JOB, [condition("Created", 5), condition("Suspended", 5)]),
        (TF_JOB, [condition("Running", 5), condition("Failed", 5), condition("Succeeded", 5)]),
        (MPI_JOB_V2, [condition("Created", 5), condition("Running", 5), condition("Failed", 5)]),
        (PYTORCH_JOB, [condition("Failed", 5, reason="A"), condition("Failed", 5, reason="B")]),
        (
            PYTORCH_JOB,
            [
                {"type": "Failed", "status": "True", "lastTransitionTime": "0001-01-01T00:00:00Z"},
                {"type": "Failed", "status": "True"},
            ],
        ),
        (
            PYTORCH_JOB,
            [condition("Restarting", 5), off("Suspended", 5), condition("Created", 5)],
        ),
    ],
)
def test_of_conditions_with_one_time_the_order_does_not_matter(
    kind: JobKind, items: list[dict[str, Any]]
) -> None:
    orders = itertools.permutations(items)
    assert len({state_of(kind, *order) for order in orders}) == 1


@given(st.permutations([CREATED, condition("Running", 5), condition("Suspended", 7)]))
def test_the_newest_condition_decides_wherever_it_stands(items: list[dict[str, Any]]) -> None:
    assert state_of(PYTORCH_JOB, *items).phase is QUEUED


@pytest.mark.parametrize("status", ["False", "Unknown", True, 1, None, "true", ["True"]])
@pytest.mark.parametrize("type_", ["Running", "Succeeded", "Failed", "Suspended", "Restarting"])
def test_a_condition_whose_status_is_not_true_says_nothing(type_: str, status: Any) -> None:
    state = state_of(PYTORCH_JOB, CREATED, condition(type_, 5, status=status))
    assert state.phase is STARTING


@pytest.mark.parametrize("type_", ["Paused", "", None, 7, ["Failed"], {"Failed": 1}])
def test_an_unknown_condition_is_passed_over(type_: Any) -> None:
    assert state_of(PYTORCH_JOB, CREATED, condition(type_, 5)).phase is STARTING


def test_a_condition_without_its_time_is_the_oldest() -> None:
    timeless = {"type": "Running", "status": "True"}
    assert state_of(PYTORCH_JOB, timeless, condition("Suspended", 0)).phase is QUEUED
    assert state_of(PYTORCH_JOB, timeless).phase is RUNNING


@pytest.mark.parametrize(
    ("seconds", "phase"), [(None, STARTING), (6, STARTING), (7, RESTARTING), (8, RESTARTING)]
)
def test_what_was_said_before_the_last_resume_is_over(seconds: int | None, phase: Phase) -> None:
    said = condition("Restarting", seconds or 0)
    if seconds is None:
        del said["lastTransitionTime"], said["lastUpdateTime"]
    assert state_of(PYTORCH_JOB, CREATED, said, off("Suspended", 7)).phase is phase


def test_a_restart_has_its_own_clock() -> None:
    restarts = state_of(PYTORCH_JOB, CREATED, condition("Restarting", 50))
    assert restarts.restarting_since == NOON + timedelta(seconds=50)
    assert restarts.starting_since == NOON
    evicted = state_of(MPI_JOB_V2, CREATED, condition("Failed", 60, reason="MPIJobEvicted"))
    assert evicted.restarting_since == NOON + timedelta(seconds=60)
    runs = state_of(PYTORCH_JOB, CREATED, condition("Running", 70))
    assert runs.restarting_since is None


def test_a_restart_that_the_status_no_longer_tells_keeps_its_clock() -> None:
    evicted = state_of(MPI_JOB_V2, CREATED, condition("Failed", 60, reason="MPIJobEvicted"))
    silent = state_of(MPI_JOB_V2, CREATED, off("Failed", 60)).after(evicted)
    assert (silent.phase, silent.restarting_since) == (RESTARTING, evicted.restarting_since)


def test_a_failure_of_an_mpi_job_needs_its_completion_time() -> None:
    failed = condition("Failed", 9, reason="MPIJobFailed", message="it failed")
    assert state_of(MPI_JOB_V2, failed).phase is RESTARTING
    ended = state_of(MPI_JOB_V2, failed, completionTime=at(10))
    assert ended.phase is FAILED
    assert ended.finished == NOON + timedelta(seconds=10)
    assert (ended.reason, ended.message) == ("MPIJobFailed", "it failed")


def test_the_end_of_a_failure_without_completion_time_is_that_of_its_condition() -> None:
    assert state_of(PYTORCH_JOB, condition("Failed", 9)).finished == NOON + timedelta(seconds=9)
    assert state_of(PYTORCH_JOB, CREATED).finished is None


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (PYTORCH_JOB, SUSPEND),
        (MPI_JOB_V2, SUSPEND),
        (TRAIN_JOB, {"suspend": True}),
        (BATCH_JOB, {"suspend": True}),
    ],
)
def test_a_job_that_a_queue_suspended_at_admission_is_queued_before_any_status(
    kind: JobKind, spec: dict[str, Any]
) -> None:
    assert read_state(kind, resource({}, spec)).phase is QUEUED
    assert read_state(kind, resource(conditions(CREATED), spec)).phase is QUEUED


def test_a_job_that_still_runs_is_not_queued_yet() -> None:
    running = conditions(CREATED, condition("Running", 5))
    assert read_state(PYTORCH_JOB, resource(running, SUSPEND)).phase is RUNNING
    assert read_state(TRAIN_JOB, resource(children(ready=1), {"suspend": True})).phase is RUNNING


def test_a_queued_job_says_since_when_and_in_which_queue() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpu", "kueue.x-k8s.io/priority-class": "urgent"}
    job = resource({}, SUSPEND)
    job["metadata"]["labels"] = labels
    new = read_state(PYTORCH_JOB, job)
    assert (new.queue, new.queue_priority, new.queued_since) == ("gpu", "urgent", NOON)
    job["status"] = conditions(CREATED, condition("Running", 5), condition("Suspended", 9))
    assert read_state(PYTORCH_JOB, job).queued_since == NOON + timedelta(seconds=9)
    job["status"] = conditions(CREATED, condition("Running", 5))
    running = read_state(PYTORCH_JOB, job)
    assert (running.queue, running.queued_since) == ("gpu", None)


@pytest.mark.parametrize("nonsense", ["true", 1, None, [], {}])
def test_only_true_suspends(nonsense: Any) -> None:
    assert read_state(TRAIN_JOB, resource({}, {"suspend": nonsense})).phase is STARTING


def test_the_clock_of_the_start_begins_anew_at_the_last_resume() -> None:
    assert read_state(PYTORCH_JOB, resource()).starting_since == NOON
    queued = state_of(PYTORCH_JOB, CREATED, condition("Suspended", 30))
    assert queued.starting_since == NOON
    resumed = state_of(PYTORCH_JOB, CREATED, off("Suspended", 90))
    assert resumed.starting_since == NOON + timedelta(seconds=90)


@pytest.mark.parametrize(
    ("kind", "spec", "status", "seconds"),
    [
        (PYTORCH_JOB, {"runPolicy": {"activeDeadlineSeconds": 60}}, {"startTime": at(5)}, 65),
        (PYTORCH_JOB, {"runPolicy": {"activeDeadlineSeconds": 60}}, {}, 60),
        (TRAIN_JOB, {"activeDeadlineSeconds": 60}, conditions(off("Suspended", 30)), 90),
        (BATCH_JOB, {"activeDeadlineSeconds": 0}, {"startTime": at(5)}, 5),
        (BATCH_JOB, {"activeDeadlineSeconds": 60}, conditions(condition("Suspended", 3)), None),
        (BATCH_JOB, {"activeDeadlineSeconds": True}, {}, None),
        (BATCH_JOB, {"activeDeadlineSeconds": "60"}, {}, None),
        (BATCH_JOB, {"activeDeadlineSeconds": 2**62}, {}, None),
        (BATCH_JOB, {"activeDeadlineSeconds": 10**400}, {}, None),
        (BATCH_JOB, {}, {}, None),
    ],
)
def test_the_active_deadline_counts_from_the_start(
    kind: JobKind, spec: dict[str, Any], status: dict[str, Any], seconds: int | None
) -> None:
    deadline = read_state(kind, resource(status, spec)).deadline
    assert deadline == (None if seconds is None else NOON + timedelta(seconds=seconds))


def test_a_deadline_needs_a_start() -> None:
    spec = {"activeDeadlineSeconds": 60}
    assert read_state(BATCH_JOB, {"spec": spec}).deadline is None


@pytest.mark.parametrize(
    ("kind", "spec", "heals", "counted"),
    [
        (PYTORCH_JOB, {}, False, False),
        (PYTORCH_JOB, {"runPolicy": {"backoffLimit": 0}}, False, True),
        (PYTORCH_JOB, {"runPolicy": {"backoffLimit": True}}, False, False),
        (PYTORCH_JOB, {"elasticPolicy": {"maxReplicas": 4}}, True, False),
        (PYTORCH_JOB, {"elasticPolicy": {}}, True, False),
        (PYTORCH_JOB, {"elasticPolicy": {}, "runPolicy": {"backoffLimit": 3}}, True, True),
        (PYTORCH_JOB, {"elasticPolicy": None}, False, False),
        (TF_JOB, {"": {"a": 1}, "elasticPolicy": {"maxReplicas": 4}}, False, False),
        (MPI_JOB_V1, {}, False, False),
        (MPI_JOB_V2, {}, False, True),
        (TRAIN_JOB, {}, False, True),
        (BATCH_JOB, {}, False, True),
    ],
)
def test_who_judges_the_failing_pods(
    kind: JobKind, spec: dict[str, Any], heals: bool, counted: bool
) -> None:
    state = read_state(kind, resource({}, spec))
    assert (state.self_healing, state.restarts_counted) == (heals, counted)


@pytest.mark.parametrize(
    ("status", "acknowledged"),
    [
        ({}, False),
        (None, False),
        ("text", False),
        ({"conditions": None, "replicaStatuses": None}, False),
        (conditions(CREATED), True),
        ({"startTime": at(0)}, True),
    ],
)
def test_an_operator_that_wrote_nothing_has_not_acknowledged(
    status: Any, acknowledged: bool
) -> None:
    assert read_state(PYTORCH_JOB, {"status": status}).acknowledged is acknowledged


def test_replica_counts_are_read_for_show() -> None:
    v1 = {"replicaStatuses": {"Master": {"active": 1}, "Worker": {"failed": 1, "succeeded": 2}}}
    assert read_state(PYTORCH_JOB, resource(v1)).replicas == (
        ReplicaCount("Master", active=1),
        ReplicaCount("Worker", succeeded=2, failed=1),
    )
    assert read_state(TRAIN_JOB, resource(children(active=1))).replicas == (
        ReplicaCount("node", active=1),
    )
    assert read_state(BATCH_JOB, resource({"active": 2})).replicas == (
        ReplicaCount("node", active=2),
    )
    assert read_state(BATCH_JOB, resource()).replicas == ()
    lied = {"replicaStatuses": {"Worker": {"active": True, "failed": "3", "succeeded": None}}}
    assert read_state(PYTORCH_JOB, resource(lied)).replicas == (ReplicaCount("Worker"),)


@pytest.mark.parametrize(
    ("value", "percent"),
    [(0, 0), (42, 42), (100, 100), (101, None), (-1, None), ("42", None), (True, None)],
)
def test_progress_is_a_percentage_or_nothing(value: Any, percent: int | None) -> None:
    status = {"trainerStatus": {"progressPercentage": value}}
    reported = None if percent is None else Reported(percent)
    assert read_state(TRAIN_JOB, resource(status)).progress == reported


def test_a_trainer_may_report_more() -> None:
    metrics = [{"name": "loss", "value": "0.4"}, {"name": None}, "nonsense"]
    said = {"progressPercentage": 7, "estimatedRemainingSeconds": 60, "metrics": metrics}
    state = read_state(TRAIN_JOB, resource({"trainerStatus": said}))
    assert state.progress == Reported(7, 60, (("loss", "0.4"), ("", "")))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-21T12:00:00Z", NOON),
        ("2026-11-21T14:00:00+02:00", NOON),
        ("2026-11-21T12:00:00.000001Z", NOON + timedelta(microseconds=1)),
        ("2026-11-21T12:00:00", NOON),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1700000000, None),
    ],
)
def test_a_time_is_read_in_utc(text: Any, time: datetime | None) -> None:
    assert read_time(text) == time


@pytest.mark.parametrize("nonsense", [True, False, None, "1", 1.0, 2**63, -(2**63) - 1, [1]])
def test_what_is_no_number_of_kubernetes_is_none(nonsense: Any) -> None:
    assert read_number(nonsense) is None


@given(st.sampled_from(KINDS), JSON)
def test_any_json_is_a_job_that_starts(kind: JobKind, anything: Any) -> None:
    assert read_state(kind, anything).phase is STARTING


SAMPLE = {
    "metadata": {"creationTimestamp": at(0)},
    "spec": {
        "suspend": False,
        "activeDeadlineSeconds": 60,
        "runPolicy": {"suspend": False, "activeDeadlineSeconds": 60, "backoffLimit": 3},
        "elasticPolicy": {"maxReplicas": 2},
    },
    "status": conditions(
        CREATED,
        condition("Running", 5),
        off("Suspended", 3),
        condition("Restarting", 7),
        condition("Complete", 9),
        condition("Succeeded", 9),
        condition("Failed", 9),
        startTime=at(1),
        completionTime=at(9),
        replicaStatuses={"Worker": {"active": 1}},
        trainerStatus={
            "progressPercentage": 5,
            "estimatedRemainingSeconds": 9,
            "metrics": [{"name": "loss", "value": "1"}],
        },
        ready=1,
        **children(active=1),
    ),
}


@given(st.sampled_from(KINDS), spoiled(SAMPLE))
def test_nothing_in_a_resource_crashes_the_reader(kind: JobKind, anything: Any) -> None:
    state = read_state(kind, anything)
    assert isinstance(state.phase, Phase)
    hash(state)


CONDITIONS = st.builds(
    lambda type_, time, status: {"type": type_, "lastTransitionTime": time, "status": status},
    st.sampled_from(
        ["Created", "Running", "Restarting", "Suspended", "Failed", "Succeeded", "Complete"]
    ),
    st.sampled_from([*TIMES, at(1), at(2), at(3)]),
    st.sampled_from(["True", "False", "Unknown"]),
)
STATUSES = st.builds(
    lambda items, counts, done: {**conditions(*items), **children(**counts), **done},
    st.lists(CONDITIONS, max_size=4),
    st.sampled_from([{}, {"active": 1}, {"ready": 1}, {"failed": 1}]),
    st.sampled_from([{}, {"completionTime": at(3)}, {"ready": 1}]),
)


@given(st.sampled_from(KINDS), st.lists(STATUSES, max_size=6))
def test_phases_never_step_back(kind: JobKind, statuses: list[dict[str, Any]]) -> None:
    previous: JobState | None = None
    for status in statuses:
        state = read_state(kind, resource(status)).after(previous)
        if previous and previous.phase.is_final:
            assert state == previous
        elif previous and previous.phase in (RUNNING, RESTARTING) and state.phase is STARTING:
            assert previous.starting_since is not None
            assert state.starting_since is not None
            assert state.starting_since > previous.starting_since
        previous = state


@given(st.sampled_from(KINDS), st.data())
def test_the_order_of_conditions_never_matters(kind: JobKind, data: st.DataObject) -> None:
    items = data.draw(st.lists(CONDITIONS, max_size=5))
    shuffled = data.draw(st.permutations(items))
    assert state_of(kind, *items) == state_of(kind, *shuffled)
