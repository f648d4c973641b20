"""monitoring/queues.py: what Kueue says about a job, and what its author is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from airflow_kftrain.job_state import read_state
from airflow_kftrain.kinds import BATCH_JOB, PYTORCH_JOB, TRAIN_JOB, JobKind
from airflow_kftrain.monitoring.queues import (
    QueueState,
    Stage,
    deactivated_words,
    queue_words,
    read_job_uid,
    read_queue_state,
)
from tests.unit.nonsense import spoiled

Conditions = dict[str, tuple[str, str, str]]

SHORT = (
    "couldn't assign flavors to pod set master: insufficient unused quota for cpu, 1 more needed"
)
TOO_MUCH = "insufficient quota for cpu: current podset request (2) > maximum capacity (1)"
PREEMPTED = ("True", "Preempted", "Preempted to accommodate a workload")
WAITING = ("False", "Pending", SHORT)
RESERVED = ("True", "QuotaReserved", "Quota reserved in ClusterQueue cq")
ADMITTED = ("True", "Admitted", "The workload is admitted")
AT_THE_END = ("False", "Finished", "Workload has finished")
DONE = ("True", "Succeeded", "PyTorchJob train is successfully completed.")


def workload(conditions: Conditions, *, active: Any = True, **status: Any) -> dict[str, Any]:
    listed = [
        {"type": name, "status": value, "reason": reason, "message": message}
        for name, (value, reason, message) in conditions.items()
    ]
    return {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"active": active, "queueName": "gpu"},
        "status": {"conditions": listed, **status},
    }


def state_of(kind: JobKind = PYTORCH_JOB, **labels: str) -> Any:
    all_labels = {"kueue.x-k8s.io/queue-name": "gpu"}
    all_labels |= {
        f"kueue.x-k8s.io/{name.replace('_', '-')}": text for name, text in labels.items()
    }
    return read_state(kind, {"metadata": {"labels": all_labels}})


def words(kind: JobKind, seen: Any, **labels: str) -> str:
    queue = seen if isinstance(seen, QueueState) else read_queue_state([seen])
    assert queue is not None
    return queue_words(kind, state_of(kind, **labels), queue)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (workload({}), "The PyTorchJob waits in queue gpu."),
        (workload({"QuotaReserved": WAITING}), f"The PyTorchJob waits in queue gpu: {SHORT}."),
        (
            workload({"QuotaReserved": ("False", "Pending", TOO_MUCH)}),
            f"The PyTorchJob waits in queue gpu: {TOO_MUCH}. Waiting does not help: request less,"
            " or choose another queue.",
        ),
        (
            workload({"QuotaReserved": ("False", "Inadmissible", "LocalQueue gpu doesn't exist")}),
            "Kueue cannot admit the PyTorchJob: LocalQueue gpu doesn't exist. It waits until queue "
            "gpu exists and is active; otherwise correct queue_name.",
        ),
        (
            workload(
                {"QuotaReserved": RESERVED},
                admissionChecks=[
                    {"name": "capacity", "state": "Pending", "message": "no nodes yet"},
                    {"name": "budget", "state": "Ready", "message": "paid"},
                    {"name": "clusters", "state": "Retry"},
                ],
            ),
            "Kueue has reserved quota for the PyTorchJob, which waits for admission checks: "
            "capacity is Pending: no nodes yet; clusters is Retry.",
        ),
        (
            workload({"QuotaReserved": RESERVED, "Admitted": ADMITTED}),
            "Kueue has admitted the PyTorchJob, which is about to start.",
        ),
    ],
    ids=["new", "waits", "never fits", "no such queue", "checks", "admitted"],
)
def test_what_kueue_says_is_told(seen: Any, told: str) -> None:
    assert words(PYTORCH_JOB, seen) == told


EVICTED = "Kueue has evicted the PyTorchJob (Preempted: Preempted to accommodate a workload). "


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (
            workload({"QuotaReserved": RESERVED, "Admitted": ADMITTED, "Evicted": PREEMPTED}),
            "The PyTorchJob waits in queue gpu again.",
        ),
        (
            workload({"QuotaReserved": ("False", "Pending", PREEMPTED[2]), "Evicted": PREEMPTED}),
            "The PyTorchJob waits in queue gpu again.",
        ),
        (
            workload({"QuotaReserved": WAITING, "Evicted": PREEMPTED}),
            f"The PyTorchJob waits in queue gpu again: {SHORT}.",
        ),
        (
            workload(
                {"QuotaReserved": WAITING, "Evicted": PREEMPTED},
                requeueState={"count": 2, "requeueAt": "2026-01-01T00:01:00Z"},
            ),
            f"The PyTorchJob waits in queue gpu again, from 2026-01-01 00:01:00 UTC on: {SHORT}.",
        ),
    ],
    ids=["evicted now", "only evicted", "waits again", "later"],
)
def test_an_eviction_is_told_with_its_reason(seen: Any, told: str) -> None:
    assert words(PYTORCH_JOB, seen) == f"{EVICTED}{told}"


def test_an_eviction_counts_until_the_quota_is_back() -> None:
    back = {"Evicted": ("False", "QuotaReserved", f"Previously: {PREEMPTED[2]}")}
    seen = read_queue_state([workload({"QuotaReserved": RESERVED, "Admitted": ADMITTED, **back})])
    assert seen == QueueState(Stage.ADMITTED, "Admitted", "The workload is admitted")


def test_the_end_is_judged_first() -> None:
    """Then QuotaReserved and Admitted are False, as for a job that waits; and a job that has ended
    may be deactivated."""
    ended = {"QuotaReserved": AT_THE_END, "Admitted": AT_THE_END, "Finished": DONE}
    for active in (True, False):
        seen = read_queue_state([workload(ended, active=active)])
        assert seen is not None
        assert (seen.stage, seen.reason) == (Stage.FINISHED, "Succeeded")


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"QuotaReserved": WAITING}, "Deactivated"),
        (
            {"Evicted": ("True", "Deactivated", "The workload is deactivated")},
            "Deactivated: The workload is deactivated",
        ),
        (
            {"Evicted": ("True", "DeactivatedDueToRequeuingLimitExceeded", "Exceeded the limit.")},
            "DeactivatedDueToRequeuingLimitExceeded: Exceeded the limit",
        ),
        ({"Evicted": PREEMPTED}, "Deactivated"),
    ],
    ids=["never admitted", "by hand", "by Kueue", "evicted before"],
)
def test_a_deactivated_job_is_never_tried_again(conditions: Conditions, said: str) -> None:
    seen = read_queue_state([workload(conditions, active=False)])
    assert seen is not None
    assert seen.stage is Stage.DEACTIVATED
    assert deactivated_words(PYTORCH_JOB, state_of(), seen) == (
        "Kueue no longer tries to run the PyTorchJob of queue gpu, since its Workload was "
        f"deactivated ({said})."
    )


def test_a_job_that_is_activated_again_waits() -> None:
    evicted = ("True", "Deactivated", "The workload is deactivated")
    seen = read_queue_state([workload({"QuotaReserved": WAITING, "Evicted": evicted})])
    assert seen is not None
    assert seen.stage is Stage.WAITS


def test_without_a_workload_the_possible_causes_are_told() -> None:
    absent = QueueState(Stage.ABSENT)
    assert words(TRAIN_JOB, absent) == (
        "The TrainJob is suspended, and waits for queue gpu, but Kueue has not created a Workload "
        "for it: it is not running, or it does not manage TrainJobs."
    )
    assert "TrainJobs, or its priority class urgent does not exist." in words(
        TRAIN_JOB, absent, priority_class="urgent"
    )


def test_what_keeps_us_from_asking_is_told() -> None:
    no_kueue = QueueState(Stage.NO_KUEUE, message="the cluster does not serve Workload")
    assert words(BATCH_JOB, no_kueue) == (
        "The Job is suspended, and waits for queue gpu in a cluster that has no Kueue, so nobody "
        "will start it (the cluster does not serve Workload). Install Kueue, or omit queue_name."
    )
    forbidden = QueueState(Stage.FORBIDDEN, message="airflow may not list workloads.")
    assert words(BATCH_JOB, forbidden) == (
        "The Job waits in queue gpu. It is not known for what: airflow may not list workloads."
    )


def test_the_newest_workload_of_a_job_counts() -> None:
    old, new = workload({"Finished": DONE}), workload({"QuotaReserved": WAITING})
    new["metadata"]["creationTimestamp"] = "2026-01-01T01:00:00Z"
    for both in ([old, new], [new, old]):
        seen = read_queue_state(both)
        assert seen is not None
        assert seen.stage is Stage.WAITS
    assert read_queue_state([]) is None


def test_a_workload_names_its_job() -> None:
    assert read_job_uid({"metadata": {"labels": {"kueue.x-k8s.io/job-uid": "u-1"}}}) == "u-1"
    assert read_job_uid({}) == ""


def test_words_of_others_stay_on_one_line() -> None:
    seen = workload({"QuotaReserved": ("False", "Pending", "a\nb" * 500)})
    assert "\n" not in words(PYTORCH_JOB, seen)
    assert len(words(PYTORCH_JOB, seen)) < 400


FULL = workload(
    {"QuotaReserved": WAITING, "Evicted": PREEMPTED, "Admitted": ADMITTED, "Finished": DONE},
    requeueState={"count": 2, "requeueAt": "2026-01-01T00:01:00Z"},
    admissionChecks=[{"name": "capacity", "state": "Pending", "message": "no nodes yet"}],
)


@given(spoiled(FULL))
def test_nonsense_is_read_and_told(seen: Any) -> None:
    queue = read_queue_state([seen])
    assert queue is not None
    assert queue_words(PYTORCH_JOB, state_of(), queue).startswith(("The PyTorchJob", "Kueue "))
    assert isinstance(read_job_uid(seen if isinstance(seen, dict) else {}), str)
