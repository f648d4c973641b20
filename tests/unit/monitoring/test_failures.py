"""Which failure is the cause, and how it is described."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.kinds import BATCH_JOB, KINDS, MPI_JOB_V2, JobKind
from airflow_kftrain.monitoring.failures import (
    Failure,
    Fault,
    Weight,
    find_cause,
    find_disruption,
    find_failures,
)
from airflow_kftrain.monitoring.pods import PodState, read_pod
from tests.unit.monitoring.samples import (
    after,
    container,
    crashing,
    ended,
    is_true,
    pod,
    raw_pod,
    running,
    waiting,
    worker,
)
from tests.unit.monitoring.test_pods import SAMPLE
from tests.unit.nonsense import JSON, spoiled


def cause_of(*pods: PodState) -> Failure:
    """The cause, which must not depend on the order of the pods."""
    causes = {find_cause(order) for order in itertools.permutations(pods)}
    assert len(causes) == 1
    cause = causes.pop()
    assert cause is not None
    return cause


def test_the_earliest_end_among_all_replicas_is_the_cause() -> None:
    cause = cause_of(worker(0, ended(1, 61)), worker(1, ended(1, 60)), worker(2, ended(139, 62)))
    assert (cause.replica, cause.pod, cause.container) == ("worker-1", "train-worker-1", "pytorch")
    assert cause.finished == after(60)


@pytest.mark.parametrize(
    "sibling",
    [
        worker(0, ended(143, 50)),
        worker(0, ended(1, 50, signal=15)),
        worker(0, ended(1, 50, message="api.SignalException: Process 26 got signal: 15\n")),
        worker(0, ended(1, 50), deleted=49),
        worker(0, ended(0, 50)),
        worker(0, running()),
    ],
    ids=["143", "signal", "torchrun", "deleted", "success", "running"],
)
def test_a_sibling_that_was_ended_is_set_aside(sibling: PodState) -> None:
    assert cause_of(sibling, worker(1, ended(1, 60))).replica == "worker-1"


def test_a_sibling_that_was_ended_is_told_where_nothing_else_is() -> None:
    cause = cause_of(worker(0, ended(143, 50)), worker(1, ended(143, 49)))
    assert (cause.replica, cause.weight) == ("worker-1", Weight.CONSEQUENCE)
    assert cause.fault is Fault.SYSTEM


@pytest.mark.parametrize("seconds", [48, 49])
def test_what_ended_before_its_deletion_is_real(seconds: int) -> None:
    assert cause_of(worker(0, ended(1, seconds), deleted=49)).weight is Weight.REAL


def test_want_of_memory_is_real_even_while_a_pod_is_deleted() -> None:
    killed = worker(0, ended(137, 50, reason="OOMKilled"), deleted=40)
    assert cause_of(killed).weight is Weight.REAL


def test_want_of_memory_counts_even_with_success() -> None:
    survivor = worker(0, ended(0, 50, reason="OOMKilled"), phase="Succeeded")
    cause = cause_of(survivor, worker(1, ended(1, 60)))
    assert (cause.replica, cause.reason) == ("worker-0", "OOMKilled")
    assert cause.what == "exit code 0, but OOMKilled (out of memory)"
    assert cause.fault is Fault.USER


def test_within_one_second_want_of_memory_goes_first() -> None:
    killed = worker(7, ended(137, 60, reason="OOMKilled"))
    assert cause_of(worker(0, ended(1, 60)), killed).replica == "worker-7"


@pytest.mark.parametrize(
    ("code", "more", "what", "fault"),
    [
        (1, {}, "exit code 1", Fault.USER),
        (126, {}, "exit code 126 (the command cannot be executed)", Fault.USER),
        (127, {}, "exit code 127 (the command was not found)", Fault.USER),
        (134, {}, "exit code 134 (SIGABRT)", Fault.USER),
        (135, {}, "exit code 135 (SIGBUS)", Fault.USER),
        (137, {}, "exit code 137 (SIGKILL, from outside)", Fault.SYSTEM),
        (
            137,
            {"reason": "OOMKilled"},
            "exit code 137, OOMKilled (out of memory)",
            Fault.USER,
        ),
        (
            137,
            {"reason": "ContainerStatusUnknown"},
            "exit code 137, ContainerStatusUnknown (the node lost track of it)",
            Fault.SYSTEM,
        ),
        (139, {}, "exit code 139 (SIGSEGV, a crash in native code)", Fault.USER),
        (1, {"signal": 11}, "exit code 1 (SIGSEGV, a crash in native code)", Fault.USER),
        (143, {}, "exit code 143 (SIGTERM, from outside)", Fault.SYSTEM),
        (247, {}, "exit code 247 (a child process got SIGKILL)", Fault.SYSTEM),
        (
            128,
            {"reason": "StartError"},
            "exit code 128, StartError (it could not be started)",
            Fault.USER,
        ),
        (3, {"reason": "Odd"}, "exit code 3, Odd", Fault.USER),
        (255, {}, "exit code 255", Fault.USER),
        (None, {}, "unknown exit code", Fault.USER),
    ],
)
def test_an_exit_code_is_named(
    code: int | None, more: dict[str, Any], what: str, fault: Fault
) -> None:
    cause = cause_of(worker(0, ended(code, **more)))
    assert (cause.what, cause.fault) == (what, fault)
    assert cause.advice.endswith(".")


@pytest.mark.parametrize(
    ("reason", "message", "fault"),
    [
        ("Evicted", "The node was low on resource: memory.", Fault.SYSTEM),
        ("Evicted", "Container x exceeded its local ephemeral storage limit", Fault.USER),
        ("Evicted", 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".', Fault.USER),
        ("Evicted", "x was using 5Gi, which exceeds its request of 0.", Fault.SYSTEM),
        ("DeadlineExceeded", "Pod was active longer than deadline", Fault.USER),
        ("Shutdown", "", Fault.SYSTEM),
        ("NodeShutdown", "", Fault.SYSTEM),
        ("Terminated", "", Fault.SYSTEM),
        ("NodeAffinity", "", Fault.SYSTEM),
        ("NodeLost", "", Fault.SYSTEM),
        ("Preempting", "", Fault.SYSTEM),
        ("UnexpectedAdmissionError", "", Fault.SYSTEM),
        ("OutOfcpu", "", Fault.SYSTEM),
    ],
)
def test_a_pod_that_kubernetes_ended_says_who_is_at_fault(
    reason: str, message: str, fault: Fault
) -> None:
    cause = cause_of(worker(0, ended(137, 60), reason=reason, message=message))
    assert (cause.reason, cause.message, cause.fault) == (reason, message, fault)
    assert (cause.container, cause.finished) == ("", after(60))
    assert cause.what.startswith(f"{reason} (")


@pytest.mark.parametrize(
    ("pods", "disrupted"),
    [
        ([worker(0, ended(137, 60), reason="Evicted")], True),
        ([worker(0, ended(143, 60), reason="NodeLost"), worker(1, ended(1, 70))], True),
        ([worker(0, ended(1, 50)), worker(1, ended(143, 60), reason="Evicted")], False),
        ([worker(0, ended(137, 60, reason="OOMKilled"))], False),
        ([worker(0, ended(137, 60))], False),
        ([worker(0, ended(143, 60), deleted=50)], False),
        ([worker(0, ended(1, 60), reason="DeadlineExceeded")], False),
        ([worker(0, running(), phase="Failed", reason="UnexpectedAdmissionError")], False),
        ([worker(0, running(), phase="Failed", reason="OutOfcpu")], False),
        ([worker(0, ended(137, 60), reason="Evicted", message="exceeded its memory limit")], False),
        ([], False),
    ],
)
def test_only_what_the_cluster_has_ended_may_run_again(pods: list[Any], disrupted: bool) -> None:
    assert (find_disruption(pods) is not None) is disrupted


def test_a_preempted_pod_is_the_cause_although_a_sibling_ended_before_it() -> None:
    """It received its SIGTERM first, and its sibling lost it while it was still shutting down."""
    preempted = worker(
        0, ended(143, 70), conditions=(is_true("DisruptionTarget", 40, "PreemptionByScheduler"),)
    )
    cause = cause_of(preempted, worker(1, ended(1, 45)))
    assert (cause.replica, cause.reason) == ("worker-0", "PreemptionByScheduler")


def test_what_failed_before_its_disruption_is_the_cause() -> None:
    condition = is_true("DisruptionTarget", 40, "EvictionByEvictionAPI")
    cause = cause_of(worker(0, ended(1, 30), conditions=(condition,)))
    assert (cause.container, cause.what) == ("pytorch", "exit code 1")


def test_an_evicted_pod_without_any_time_is_the_cause() -> None:
    cause = cause_of(worker(0, running(), phase="Failed", reason="Evicted"))
    assert (cause.reason, cause.finished) == ("Evicted", None)


def test_a_failed_pod_that_says_nothing_is_told_all_the_same() -> None:
    cause = cause_of(pod(phase="Failed"))
    assert cause.what == "the pod failed, and Kubernetes does not say why"
    assert cause.fault is Fault.SYSTEM


def test_a_pod_that_was_deleted_before_it_started_is_no_cause() -> None:
    silent = worker(0, running(), phase="Failed", deleted=20)
    assert cause_of(silent, worker(1, ended(1, 60))).replica == "worker-1"
    assert cause_of(silent).weight is Weight.CONSEQUENCE


def test_an_end_without_a_time_comes_after_those_with_one() -> None:
    timeless = worker(0, {"terminated": {"exitCode": 1}})
    assert cause_of(timeless, worker(1, ended(1, 60))).replica == "worker-1"
    assert cause_of(timeless).replica == "worker-0"


def test_the_main_container_goes_before_a_sidecar_that_ended_earlier() -> None:
    both = pod(container(ended(1, 60)), container(ended(1, 30), name="proxy"), phase="Failed")
    assert cause_of(both).container == "pytorch"
    alone = pod(container(running()), container(ended(1, 30), name="proxy"), name="a", index="8")
    assert cause_of(alone, worker(1, ended(1, 60))).replica == "worker-1"


def test_a_sidecar_is_the_cause_where_the_main_containers_did_not_fail() -> None:
    bad = pod(container(ended(0, 60)), container(ended(1, 30), name="proxy"), phase="Failed")
    cause = cause_of(bad, worker(1, ended(143, 61)))
    assert (cause.container, cause.weight) == ("proxy", Weight.SIDECAR)


def test_a_sidecar_that_ends_badly_with_its_pod_is_no_cause() -> None:
    down = pod(container(ended(143, 60)), container(ended(1, 61), name="proxy"), phase="Failed")
    cause = cause_of(down)
    assert (cause.container, cause.weight) == ("pytorch", Weight.CONSEQUENCE)


def test_an_init_container_that_fails_is_as_good_a_cause_as_the_main_one() -> None:
    state = pod(
        container(waiting("PodInitializing")),
        init=(container(ended(1, 30), name="init-pytorch"),),
        phase="Failed",
    )
    cause = cause_of(state, worker(1, ended(1, 60)))
    assert (cause.container, cause.weight) == ("init-pytorch", Weight.REAL)


def test_a_container_in_a_crash_loop_is_a_cause_by_its_last_crash() -> None:
    cause = cause_of(crashing(0, 127, since=50), worker(1, ended(1, 60)))
    assert (cause.replica, cause.finished, cause.weight) == ("worker-0", after(50), Weight.REAL)


def test_a_crash_that_healed_is_told_only_where_nothing_else_failed() -> None:
    healed = worker(0, running(), last=ended(1, 30))
    assert cause_of(healed, worker(1, ended(1, 60))).replica == "worker-1"
    assert cause_of(healed, worker(1, ended(143, 60))).weight is Weight.RESTARTED


def test_an_attempt_that_another_pod_took_up_again_is_past() -> None:
    def attempt(name: str, created: int, code: int) -> PodState:
        raw = raw_pod(
            container(ended(code, created + 30), name="main"),
            name=name,
            phase="Failed",
            created=created,
        )
        raw["metadata"]["labels"] = {"training.kubeflow.org/job-role": "launcher"}
        return read_pod(MPI_JOB_V2, raw)

    pods = [attempt("train-launcher-aaaaa", 0, 1), attempt("train-launcher-bbbbb", 100, 2)]
    cause = cause_of(*pods)
    assert (cause.pod, cause.what) == ("train-launcher-bbbbb", "exit code 2")
    assert [failure.weight for failure in find_failures(pods)] == [Weight.REAL, Weight.RESTARTED]


def test_a_job_in_which_nothing_failed_has_no_cause() -> None:
    assert find_cause([worker(0, running()), worker(1, ended(0))]) is None
    assert find_cause([]) is None


def test_each_pod_is_told_once() -> None:
    twice = pod(
        container(ended(1, 60), last=ended(2, 30)),
        container(ended(3, 40), name="proxy"),
        phase="Failed",
    )
    assert len(find_failures([twice, worker(1, ended(1, 70))])) == 2


@given(
    st.sampled_from(KINDS),
    st.lists(st.one_of(JSON, spoiled(SAMPLE)), max_size=3),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_pods_never_matters(kind: JobKind, raw: list[Any], random: Any) -> None:
    pods = [read_pod(kind, item) for item in raw]
    failures = find_failures(pods)
    random.shuffle(pods)
    assert [failure.what for failure in find_failures(pods)] == [f.what for f in failures]


def test_pods_of_a_job_without_indexes_do_not_replace_each_other() -> None:
    first = pod(container(ended(1, 50)), kind=BATCH_JOB, name="train-a", phase="Failed", index=None)
    second = pod(
        container(ended(2, 60)),
        kind=BATCH_JOB,
        name="train-b",
        phase="Failed",
        index=None,
        created=1,
    )
    assert [item.weight for item in find_failures([second, first])] == [Weight.REAL] * 2
    assert cause_of(second, first).pod == "train-a"
