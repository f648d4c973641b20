"""The decisions, and their times."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.job_state import GONE, JobState, Phase, read_state
from airflow_kftrain.kinds import BATCH_JOB, KINDS, MPI_JOB_V2, PYTORCH_JOB, TRAIN_JOB, JobKind
from airflow_kftrain.monitoring.decisions import (
    DEADLINE_GRACE,
    Decision,
    Verdict,
    decide,
    judge,
)
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.pods import PodState, Trouble, read_pod
from airflow_kftrain.monitoring.queues import QueueState, Stage
from airflow_kftrain.specs.timeouts import Timeouts
from tests.unit import test_job_state
from tests.unit.monitoring import test_pods
from tests.unit.monitoring.samples import (
    LABELS,
    LEADER,
    NOON,
    after,
    container,
    crashing,
    ended,
    is_false,
    job,
    pending,
    pod,
    running,
    unschedulable,
    waiting,
    worker,
)
from tests.unit.nonsense import spoiled

WAIT, SUCCEEDED, FAILED, TIMED_OUT = (
    Verdict.WAIT,
    Verdict.SUCCEEDED,
    Verdict.FAILED,
    Verdict.TIMED_OUT,
)
DEFAULTS = Timeouts()
OFF = Timeouts(*[None] * len(Timeouts._fields))
MINUTE = timedelta(minutes=1)

MESSAGE = "PyTorchJob train is failed because 1 Worker replica(s) failed."
V1_DEADLINE = "Job train has failed because it was active longer than specified deadline"
V1_BACKOFF = "Job train has failed because it has reached the specified backoff limit"


@dataclass
class Watched:
    """A job, and the decisions about it at any second after noon."""

    state: JobState
    pods: tuple[PodState, ...] = ()
    kind: JobKind = PYTORCH_JOB
    timeouts: Timeouts = DEFAULTS
    deadline: datetime | None = None

    def at(self, seconds: float) -> Decision:
        now = after(seconds)
        return decide(self.kind, self.state, self.pods, self.timeouts, now, self.deadline)


def starting(*pods: PodState, **more: Any) -> Watched:
    return Watched(job(Phase.STARTING), pods, **more)


def going(*pods: PodState, **more: Any) -> Watched:
    return Watched(job(Phase.RUNNING), pods, **more)


# --- Final states -----------------------------------------------------------------------------


def test_a_final_state_wins_over_every_limit_that_is_up() -> None:
    late = after(-1)
    won = Watched(
        job(Phase.SUCCEEDED, deadline=late), (pending(0, "InvalidImageName"),), deadline=late
    )
    assert won.at(10_000).verdict is SUCCEEDED
    lost = Watched(job(Phase.FAILED), deadline=late)
    assert lost.at(10_000).verdict is FAILED


def test_success_is_the_resource_s_to_tell_whatever_the_pods_say() -> None:
    decision = Watched(job(Phase.SUCCEEDED), (worker(0, ended(1)),)).at(0)
    assert decision == (SUCCEEDED, "Succeeded", "The PyTorchJob succeeded.", None, False, None)


def test_success_for_want_of_memory_is_doubted_aloud() -> None:
    decision = judge(PYTORCH_JOB, job(Phase.SUCCEEDED), [worker(1, ended(0, reason="OOMKilled"))])
    assert decision.verdict is SUCCEEDED
    assert "worker-1 ran out of memory" in decision.words


def test_a_job_that_is_gone_failed_through_no_fault_of_the_author() -> None:
    decision = Watched(GONE).at(0)
    assert decision[:2] == (FAILED, "Gone")
    assert (decision.fault, decision.retryable) == (Fault.SYSTEM, True)
    assert "no longer exists" in decision.words


@pytest.mark.parametrize(
    ("pods", "reason", "fault"),
    [
        ([worker(1, ended(1))], "Error", Fault.USER),
        ([worker(1, ended(137, reason="OOMKilled"))], "OOMKilled", Fault.USER),
        ([worker(1, ended(137))], "Error", Fault.SYSTEM),
        ([worker(1, ended(247))], "Error", Fault.SYSTEM),
        ([worker(1, ended(137), reason="Evicted")], "Evicted", Fault.SYSTEM),
        ([worker(1, ended(143))], "Error", Fault.SYSTEM),
        ([], "PyTorchJobFailed", Fault.USER),
    ],
)
def test_a_failure_is_explained_by_the_pods_where_they_can(
    pods: list[PodState], reason: str, fault: Fault
) -> None:
    state = job(Phase.FAILED, reason="PyTorchJobFailed", message=MESSAGE)
    decision = judge(PYTORCH_JOB, state, pods)
    assert decision[:2] == (FAILED, reason)
    assert (decision.fault, decision.retryable) == (fault, True)
    assert ("worker-1" if pods else MESSAGE) in decision.words


@pytest.mark.parametrize(
    ("kind", "reason", "message"),
    [
        (PYTORCH_JOB, "PyTorchJobFailed", V1_DEADLINE),
        (MPI_JOB_V2, "DeadlineExceeded", "Job was active longer than specified deadline"),
        (TRAIN_JOB, "DeadlineExceeded", "TrainJob exceeded its active deadline"),
        (BATCH_JOB, "DeadlineExceeded", ""),
    ],
)
def test_the_operator_s_own_deadline_is_a_deadline_like_ours(
    kind: JobKind, reason: str, message: str
) -> None:
    """Its pods were ended by SIGTERM, which says nothing."""
    state = job(Phase.FAILED, reason=reason, message=message)
    decision = judge(kind, state, [worker(0, ended(143))])
    assert decision[:2] == (TIMED_OUT, "DeadlineExceeded")
    assert (decision.fault, decision.retryable) == (None, True)


def test_a_deadline_of_the_pods_is_one_of_the_job() -> None:
    late = worker(0, ended(137), reason="DeadlineExceeded", message="Pod was active on the node")
    decision = judge(PYTORCH_JOB, job(Phase.FAILED), [late])
    assert (decision.verdict, decision.fault) == (TIMED_OUT, None)


@pytest.mark.parametrize(
    ("reason", "message", "fault", "retryable"),
    [
        ("TrainingRuntimeNotSupported", "no such runtime", Fault.USER, False),
        ("MPIJobEvicted", "1/4 workers are evicted", Fault.SYSTEM, True),
        ("BackoffLimitExceeded/Evicted", "", Fault.SYSTEM, True),
        ("BackoffLimitExceeded/", "", Fault.USER, True),
        ("PyTorchJobFailed", V1_BACKOFF, Fault.USER, True),
        ("ReachedMaxRestarts", "", Fault.USER, True),
        ("FailedJobs", "first failed job: x", Fault.USER, True),
        ("", "", Fault.USER, True),
    ],
)
def test_a_failure_is_explained_by_its_condition_where_no_pod_is_left(
    reason: str, message: str, fault: Fault, retryable: bool
) -> None:
    decision = judge(TRAIN_JOB, job(Phase.FAILED, reason=reason, message=message), [])
    assert decision.verdict is FAILED
    assert (decision.fault, decision.retryable) == (fault, retryable)
    assert decision.words.startswith("The TrainJob failed: ")


def test_of_a_reached_limit_the_crash_is_the_cause_and_not_the_siblings_that_were_ended() -> None:
    state = job(Phase.FAILED, reason="PyTorchJobFailed", message=V1_BACKOFF)
    sibling = worker(0, ended(143))
    crashed = judge(PYTORCH_JOB, state, [sibling, crashing(1, 127)])
    assert (crashed.reason, crashed.fault) == ("Error", Fault.USER)
    assert "worker-1" in crashed.words
    lost = judge(PYTORCH_JOB, state, [sibling])
    assert (lost.reason, lost.fault) == ("BackoffLimitExceeded", Fault.USER)


@pytest.mark.parametrize(
    ("first", "words", "fault"),
    [
        ("job-launcher-0", "(first failed job: job-launcher-0). Look at the logs", Fault.USER),
        ("train-worker", "exit code 143 (SIGTERM, from outside) in worker-0", Fault.SYSTEM),
    ],
)
def test_a_pod_that_was_ended_explains_nothing_if_another_job_of_the_set_failed_first(
    first: str, words: str, fault: Fault
) -> None:
    message = f"jobset failed due to one or more job failures (first failed job: {first})"
    state = job(Phase.FAILED, reason="FailedJobs", message=message)
    decision = judge(TRAIN_JOB, state, [worker(0, ended(143))])
    assert words in decision.words
    assert (decision.fault, decision.retryable) == (fault, True)


# --- Deadlines --------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING])
def test_the_execution_timeout_holds_always(phase: Phase) -> None:
    watched = Watched(job(phase), timeouts=OFF, deadline=after(100))
    assert watched.at(99.9)[0] is WAIT
    assert watched.at(99.9).until == after(100)
    decision = watched.at(100)
    assert decision[:2] == (TIMED_OUT, "ExecutionTimeout")
    assert decision.retryable
    assert "2026-11-21 12:01:40 UTC" in decision.words


def test_a_job_that_did_not_start_in_time_is_not_blamed_for_training_too_long() -> None:
    runs = Watched(job(Phase.RUNNING), deadline=after(100)).at(100)
    assert "make the training shorter" in runs.words
    pods = (pending(0, "ImagePullBackOff"),)
    pulls = starting(*pods, timeouts=OFF, deadline=after(100)).at(100)
    assert pulls.words.startswith("worker-0 could not pull its image")
    assert (pulls.verdict, pulls.fault) == (TIMED_OUT, Fault.USER)
    waits = starting(pending(0, "ContainerCreating"), deadline=after(100)).at(100)
    for decision in (pulls, waits):
        assert "The PyTorchJob had not started at 2026-11-21 12:01:40 UTC, when" in decision.words
        assert "shorter" not in decision.words
    assert waits.fault is runs.fault is None


def test_the_operator_s_verdict_on_the_active_deadline_goes_first() -> None:
    watched = Watched(job(Phase.RUNNING, deadline=after(100)))
    patience = 100 + DEADLINE_GRACE.total_seconds()
    assert watched.at(patience - 1).until == after(patience)
    assert watched.at(patience)[:2] == (TIMED_OUT, "DeadlineExceeded")


# --- Queues -----------------------------------------------------------------------------------


def test_a_queue_may_take_its_time_unless_the_author_limits_it() -> None:
    """Each time anew: `queued_since` is that of the last suspension."""
    state = job(Phase.QUEUED, queued_since=after(5000), queue="gpu")
    assert Watched(state).at(10**7) == judge(PYTORCH_JOB, state, ())
    watched = Watched(state, timeouts=OFF._replace(queue=MINUTE))
    assert watched.at(5059)[:2] == (WAIT, "Queued")
    assert watched.at(5059).until == after(5060)
    assert watched.at(5060) == (
        FAILED,
        "QueueTimeout",
        "The PyTorchJob did not leave its queue within 0:01:00 (Timeouts.queue). The PyTorchJob "
        "waits in queue gpu.",
        None,
        True,
        None,
    )
    assert going(timeouts=OFF._replace(queue=MINUTE)).at(10_000).verdict is WAIT


def test_a_job_that_was_queued_all_the_time_is_not_blamed_for_training_too_long() -> None:
    state = job(Phase.QUEUED, queued_since=NOON, queue="gpu")
    queue = QueueState(Stage.WAITS, message="1 more needed")
    decision = decide(PYTORCH_JOB, state, (), DEFAULTS, after(100), after(100), queue)
    assert decision[:2] == (TIMED_OUT, "ExecutionTimeout")
    assert decision.words == (
        "The PyTorchJob was queued at 2026-11-21 12:01:40 UTC, when the task's execution timeout "
        "was up. The PyTorchJob waits in queue gpu: 1 more needed."
    )


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("Deactivated", FAILED),
        ("DeactivatedDueToRequeuingLimitExceeded", FAILED),
        ("DeactivatedDueToMaximumExecutionTimeExceeded", TIMED_OUT),
    ],
)
def test_a_deactivated_job_is_not_waited_for(reason: str, verdict: Verdict) -> None:
    queue = QueueState(Stage.DEACTIVATED, reason)
    state = job(Phase.QUEUED, queued_since=NOON, queue="gpu")
    decision = decide(PYTORCH_JOB, state, (), DEFAULTS, NOON, queue=queue)
    assert (decision.verdict, decision.reason, decision.retryable) == (verdict, reason, True)
    # A job that ends, or was resumed, is not in its queue.
    for phase in (Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED):
        other = decide(PYTORCH_JOB, job(phase), (), DEFAULTS, NOON, queue=queue)
        assert other.verdict in (WAIT, SUCCEEDED)


# --- The start --------------------------------------------------------------------------------


def test_a_job_that_does_not_start_is_given_up_with_what_it_waits_for() -> None:
    watched = starting(unschedulable(0, "0/3 nodes have a GPU"))
    assert watched.at(1799).until == after(1800)
    decision = watched.at(1800)
    assert decision[:2] == (FAILED, "StartupTimeout")
    assert (decision.fault, decision.retryable) == (None, True)
    assert "within 0:30:00" in decision.words
    assert decision.words.startswith("worker-0 could not be scheduled: Unschedulable: 0/3 nodes")


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.RUNNING])
def test_the_startup_timeout_is_for_jobs_that_start(phase: Phase) -> None:
    assert Watched(job(phase, acknowledged=False)).at(10_000)[:2] == (WAIT, phase.value)
    assert Watched(job(phase, acknowledged=False)).at(10_000).until is None


def test_time_in_a_queue_does_not_count() -> None:
    resumed = Watched(job(Phase.STARTING, starting_since=after(5000)))
    assert resumed.at(5000 + 1799).verdict is WAIT
    assert resumed.at(5000 + 1800).reason == "StartupTimeout"


def test_a_restart_that_does_not_come_back_is_given_up_with_what_it_waits_for() -> None:
    state = job(Phase.RESTARTING, restarting_since=after(5000))
    watched = Watched(state, (worker(1, running()), unschedulable(0, "no room")))
    assert watched.at(6799).until == after(6800)
    decision = watched.at(6800)
    assert decision[:2] == (FAILED, "StartupTimeout")
    assert (decision.fault, decision.retryable) == (None, True)
    assert "did not restart within 0:30:00" in decision.words
    assert decision.words.startswith("worker-0 could not be scheduled: Unschedulable: no room")


def leader(state: dict[str, Any], **more: Any) -> PodState:
    return worker(9, state, labels=LEADER, **more)


MPI_LABELS = {f"{LABELS}/job-role": "launcher"}
LAUNCHER = pod(container(running(), name="mpi"), kind=MPI_JOB_V2, index=None, labels=MPI_LABELS)


@pytest.mark.parametrize(
    ("pods", "ends"),
    [
        ([leader(running()), unschedulable(0)], False),
        ([leader(running()), worker(0, ended(1))], False),
        ([leader(waiting("ContainerCreating"), phase="Pending"), worker(0, running())], True),
        ([leader(running(), deleted=5), unschedulable(0)], True),
        ([LAUNCHER, worker(0, running()), unschedulable(3)], False),
        ([LAUNCHER, worker(0, running()), worker(3, ended(1))], False),
        ([worker(0, running()), worker(1, running())], False),
        ([worker(0, running()), worker(1, running(), deleted=5)], False),
        ([worker(0, running()), unschedulable(1)], True),
        ([worker(0, running(), deleted=5)], True),
        ([], True),
    ],
)
@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RESTARTING])
@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_trains_is_not_ended_for_a_status_that_lags_behind(
    phase: Phase, acknowledged: bool, pods: list[PodState], ends: bool
) -> None:
    """mpi-operator says that a job runs only when all workers run; an operator may be down."""
    state = job(phase, restarting_since=NOON, acknowledged=acknowledged)
    watched = Watched(state, tuple(pods), timeouts=Timeouts(operator=None))
    assert (watched.at(100_000).verdict is FAILED) is ends
    assert (watched.at(0).until is not None) is ends


def test_mpi_workers_that_run_without_a_launcher_are_no_training() -> None:
    labels = {f"{LABELS}/job-role": "worker"}
    idle = pod(container(running(), name="mpi"), kind=MPI_JOB_V2, labels=labels)
    watched = Watched(job(Phase.STARTING), (idle,), kind=MPI_JOB_V2)
    assert watched.at(1800).reason == "StartupTimeout"


def test_a_leader_that_ended_gets_the_time_of_a_start_to_come_back() -> None:
    crashed = leader(waiting("CrashLoopBackOff"), last=ended(1, 5000), phase="Running")
    watched = Watched(job(Phase.STARTING, restarts_counted=True), (crashed,))
    assert watched.at(6799).until == after(6800)
    assert watched.at(6800).reason == "StartupTimeout"


def train_pod(step: str, state: dict[str, Any], **more: Any) -> PodState:
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "batch.kubernetes.io/job-completion-index": "0",
    }
    main = container(state, name=step)
    return pod(main, kind=TRAIN_JOB, name=f"train-{step}-0-0-abcde", labels=labels, **more)


NODE = train_pod("node", waiting("ContainerCreating"), phase="Pending", created=5000)


def test_a_long_download_is_no_start_that_takes_too_long() -> None:
    loads = train_pod("model-initializer", running())
    watched = Watched(job(Phase.STARTING), (loads,), kind=TRAIN_JOB)
    assert watched.at(100_000).until is None
    loaded = train_pod("model-initializer", ended(0, 5000), phase="Succeeded")
    for pods in [(loaded,), (loaded, NODE)]:
        watched = Watched(job(Phase.STARTING), pods, kind=TRAIN_JOB)
        assert watched.at(6799).until == after(6800)
        assert watched.at(6800).reason == "StartupTimeout"


def test_an_image_that_no_node_of_a_train_job_can_have_ends_it() -> None:
    status = test_job_state.initialized({"active": 1}, succeeded=1)
    state = read_state(TRAIN_JOB, test_job_state.resource(status))
    bad = train_pod("node", waiting("InvalidImageName"), phase="Pending")
    watched = Watched(state, (bad,), kind=TRAIN_JOB)
    assert watched.at(2)[:2] == (FAILED, "InvalidImageName")


def test_a_job_that_nobody_takes_up_names_the_operator_that_is_missing() -> None:
    watched = Watched(job(Phase.STARTING, acknowledged=False))
    assert watched.at(299).until == after(300)
    decision = watched.at(300)
    assert decision[:2] == (FAILED, "OperatorTimeout")
    assert (decision.fault, decision.retryable) == (None, True)
    assert "training-operator" in decision.words
    assert "kubeflow.org/v1" in decision.words


@pytest.mark.parametrize(
    "watched",
    [
        starting(),
        Watched(job(Phase.STARTING, acknowledged=False), (worker(0, running()),)),
        Watched(job(Phase.STARTING, acknowledged=False), timeouts=Timeouts(operator=None)),
    ],
    ids=["it wrote a status", "it made pods", "off"],
)
def test_an_operator_that_did_something_is_not_missing(watched: Watched) -> None:
    assert watched.at(301).verdict is WAIT


def test_a_timeout_of_zero_is_over_at_once_and_none_never() -> None:
    assert starting(timeouts=OFF._replace(startup=timedelta(0))).at(0).reason == "StartupTimeout"
    assert starting(timeouts=OFF).at(10**9).verdict is WAIT
    assert starting(timeouts=OFF._replace(startup=timedelta.max)).at(10**9).verdict is WAIT


def test_without_any_time_only_zero_patience_is_over() -> None:
    timeless = JobState(Phase.STARTING, acknowledged=True)
    bad = (pending(0, "InvalidImageName")._replace(troubles=(Trouble("image_name", "Bad"),)),)
    assert Watched(timeless, bad).at(0).verdict is FAILED
    slow = (pending(0, "x")._replace(troubles=(Trouble("image_pull", "Bad"),)),)
    assert Watched(timeless, slow).at(10**6).verdict is WAIT
    assert Watched(job(Phase.STARTING), slow).at(180).verdict is FAILED


# --- Pods in trouble --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "patience", "fault", "retryable"),
    [
        ("InvalidImageName", 0, Fault.USER, False),
        ("CreateContainerConfigError", 0, Fault.USER, False),
        ("CreateContainerError", 180, Fault.USER, False),
        ("RunContainerError", 180, Fault.USER, False),
        ("ErrImagePull", 180, Fault.USER, True),
        ("ImagePullBackOff", 180, Fault.USER, True),
    ],
)
def test_a_trouble_is_borne_for_its_time(
    reason: str, patience: int, fault: Fault, retryable: bool
) -> None:
    watched = starting(worker(1, running()), pending(0, reason, "the message", since=20))
    before = watched.at(20 + patience - 1)
    assert (before.verdict, before.until) == (WAIT, after(20 + patience))
    decision = watched.at(20 + patience)
    assert decision[:2] == (FAILED, reason)
    assert (decision.fault, decision.retryable) == (fault, retryable)
    for word in ("worker-0 ", reason, "the message"):
        assert word in decision.words


def test_no_room_is_borne_until_the_startup_timeout_unless_the_author_says_otherwise() -> None:
    assert starting(unschedulable(0)).at(1799).verdict is WAIT
    decision = starting(unschedulable(0), timeouts=Timeouts(unschedulable=5 * MINUTE)).at(300)
    assert decision[:2] == (FAILED, "Unschedulable")
    assert (decision.fault, decision.retryable) == (None, True)


def test_a_crash_loop_is_borne_from_the_last_crash() -> None:
    watched = going(crashing(0, 127, since=400))
    assert watched.at(519).until == after(520)
    decision = watched.at(520)
    assert decision[:2] == (FAILED, "CrashLoopBackOff")
    assert (decision.fault, decision.retryable) == (Fault.USER, True)
    assert "last with exit code 127 (the command was not found)" in decision.words


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (3, "exit code 127 (the command was not found) in worker-1, and backoff_limit=3 was reach"),
        (None, "exit code 127 (the command was not found) in worker-1, and the limit of restarts"),
        (0, "exit code 127 (the command was not found) in worker-1. Check the command"),
    ],
)
def test_a_crash_that_reached_the_limit_is_told_with_it(limit: int | None, words: str) -> None:
    state = job(Phase.FAILED, message=V1_BACKOFF, backoff_limit=limit)
    decision = judge(PYTORCH_JOB, state, [crashing(1, 127)])
    assert decision.words.startswith(f"The PyTorchJob failed: {words}")


@pytest.mark.parametrize("fatal", [False, True])
def test_a_crash_loop_is_named_by_the_exception_of_the_function(*, fatal: bool) -> None:
    header = {"type": "ValueError", "text": "no data", "rank": "3", "time": 1.0, "fatal": fatal}
    end = ended(1, 401, message=f"KFTRAIN {json.dumps(header)}\ntraceback")
    back_off = waiting("CrashLoopBackOff", "back-off 2m40s restarting failed container")
    decision = going(crashing(0, since=400), worker(1, back_off, last=end)).at(521)
    words = "worker-1 keeps crashing, last with ValueError: no data, in rank 3. "
    assert decision.words.startswith(words)
    assert decision.retryable is not fatal


def test_a_container_that_crashes_between_two_back_offs_is_not_in_a_loop_just_then() -> None:
    watched = going(worker(0, running(), last=ended(1, 0)))
    assert watched.at(10**6).verdict is WAIT


@pytest.mark.parametrize("field", [each for each in Timeouts._fields if each != "silence"])
def test_each_limit_can_be_switched_off(field: str) -> None:
    troubles = {
        "image_name": "InvalidImageName",
        "image_pull": "ErrImagePull",
        "container_config": "CreateContainerConfigError",
        "container_create": "CreateContainerError",
        "crash_loop": "CrashLoopBackOff",
    }
    if field in troubles:
        pods: tuple[PodState, ...] = (pending(0, troubles[field]),)
    elif field in ("volume_name", "volume"):
        pods = (pending(0, "x")._replace(troubles=(Trouble(field, "FailedMount"),)),)
    else:
        pods = (unschedulable(0),) if field == "unschedulable" else ()
    phase = Phase.QUEUED if field == "queue" else Phase.STARTING
    watched = Watched(job(phase, acknowledged=False, queued_since=NOON), pods)
    watched.timeouts = OFF._replace(**{field: MINUTE})
    assert watched.at(59).until == after(60)
    assert watched.at(60).verdict is FAILED
    watched.timeouts = OFF
    assert watched.at(10**9) == watched.at(0)


# Which troubles may end which job.
PULL, CONFIG, NO_ROOM = (
    pending(0, "ImagePullBackOff"),
    pending(0, "CreateContainerConfigError"),
    unschedulable(0),
)
CRASH = crashing(0)
SIDECAR = pod(
    container(running()), container(waiting("ImagePullBackOff"), name="proxy"), phase="Running"
)
INIT_LOOP = pod(
    container(waiting("PodInitializing")),
    init=(container(waiting("CrashLoopBackOff"), name="init", last=ended(1, 0)),),
    phase="Pending",
)
NATIVE = pod(
    container(waiting("PodInitializing")),
    init=(container(waiting("CrashLoopBackOff"), name="mesh", last=ended(1, 0)),),
    native=("mesh",),
    phase="Pending",
)
PLAIN: dict[str, Any] = {}
COUNTED = {"restarts_counted": True}
ELASTIC = {"self_healing": True}
BOTH = {**COUNTED, **ELASTIC}
NAME = pending(0, "InvalidImageName")
CREATE = pending(0, "CreateContainerError")
SIDECAR_LOOP = pod(
    container(running()),
    container(waiting("CrashLoopBackOff"), name="proxy", last=ended(1, 0)),
    phase="Running",
)


@pytest.mark.parametrize(
    ("phase", "job_has", "pods", "ends"),
    [
        (Phase.QUEUED, PLAIN, [PULL], False),
        (Phase.QUEUED, PLAIN, [CRASH], False),
        (Phase.RESTARTING, PLAIN, [NAME], True),
        (Phase.RESTARTING, PLAIN, [PULL], True),
        (Phase.RESTARTING, COUNTED, [CONFIG], True),
        (Phase.RESTARTING, PLAIN, [CRASH], False),
        (Phase.RESTARTING, COUNTED, [CRASH], False),
        (Phase.RESTARTING, PLAIN, [INIT_LOOP], True),
        (Phase.RESTARTING, PLAIN, [SIDECAR], False),
        (Phase.RESTARTING, ELASTIC, [NAME], False),
        (Phase.RESTARTING, ELASTIC, [CRASH, crashing(1)], False),
        (Phase.STARTING, PLAIN, [PULL], True),
        (Phase.STARTING, PLAIN, [NO_ROOM], True),
        (Phase.STARTING, PLAIN, [CRASH], True),
        (Phase.STARTING, PLAIN, [SIDECAR], True),
        (Phase.STARTING, PLAIN, [INIT_LOOP], True),
        (Phase.STARTING, PLAIN, [NATIVE], True),
        (Phase.RUNNING, PLAIN, [PULL], True),
        (Phase.RUNNING, PLAIN, [CONFIG], True),
        (Phase.RUNNING, PLAIN, [NO_ROOM], True),
        (Phase.RUNNING, PLAIN, [CRASH], True),
        (Phase.RUNNING, PLAIN, [INIT_LOOP], True),
        (Phase.RUNNING, PLAIN, [SIDECAR], False),
        (Phase.RUNNING, PLAIN, [NATIVE], False),
        (Phase.STARTING, COUNTED, [PULL], True),
        (Phase.STARTING, COUNTED, [CONFIG], True),
        (Phase.STARTING, COUNTED, [NO_ROOM], True),
        (Phase.STARTING, COUNTED, [CRASH], False),
        (Phase.STARTING, COUNTED, [SIDECAR_LOOP], False),
        (Phase.STARTING, COUNTED, [INIT_LOOP], True),
        (Phase.RUNNING, COUNTED, [NAME], True),
        (Phase.RUNNING, COUNTED, [CONFIG], True),
        (Phase.RUNNING, COUNTED, [CREATE], True),
        (Phase.RUNNING, COUNTED, [PULL], True),
        (Phase.RUNNING, COUNTED, [NO_ROOM], True),
        (Phase.RUNNING, COUNTED, [INIT_LOOP], True),
        (Phase.RUNNING, COUNTED, [CRASH], False),
        (Phase.RUNNING, COUNTED, [SIDECAR], False),
        (Phase.RUNNING, BOTH, [NAME], False),
        (Phase.RUNNING, BOTH, [CRASH, crashing(1)], False),
        (Phase.RUNNING, BOTH, [INIT_LOOP, worker(1, running())], False),
        (Phase.RUNNING, BOTH, [INIT_LOOP], True),
        (Phase.RUNNING, ELASTIC, [INIT_LOOP], True),
        (Phase.STARTING, ELASTIC, [PULL], True),
        (Phase.STARTING, ELASTIC, [NO_ROOM], True),
        (Phase.RUNNING, ELASTIC, [PULL], False),
        (Phase.RUNNING, ELASTIC, [CONFIG], False),
        (Phase.RUNNING, ELASTIC, [NO_ROOM], False),
        (Phase.RUNNING, ELASTIC, [CRASH, worker(1, running())], False),
        (Phase.RUNNING, ELASTIC, [CRASH, PULL], False),
        (Phase.RUNNING, ELASTIC, [CRASH, crashing(1)], True),
        (Phase.RUNNING, ELASTIC, [CRASH, worker(1, running(), deleted=3)], True),
    ],
)  # fmt: skip
def test_which_troubles_may_end_which_job(
    phase: Phase, job_has: dict[str, Any], pods: list[PodState], ends: bool
) -> None:
    patience = Timeouts(startup=None, unschedulable=MINUTE)
    watched = Watched(job(phase, **job_has), tuple(pods), timeouts=patience)
    assert (watched.at(100_000).verdict is FAILED) is ends
    assert (watched.at(-1).until is not None) is ends


def test_of_several_limits_the_earliest_decides_however_late_one_looks() -> None:
    watched = starting(
        pending(0, "ImagePullBackOff", since=100), pending(1, "CreateContainerError", since=50)
    )
    assert watched.at(230).reason == "CreateContainerError"
    assert watched.at(100_000).reason == "CreateContainerError"


def test_of_troubles_at_one_moment_the_one_that_can_heal_least_decides() -> None:
    pods = (pending(0, "ImagePullBackOff"), pending(1, "CreateContainerError"))
    for order in itertools.permutations(pods):
        assert starting(*order).at(500).reason == "CreateContainerError"


def test_a_verdict_of_ours_names_the_first_of_many_pods() -> None:
    pods = [pending(number, "InvalidImageName") for number in range(4)]
    words = {starting(*order).at(0).words for order in itertools.permutations(pods)}
    assert len(words) == 1
    assert words.pop().startswith("worker-0 ")


# --- Waiting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "pods", "words"),
    [
        (
            job(Phase.QUEUED, message="PyTorchJob train is suspended."),
            [],
            "The PyTorchJob waits in a queue, or is suspended (PyTorchJob train is suspended).",
        ),
        (job(Phase.QUEUED), [], "The PyTorchJob waits in a queue, or is suspended."),
        (
            job(Phase.STARTING, acknowledged=False),
            [],
            "The PyTorchJob waits for training-operator to process it.",
        ),
        (job(Phase.STARTING), [], "The PyTorchJob waits for training-operator to create its pods."),
        (
            job(Phase.STARTING),
            [pod(phase="Pending"), worker(1, running())],
            "1 of 2 pods of the PyTorchJob run; worker-0: waits for a node.",
        ),
        (
            job(Phase.STARTING),
            [pod(phase="Pending", conditions=({"type": "PodScheduled", "status": "True"},))],
            "0 of 1 pods of the PyTorchJob run; worker-0: waits for its node to start it.",
        ),
        (
            job(Phase.STARTING),
            [pending(0, "ContainerCreating"), pending(1, "ContainerCreating")],
            "0 of 2 pods of the PyTorchJob run; worker-0, worker-1: is being created (image, "
            "volumes).",
        ),
        (
            job(Phase.STARTING),
            [pending(0, "PodInitializing")],
            "0 of 1 pods of the PyTorchJob run; worker-0: waits for its init containers.",
        ),
        (
            job(Phase.STARTING),
            [pod(phase="Pending", conditions=(is_false("PodScheduled", 0, "SchedulingGated"),))],
            "0 of 1 pods of the PyTorchJob run; worker-0: is held back by a scheduling gate.",
        ),
        (
            job(Phase.STARTING),
            [unschedulable(number, "0/3 nodes fit") for number in range(12)],
            "0 of 12 pods of the PyTorchJob run; worker-0, worker-1 and 10 more: cannot be "
            "scheduled: 0/3 nodes fit.",
        ),
        (
            job(Phase.STARTING),
            [unschedulable(0, "no room"), pending(1, "ErrImagePull"), pending(2, "Odd")],
            "0 of 3 pods of the PyTorchJob run; worker-1: pytorch cannot pull its image "
            "registry/pytorch:1; worker-0: cannot be scheduled: no room; worker-2: waits, with the "
            "reason Odd.",
        ),
        (
            job(Phase.STARTING),
            [unschedulable(number, f"no room for {number}") for number in range(5)],
            "0 of 5 pods of the PyTorchJob run; worker-0: cannot be scheduled: no room for 0; "
            "worker-1: cannot be scheduled: no room for 1; worker-2: cannot be scheduled: no room "
            "for 2; 2 more problems.",
        ),
        (job(Phase.RUNNING), [], "The PyTorchJob runs."),
        (
            job(Phase.RUNNING, **ELASTIC),
            [worker(0, running()), crashing(1), worker(2, running(), deleted=5)],
            "2 of 2 pods of the PyTorchJob run; worker-1: pytorch keeps crashing.",
        ),
        (
            job(Phase.RESTARTING, message="1 Worker replica(s) failed."),
            [],
            "Pods of the PyTorchJob failed, and training-operator has not given up on it (1 Worker "
            "replica(s) failed).",
        ),
        (
            job(Phase.RESTARTING),
            [pending(0, "ErrImagePull")],
            "Pods of the PyTorchJob failed, and training-operator has not given up on it; "
            "worker-0: pytorch cannot pull its image registry/pytorch:1.",
        ),
    ],
)
def test_a_job_says_what_it_waits_for(state: JobState, pods: list[PodState], words: str) -> None:
    assert Watched(state, tuple(pods), timeouts=OFF).at(0).words == words


def test_what_a_job_waits_for_is_said_in_the_same_words_as_long_as_it_is_the_same() -> None:
    """Although pull errors alternate, and a back-off counts its seconds."""
    looks = [
        starting(pending(0, "ErrImagePull", "rpc error")).at(10),
        starting(pending(0, "ImagePullBackOff", "Back-off pulling image")).at(20),
    ]
    assert len({look.words for look in looks}) == 1
    loops = [
        going(pending(0, "CrashLoopBackOff", f"back-off {pause} restarting"), timeouts=OFF).at(0)
        for pause in ("10s", "20s")
    ]
    assert len({look.words for look in loops}) == 1


# --- Properties -------------------------------------------------------------------------------

MOMENTS = st.integers(-100, 4000).map(after)
PATIENCE = st.one_of(
    st.none(), st.integers(0, 3000).map(lambda seconds: timedelta(seconds=seconds))
)
JOBS = st.builds(
    JobState,
    phase=st.sampled_from(Phase),
    reason=st.sampled_from(["", "PyTorchJobFailed", "DeadlineExceeded"]),
    message=st.sampled_from(["", MESSAGE, V1_DEADLINE, V1_BACKOFF]),
    starting_since=st.one_of(st.none(), MOMENTS),
    restarting_since=st.one_of(st.none(), MOMENTS),
    queued_since=st.one_of(st.none(), MOMENTS),
    queue=st.sampled_from(["", "gpu"]),
    deadline=st.one_of(st.none(), MOMENTS),
    acknowledged=st.booleans(),
    self_healing=st.booleans(),
    restarts_counted=st.booleans(),
)
REASONS = (
    "InvalidImageName",
    "ImagePullBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ContainerCreating",
)
PODS = st.one_of(
    st.builds(pending, st.integers(0, 3), st.sampled_from(REASONS), since=st.integers(0, 3000)),
    st.builds(crashing, st.integers(0, 3), since=st.integers(0, 3000)),
    st.builds(unschedulable, st.integers(0, 3), since=st.integers(0, 3000)),
    st.builds(worker, st.integers(0, 3), st.just(running())),
    st.builds(
        leader, st.one_of(st.just(running()), st.integers(0, 3000).map(lambda at: ended(1, at)))
    ),
)
WATCHED = st.builds(
    Watched,
    state=JOBS,
    pods=st.lists(PODS, max_size=3).map(tuple),
    kind=st.sampled_from(KINDS),
    timeouts=st.builds(Timeouts, *[PATIENCE] * len(Timeouts._fields)),
    deadline=st.one_of(st.none(), MOMENTS),
)


@given(WATCHED, st.integers(0, 5000))
def test_until_is_the_very_next_moment_at_which_something_else_is_decided(
    watched: Watched, second: int
) -> None:
    decision = watched.at(second)
    if decision.verdict is not WAIT:
        assert decision.until is None
        assert watched.at(second + 100_000) == decision
    elif decision.until is None:
        assert watched.at(second + 10**8) == decision
    else:
        until = (decision.until - NOON).total_seconds()
        assert until > second
        assert watched.at(until - 0.001) == decision
        assert watched.at(until).verdict is not WAIT


@given(WATCHED, st.integers(0, 5000), st.randoms(use_true_random=False))
def test_the_order_of_the_pods_never_matters(watched: Watched, second: int, random: Any) -> None:
    decision = watched.at(second)
    shuffled = list(watched.pods)
    random.shuffle(shuffled)
    watched.pods = tuple(shuffled)
    assert watched.at(second) == decision


@given(WATCHED, st.integers(0, 5000))
def test_a_decision_can_be_shown_to_an_author(watched: Watched, second: int) -> None:
    decision = watched.at(second)
    assert decision.words.endswith((".", "!", "?"))
    assert "\n" not in decision.words
    assert " " not in decision.reason
    ends = decision.verdict in (FAILED, TIMED_OUT)
    assert ends or decision.fault is None
    assert ends or not decision.retryable


@given(
    st.sampled_from(KINDS),
    spoiled(test_job_state.SAMPLE),
    st.lists(spoiled(test_pods.SAMPLE), max_size=2),
)
def test_nothing_that_was_read_crashes_a_decision(
    kind: JobKind, resource: Any, raw_pods: list[Any]
) -> None:
    pods = [read_pod(kind, item) for item in raw_pods]
    state = read_state(kind, resource)
    for living in (
        state,
        state._replace(phase=Phase.STARTING),
        state._replace(phase=Phase.RUNNING),
        state._replace(phase=Phase.RESTARTING),
    ):
        decision = decide(kind, living, pods, Timeouts(), NOON)
        assert len(decision.reason) <= 63
        assert len(decision.words) < 5000
        decision.words.encode()
