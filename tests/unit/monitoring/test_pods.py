"""Reading a pod."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.kinds import (
    BATCH_JOB,
    KINDS,
    MPI_JOB_V2,
    PYTORCH_JOB,
    TRAIN_JOB,
    JobKind,
)
from airflow_kftrain.monitoring.pods import Disruption, PodState, TroubleKind, read_pod
from airflow_kftrain.specs.timeouts import Timeouts
from tests.unit.monitoring.samples import (
    LABELS,
    after,
    at,
    container,
    crashing,
    ended,
    is_false,
    is_true,
    pending,
    pod,
    raw_pod,
    running,
    unschedulable,
    waiting,
    worker,
)
from tests.unit.nonsense import JSON, spoiled

JOBSET = "jobset.sigs.k8s.io"
BATCH = "batch.kubernetes.io"


def v1(role: str, index: str) -> dict[str, str]:
    return {f"{LABELS}/replica-type": role, f"{LABELS}/replica-index": index}


def jobset(group: str, index: str) -> dict[str, str]:
    return {f"{JOBSET}/replicatedjob-name": group, f"{BATCH}/job-completion-index": index}


@pytest.mark.parametrize(
    ("kind", "labels", "replica"),
    [
        (PYTORCH_JOB, v1("worker", "3"), "worker-3"),
        (PYTORCH_JOB, v1("master", "0"), "master-0"),
        (PYTORCH_JOB, v1("worker", "x"), "worker"),
        (PYTORCH_JOB, v1("worker", "9" * 5000), "worker"),
        (PYTORCH_JOB, {}, "some-pod"),
        (MPI_JOB_V2, {f"{LABELS}/job-role": "worker", f"{LABELS}/replica-index": "1"}, "worker-1"),
        (MPI_JOB_V2, {f"{LABELS}/job-role": "launcher"}, "launcher"),
        (TRAIN_JOB, jobset("node", "0"), "node-0"),
        (TRAIN_JOB, jobset("dataset-initializer", "0"), "dataset-initializer-0"),
        (BATCH_JOB, {f"{BATCH}/job-completion-index": "2"}, "node-2"),
        (BATCH_JOB, {}, "some-pod"),
    ],
)
def test_a_replica_is_named_by_the_labels_of_its_kind(
    kind: JobKind, labels: dict[str, str], replica: str
) -> None:
    state = read_pod(kind, {"metadata": {"name": "some-pod", "labels": labels}})
    assert state.replica == replica


ROLE = f"{LABELS}/job-role"


@pytest.mark.parametrize(
    ("kind", "labels", "leads"),
    [
        (PYTORCH_JOB, {ROLE: "master"}, True),
        (PYTORCH_JOB, v1("worker", "0"), False),
        (PYTORCH_JOB, {ROLE: ["master"]}, False),
        (MPI_JOB_V2, {ROLE: "launcher"}, True),
        (MPI_JOB_V2, {ROLE: "worker"}, False),
        (TRAIN_JOB, jobset("node", "0"), True),
        (TRAIN_JOB, jobset("launcher", "0"), True),
        (TRAIN_JOB, jobset("node", "1"), False),
        (TRAIN_JOB, jobset("dataset-initializer", "0"), False),
        (TRAIN_JOB, {}, False),
        (BATCH_JOB, {}, True),
    ],
)
def test_the_leader_is_the_pod_that_the_selector_of_its_kind_finds(
    kind: JobKind, labels: dict[str, Any], leads: bool
) -> None:
    assert read_pod(kind, {"metadata": {"labels": labels}}).leads is leads


@pytest.mark.parametrize(
    ("state", "more", "runs"),
    [
        (running(), {}, True),
        (running(), {"deleted": 5}, False),
        (running(), {"phase": "Failed"}, False),
        (waiting("CrashLoopBackOff"), {"phase": "Running"}, False),
        (ended(0), {"phase": "Running"}, False),
    ],
)
def test_a_pod_runs_while_its_main_container_does(
    state: dict[str, Any], more: dict[str, Any], runs: bool
) -> None:
    assert worker(0, state, **more).runs is runs


def test_a_sidecar_that_runs_is_no_training() -> None:
    assert not pod(container(waiting("ErrImagePull")), container(running(), name="proxy")).runs
    assert pod(container(ended(1), name="proxy"), container(running())).runs


def test_every_trouble_has_its_patience() -> None:
    others = {"startup", "operator", "silence", "queue"}
    assert {*others, *get_args(TroubleKind)} == set(Timeouts._fields)


@pytest.mark.parametrize(
    ("reason", "what"),
    [
        ("InvalidImageName", "image_name"),
        ("ErrImagePull", "image_pull"),
        ("ImagePullBackOff", "image_pull"),
        ("ErrImageNeverPull", "image_pull"),
        ("CreateContainerConfigError", "container_config"),
        ("CreateContainerError", "container_create"),
        ("RunContainerError", "container_create"),
        ("CrashLoopBackOff", "crash_loop"),
    ],
)
def test_a_container_that_waits_in_vain_is_in_trouble(reason: str, what: str) -> None:
    (trouble,) = pending(0, reason, "because", since=5).troubles
    assert trouble == (what, reason, "because", after(5), "pytorch", "main", "registry/pytorch:1")


@pytest.mark.parametrize("what", ["secret", "configmap"])
def test_a_kubelet_that_has_yet_to_see_a_secret_is_only_slow(what: str) -> None:
    message = f"failed to sync {what} cache: timed out waiting for the condition"
    (trouble,) = pending(0, "CreateContainerConfigError", message).troubles
    assert trouble.what == "container_create"


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", "SomethingNew", ""])
def test_a_container_that_only_takes_its_time_is_in_no_trouble(reason: str) -> None:
    state = pending(0, reason)
    assert state.troubles == ()
    assert state.waiting == reason


def test_a_pod_that_no_node_takes_is_in_trouble_with_the_words_of_the_scheduler() -> None:
    state = unschedulable(0, "0/3 nodes are available", since=7)
    (trouble,) = state.troubles
    assert trouble[:4] == ("unschedulable", "Unschedulable", "0/3 nodes are available", after(7))
    assert trouble.container == ""
    assert state.waiting == "Unschedulable"


def test_a_pod_behind_a_gate_is_in_no_trouble() -> None:
    state = pod(phase="Pending", conditions=(is_false("PodScheduled", 0, "SchedulingGated"),))
    assert state.troubles == ()
    assert state.waiting == "SchedulingGated"


@pytest.mark.parametrize("more", [{"phase": "Failed"}, {"phase": "Succeeded"}, {"deleted": 5}])
def test_a_pod_that_is_over_waits_for_nothing(more: dict[str, Any]) -> None:
    state = pending(0, "ImagePullBackOff", **more)
    assert state.troubles == ()
    assert state.waiting == ""


def test_the_clock_stands_still_while_pull_errors_take_turns() -> None:
    first = pending(0, "ErrImagePull", "not found", since=5)
    second = pending(0, "ImagePullBackOff", "Back-off pulling image", since=5)
    assert first.troubles[0].since == second.troubles[0].since == after(5)


@pytest.mark.parametrize(
    ("conditions", "seconds"),
    [
        ((is_false("Initialized", 3), is_false("ContainersReady", 5)), 3),
        ((is_true("Initialized", 4), is_false("ContainersReady", 5), is_false("Ready", 6)), 5),
        ((is_false("Ready", 6),), 6),
        ((), 1),
        (({"type": "Ready", "status": "False", "lastTransitionTime": None},), 1),
    ],
)
def test_the_clock_is_that_of_the_first_condition_that_is_not_met_or_of_the_pod(
    conditions: tuple[dict[str, Any], ...], seconds: int
) -> None:
    (trouble,) = pending(0, "ImagePullBackOff", conditions=conditions).troubles
    assert trouble.since == after(seconds)


def test_without_a_start_the_clock_is_that_of_the_creation() -> None:
    state = pending(0, "ImagePullBackOff", conditions=(), startTime=None, created=2)
    assert state.troubles[0].since == after(2)


def test_init_containers_that_took_long_do_not_use_up_the_patience_with_the_next() -> None:
    state = pod(
        container(waiting("ErrImagePull")),
        phase="Pending",
        init=(container(ended(0, 600), name="init-pytorch"),),
        conditions=(is_true("Initialized", 600), is_false("ContainersReady", 0)),
    )
    assert state.troubles[0].since == after(600)


def test_a_container_that_took_long_to_start_does_not_use_up_the_patience_with_the_next() -> None:
    state = pod(
        container(running(600)),
        container(waiting("ErrImagePull"), name="proxy"),
        phase="Pending",
        conditions=(is_false("ContainersReady", 0),),
    )
    assert state.troubles[0].since == after(600)
    assert state.troubles[0].part == "sidecar"


def test_a_neighbour_that_restarts_does_not_move_the_clock() -> None:
    state = pod(
        container(running(600), last=ended(1, 590)),
        container(waiting("ErrImagePull"), name="proxy"),
        phase="Pending",
        conditions=(is_false("ContainersReady", 0),),
    )
    assert state.troubles[0].since == after(0)


def test_a_pull_that_fails_after_a_crash_counts_from_the_crash() -> None:
    state = pending(0, "ImagePullBackOff", last=ended(1, 300), phase="Running")
    assert state.troubles[0].since == after(300)


def test_a_crash_loop_counts_from_the_last_crash() -> None:
    (trouble,) = crashing(0, since=300).troubles
    assert (trouble.what, trouble.since) == ("crash_loop", after(300))
    lost = pending(0, "CrashLoopBackOff", since=7)
    assert lost.troubles[0].since == after(7)


def test_an_init_container_gets_into_trouble_too() -> None:
    state = pod(
        container(waiting("PodInitializing")),
        phase="Pending",
        init=(container(waiting("ImagePullBackOff"), name="init-pytorch"),),
        conditions=(is_false("Initialized", 4), is_false("ContainersReady", 4)),
    )
    (trouble,) = state.troubles
    assert (trouble.container, trouble.part, trouble.since) == ("init-pytorch", "init", after(4))
    assert state.waiting == "PodInitializing"


def test_all_troubles_are_told_since_patience_with_one_may_be_off() -> None:
    state = pod(
        container(waiting("ImagePullBackOff")),
        container(waiting("CreateContainerConfigError"), name="proxy"),
        phase="Pending",
    )
    assert {trouble.what for trouble in state.troubles} == {"image_pull", "container_config"}


def test_the_main_container_is_the_one_that_the_kind_names_or_the_first() -> None:
    statuses = (container(ended(1), name="proxy"), container(ended(2), name="pytorch"))
    assert [end.part for end in pod(*statuses).ends] == ["main", "sidecar"]
    assert pod(*statuses).ends[0].container == "pytorch"
    assert pod(*statuses, kind=MPI_JOB_V2).ends[0].container == "proxy"
    assert pod(*statuses, kind=TRAIN_JOB).ends[0].container == "proxy"
    spec_lost = {**raw_pod(*statuses), "spec": None}
    assert read_pod(PYTORCH_JOB, spec_lost).ends[0].container == "pytorch"


def test_an_init_container_that_runs_beside_the_others_is_a_sidecar() -> None:
    state = pod(
        container(running()),
        init=(container(ended(1), name="init"), container(ended(2), name="proxy")),
        native=("proxy",),
    )
    assert {end.container: end.part for end in state.ends} == {"init": "init", "proxy": "sidecar"}


def test_how_a_container_ended_is_told_in_full() -> None:
    (end,) = worker(0, ended(137, 60, reason="OOMKilled", signal=9, message="last words")).ends
    assert end.failed
    assert end.out_of_memory
    assert end == (
        "pytorch", "main", 137, 9, "OOMKilled", "last words", after(10), after(60), 0, False
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "failed"),
    [
        (ended(0), False),
        (ended(0, reason="OOMKilled"), True),
        (ended(1), True),
        (ended(None, reason="Completed"), False),
        (ended("1"), True),
        (ended(True), True),
    ],
)
def test_an_end_is_a_failure_by_its_code_or_for_want_of_memory(
    state: dict[str, Any], failed: bool
) -> None:
    assert worker(0, state).ends[0].failed is failed


@pytest.mark.parametrize(
    ("state", "past"),
    [
        (waiting("CrashLoopBackOff"), [False]),
        (running(), [True]),
        (ended(0), [False, True]),
        (ended(1), [False, True]),
    ],
)
def test_a_crash_is_past_once_the_container_has_started_again(
    state: dict[str, Any], past: list[bool]
) -> None:
    ends = worker(0, state, last=ended(1, 30), phase="Running").ends
    assert [end.past for end in ends] == past
    assert {end.restarts for end in ends} == {1}


@pytest.mark.parametrize(
    ("status", "disruption"),
    [
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            Disruption("Evicted", "low on memory", after(60)),
        ),
        (
            {
                "phase": "Failed",
                "conditions": (is_true("DisruptionTarget", 40, "PreemptionByScheduler", "by x"),),
            },
            Disruption("PreemptionByScheduler", "by x", after(40)),
        ),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "conditions": (is_true("DisruptionTarget", 40, "TerminationByKubelet"),),
            },
            Disruption("Evicted", "", after(40)),
        ),
        (
            {"conditions": (is_true("DisruptionTarget", 40),)},
            Disruption("DisruptionTarget", "", after(40)),
        ),
        ({"phase": "Running", "reason": "NodeLost"}, Disruption("NodeLost", "", after(60))),
        ({"phase": "Succeeded", "reason": "Evicted"}, None),
        ({"phase": "Pending", "reason": "ProviderBusy"}, None),
        ({"phase": "Failed", "conditions": (is_false("DisruptionTarget", 40),)}, None),
        ({"phase": "Failed"}, None),
    ],
)
def test_what_kubernetes_did_to_the_pod_as_a_whole(
    status: dict[str, Any], disruption: Disruption | None
) -> None:
    assert worker(0, ended(137, 60), **status).disruption == disruption


def test_a_disruption_may_have_no_time() -> None:
    assert worker(0, running(), phase="Failed", reason="Evicted").disruption == (
        "Evicted",
        "",
        None,
    )


def test_a_deletion_counts_from_when_it_was_asked_for() -> None:
    assert worker(0, running(), deleted=100).deleted == after(100)
    raw: dict[str, Any] = {"metadata": {"deletionTimestamp": at(9)}}
    assert read_pod(PYTORCH_JOB, raw).deleted == after(9)
    raw["metadata"]["deletionGracePeriodSeconds"] = 2**62
    assert read_pod(PYTORCH_JOB, raw).deleted == after(9)


SAMPLE = raw_pod(
    container(waiting("ImagePullBackOff", "no"), last=ended(137, 50, message="bye", signal=9)),
    container(ended(1), name="proxy"),
    init=(container(ended(0, 5), name="init"), container(running(), name="mesh")),
    native=("mesh",),
    conditions=(
        is_false("PodScheduled", 1, "Unschedulable", "no room"),
        is_false("Initialized", 2),
        is_false("ContainersReady", 3),
        is_true("DisruptionTarget", 4, "PreemptionByScheduler"),
    ),
    deleted=70,
    reason="Evicted",
    message="low on memory",
)


@given(st.sampled_from(KINDS), st.one_of(JSON, spoiled(SAMPLE)))
def test_nothing_in_a_pod_crashes_the_reader(kind: JobKind, anything: Any) -> None:
    state = read_pod(kind, anything)
    assert isinstance(state, PodState)
    assert isinstance(state.replica, str)
    hash(state)
