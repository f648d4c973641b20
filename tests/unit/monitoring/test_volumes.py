"""Why a pod is still being created, by its events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.job_state import Phase
from airflow_kftrain.kinds import KINDS, PYTORCH_JOB, JobKind
from airflow_kftrain.monitoring.decisions import Decision, Verdict, decide, judge
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.report import write_report
from airflow_kftrain.monitoring.volumes import find_volume_troubles, with_troubles
from airflow_kftrain.specs.timeouts import Timeouts
from tests.unit.monitoring import test_pods
from tests.unit.monitoring.samples import (
    NOON,
    after,
    at,
    container,
    ended,
    is_false,
    is_true,
    job,
    pod,
    running,
    unschedulable,
    waiting,
)
from tests.unit.monitoring.test_report import EVENT
from tests.unit.nonsense import JSON, spoiled

MINUTE = timedelta(minutes=1)
SCHEDULED = is_true("PodScheduled", 1)
NO_SECRET = 'MountVolume.SetUp failed for volume "data" : secret "no" not found'
NO_DRIVER = 'MountVolume.SetUp failed for volume "data" : rpc error: code = Internal'
SUMMARY = (
    "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
    "failed to process volumes=[]: timed out waiting for the condition"
)


def creating(*more: dict[str, Any], reason: str = "ContainerCreating", **fields: Any) -> PodState:
    state = container(waiting(reason))
    return pod(state, phase="Pending", conditions=(SCHEDULED, *more), **fields)


def told(
    reason: str, message: str = "", first: int = 2, last: int = 60, name: str = "train-worker-0"
) -> dict[str, Any]:
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": "Pod", "name": name},
        "firstTimestamp": at(first),
        "lastTimestamp": at(last),
    }


def seen(*events: dict[str, Any], of: PodState | None = None) -> PodState:
    pods = [of or creating()]
    (found,) = with_troubles(pods, find_volume_troubles(pods, events))
    return found


def decided(found: PodState, seconds: float, **timeouts: Any) -> Decision:
    state = job(Phase.STARTING)
    return decide(PYTORCH_JOB, state, [found], Timeouts(**timeouts), after(seconds))


@pytest.mark.parametrize(
    ("found", "mounts"),
    [
        (creating(), True),
        (creating(reason="PodInitializing"), True),
        (creating(is_false("PodReadyToStartContainers", 1)), True),
        (creating(is_true("PodReadyToStartContainers", 5)), False),
        (creating(reason="ImagePullBackOff"), False),
        (creating(deleted=3), False),
        (pod(container(running()), conditions=(SCHEDULED,)), False),
        (unschedulable(0), False),
        (
            creating(init=(container(running(), name="init"),), reason="PodInitializing"),
            False,
        ),
        (
            creating(init=(container(ended(0), name="init"),), reason="PodInitializing"),
            False,
        ),
    ],
)
def test_a_pod_mounts_its_volumes_from_its_placing_to_its_first_container(
    found: PodState, mounts: bool
) -> None:
    assert found.mounts_since == (after(1) if mounts else None)


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (NO_SECRET, "volume_name"),
        ('MountVolume.SetUp failed for volume "c" : configmap "no" not found', "volume_name"),
        ('failed to fetch PVC: persistentvolumeclaims "no" not found', "volume_name"),
        ("references non-existent secret key: pw", "volume_name"),
        ("references non-existent config key: k", "volume_name"),
        (NO_DRIVER, "volume"),
        (SUMMARY, "volume"),
        ('object "ml"/"s" not registered', "volume"),
    ],
)
def test_what_names_a_missing_object_is_told_from_all_else(message: str, what: str) -> None:
    (trouble,) = seen(told("FailedMount", message)).troubles
    assert (trouble.what, trouble.reason) == (what, "FailedMount")
    assert (trouble.message, trouble.since) == (message, after(2))


def test_of_several_events_the_one_that_says_most_counts_in_any_order() -> None:
    events = [
        told("FailedMount", SUMMARY, first=1),
        told("FailedAttachVolume", NO_DRIVER, first=3),
        told("FailedMount", NO_SECRET, first=9),
    ]
    assert seen(*events) == seen(*events[::-1])
    assert seen(*events).troubles[0].message == NO_SECRET
    assert seen(*events[:2]).troubles[0].message == NO_DRIVER


def test_volumes_that_are_mounted_after_all_are_no_trouble_any_more() -> None:
    failed = told("FailedMount", NO_SECRET, last=60)
    assert seen(failed, told("Pulling", "Pulling image", last=59)).troubles
    assert not seen(failed, told("Pulling", "Pulling image", last=60)).troubles
    assert not seen(failed, of=pod(container(running()), conditions=(SCHEDULED,))).troubles


def test_events_of_others_and_of_an_earlier_pod_of_that_name_are_passed_over() -> None:
    assert not seen(told("FailedMount", NO_SECRET, name="train-worker-1")).troubles
    assert not seen(told("FailedScheduling", NO_SECRET)).troubles
    assert not seen(told("FailedMount", NO_SECRET, last=60), of=creating(created=70)).troubles


def test_a_missing_claim_is_told_by_the_scheduler() -> None:
    (trouble,) = unschedulable(
        0, '0/1 nodes are available: persistentvolumeclaim "no" not found.'
    ).troubles
    assert trouble.what == "volume_name"


def test_a_missing_name_ends_the_job_and_all_else_does_not() -> None:
    missing = seen(told("FailedMount", NO_SECRET))
    assert decided(missing, 181).until == after(182)
    decision = decided(missing, 182)
    assert decision[:2] == (Verdict.FAILED, "FailedMount")
    assert (decision.fault, decision.retryable) == (Fault.USER, False)
    assert decision.words.startswith(
        f"worker-0 could not mount a volume: FailedMount: {NO_SECRET}. Create the Secret"
    )
    slow = seen(told("FailedMount", NO_DRIVER))
    assert decided(slow, 1799).verdict is Verdict.WAIT
    assert decided(slow, 62, volume=MINUTE).verdict is Verdict.FAILED


def test_a_volume_is_the_headline_of_whatever_limit_is_up_and_nobody_is_blamed() -> None:
    slow = seen(told("FailedMount", NO_DRIVER))
    opening = f"worker-0 could not mount a volume: FailedMount: {NO_DRIVER}."
    late = decided(slow, 1800)
    timed_out = decide(PYTORCH_JOB, job(Phase.STARTING), [slow], Timeouts(), after(100), after(100))
    for decision, reason in ((late, "StartupTimeout"), (timed_out, "ExecutionTimeout")):
        assert decision.reason == reason
        assert decision.words.startswith(opening)
        assert decision.fault is None
        report = write_report(PYTORCH_JOB, job(Phase.STARTING), [slow], decision=decision)
        assert report.startswith(opening)
        assert "shorter" not in report
        assert "cause lies in the cluster" not in report


def test_a_job_that_waits_for_a_volume_says_so() -> None:
    words = judge(PYTORCH_JOB, job(Phase.STARTING), [seen(told("FailedMount", NO_SECRET))]).words
    assert words == (
        f"0 of 1 pods of the PyTorchJob run; worker-0: cannot mount a volume: {NO_SECRET}."
    )


@given(
    st.sampled_from(KINDS),
    st.lists(spoiled(test_pods.SAMPLE), max_size=3),
    st.lists(st.one_of(JSON, spoiled(EVENT), spoiled(told("FailedMount", SUMMARY))), max_size=3),
)
def test_nothing_that_was_read_crashes_it(kind: JobKind, raw: list[Any], events: list[Any]) -> None:
    pods = [read_pod(kind, item) for item in raw]
    found = find_volume_troubles(pods, events)
    once = with_troubles(pods, found)
    assert with_troubles(once, found) == once
    decide(kind, job(Phase.STARTING), once, Timeouts(), NOON)
