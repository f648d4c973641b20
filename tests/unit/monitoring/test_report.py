"""What an author reads after a failure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.job_state import GONE, JobState, Phase, read_state
from airflow_kftrain.kinds import KINDS, PYTORCH_JOB, TRAIN_JOB, JobKind
from airflow_kftrain.monitoring.decisions import decide
from airflow_kftrain.monitoring.failures import LogKey
from airflow_kftrain.monitoring.pods import read_pod
from airflow_kftrain.monitoring.report import without_quoted, write_report
from airflow_kftrain.specs.timeouts import Timeouts
from tests.unit import test_job_state
from tests.unit.monitoring import test_pods
from tests.unit.monitoring.samples import (
    after,
    at,
    container,
    ended,
    job,
    pending,
    pod,
    running,
    unschedulable,
    waiting,
    worker,
)
from tests.unit.nonsense import JSON, spoiled

MESSAGE = "PyTorchJob train is failed because 1 Worker replica(s) failed."
LOST = job(Phase.FAILED, reason="PyTorchJobFailed", message=MESSAGE)


def event(reason: str, message: str, name: str = "train-worker-0", **more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": name}
    times = {"lastTimestamp": at(30), "count": 1}
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": about,
        **times,
        **more,
    }


def report(*pods: Any, state: JobState = LOST, **more: Any) -> list[str]:
    return write_report(PYTORCH_JOB, state, pods, **more).split("\n")


def log_of(number: int, end: int = 60) -> LogKey:
    """The log of the container that ended then."""
    return LogKey(f"train-worker-{number}", after(0), "pytorch", after(end))


def events_in(lines: list[str]) -> list[str]:
    start = lines.index("Events:") + 1 if "Events:" in lines else len(lines)
    return [line.strip() for line in lines[start:] if line.startswith("  ")]


def test_a_whole_report() -> None:
    text = write_report(
        PYTORCH_JOB,
        LOST,
        [
            worker(0, ended(1, 62)),
            worker(1, ended(137, 60, reason="OOMKilled")),
            worker(2, ended(143, 61)),
            worker(3, running()),
        ],
        logs={log_of(1, 60): "epoch 1\nepoch 2\n", log_of(0, 62): "lost my peer"},
        events=[event("FailedScheduling", "0/3 nodes fit", count=None, lastTimestamp=None)],
    )
    assert text == (
        "The PyTorchJob failed: exit code 137, OOMKilled (out of memory) in worker-1. Give this "
        "replica more memory, or make it use less.\n"
        "First failure:\n"
        "  worker-1: exit code 137, OOMKilled (out of memory), at 2026-11-21 12:01:00 UTC (pod "
        "train-worker-1, container pytorch)\n"
        "  The end of its log:\n"
        "    epoch 1\n"
        "    epoch 2\n"
        "Other failures:\n"
        "  worker-0: exit code 1, at 2026-11-21 12:01:02 UTC (pod train-worker-0, container "
        "pytorch)\n"
        "  worker-2: exit code 143 (SIGTERM, from outside), at 2026-11-21 12:01:01 UTC (pod "
        "train-worker-2, container pytorch)\n"
        "Events:\n"
        "  FailedScheduling (Pod train-worker-0): 0/3 nodes fit\n"
        "PyTorchJob Failed: PyTorchJobFailed: PyTorchJob train is failed because 1 Worker "
        "replica(s) failed.\n"
        "Retry: the cause lies in the job, so a retry helps only if the cause was temporary."
    )


def test_a_verdict_of_ours_opens_the_report() -> None:
    state = job(Phase.STARTING)
    pods = [pending(0, "InvalidImageName", "couldn't parse image name")]
    decision = decide(PYTORCH_JOB, state, pods, Timeouts(), after(0))
    lines = report(*pods, state=state, decision=decision)
    assert lines[0] == decision.words
    assert "couldn't parse image name" in lines[0]
    assert lines[-1] == "Retry: it cannot help until the cause is fixed."


@pytest.mark.parametrize(
    ("pods", "advice"),
    [
        ([worker(0, ended(1))], "Retry: the cause lies in the job"),
        ([worker(0, ended(137))], "Retry: it may help, since the cause lies in the cluster"),
    ],
)
def test_the_last_line_says_whether_a_retry_helps(pods: list[Any], advice: str) -> None:
    assert report(*pods)[-1].startswith(advice)


def test_nobody_is_blamed_for_a_deadline_or_for_a_node_that_is_too_small() -> None:
    late = job(Phase.FAILED, reason="DeadlineExceeded")
    assert report(state=late)[-1].startswith("Retry: it has the same time again")
    state, pods = job(Phase.STARTING), [unschedulable(0, "1 Insufficient cpu")]
    decision = decide(PYTORCH_JOB, state, pods, Timeouts(), after(10_000))
    assert report(*pods, state=state, decision=decision)[-1].startswith("Retry: it helps only if")


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.RUNNING])
def test_a_job_that_did_not_fail_gets_no_advice(phase: Phase) -> None:
    assert len(report(state=job(phase))) == 1


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.SUCCEEDED])
def test_of_a_job_that_did_not_fail_pods_ended_from_outside_are_no_failures(phase: Phase) -> None:
    lines = report(worker(0, ended(143, 60)), worker(1, ended(1, 59)), state=job(phase))
    failures = [line for line in lines if line.startswith("  worker-")]
    assert [line.partition(":")[0] for line in failures] == ["  worker-1"]
    assert "Other failures:" not in lines


def test_where_no_pod_is_left_the_report_says_why() -> None:
    text = write_report(TRAIN_JOB, job(Phase.FAILED, reason="FailedJobs"), [])
    assert "No pod could be read. After a failure the pods are deleted" in text
    assert "TrainJob Failed: FailedJobs" in text


def test_a_job_that_is_gone_is_reported_with_what_is_known() -> None:
    lines = report(worker(0, ended(1)), state=GONE)
    assert "no longer exists" in lines[0]
    assert lines[1:3] == [
        "First failure:",
        "  worker-0: exit code 1, at 2026-11-21 12:01:00 UTC (pod train-worker-0, container "
        "pytorch)",
    ]


def test_a_termination_message_is_told_unless_it_is_the_end_of_the_log() -> None:
    pods = [worker(0, ended(1, message="loss is NaN\n"))]
    alone = report(*pods)
    assert alone[3:5] == ["  Its termination message:", "    loss is NaN"]
    both = report(*pods, logs={log_of(0): "epoch 1\nexit"})
    assert both[3:8] == [
        "  Its termination message:",
        "    loss is NaN",
        "  The end of its log:",
        "    epoch 1",
        "    exit",
    ]
    once = report(*pods, logs={log_of(0): "epoch 1\nloss is NaN\n"})
    assert "  Its termination message:" not in once
    assert once.count("    loss is NaN") == 1


def test_the_message_of_an_evicted_pod_is_that_of_kubernetes() -> None:
    lines = report(worker(0, ended(137), reason="Evicted", message="The node was low on memory."))
    assert lines[3:5] == ["  Kubernetes says:", "    The node was low on memory."]


def test_of_pods_of_one_name_the_log_of_the_one_that_failed_is_quoted() -> None:
    before = worker(0, ended(130, 60))
    now = worker(0, ended(1, 90), created=70)
    logs = {log_of(0, 60): "the first", log_of(0, 90)._replace(created=after(70)): "the second"}
    lines = report(before, now, logs=logs)
    assert lines[2:5] == [
        "  worker-0: exit code 1, at 2026-11-21 12:01:30 UTC (pod train-worker-0, container "
        "pytorch)",
        "  The end of its log:",
        "    the second",
    ]


def test_a_long_log_is_cut_to_its_end() -> None:
    log = "\n".join(f"line {number}" for number in range(1000))
    lines = report(worker(0, ended(1)), logs={log_of(0): log})
    quoted = [line.strip() for line in lines if line.startswith("    ")]
    assert quoted == ["...", *(f"line {number}" for number in range(980, 1000))]


def test_what_the_report_quotes_of_a_log_is_not_its_end_again() -> None:
    log = "\n".join(f"line {number}" for number in range(30))
    pods = [worker(0, ended(1, message="loss is NaN"))]
    short = "\n".join(report(*pods, logs={log_of(0): "line 1\nline 2"}))
    assert without_quoted("line 1\nline 2", short) == ""
    assert without_quoted("...\nline 1\nline 2", short) == ""
    assert without_quoted("line 0\nline 1\nline 2", short) == "line 0"
    assert without_quoted("line 2", short) == ""
    assert without_quoted("of another pod", short) == "of another pod"
    long = "\n".join(report(*pods, logs={log_of(0): log}))
    assert without_quoted(log, long).splitlines() == [f"line {number}" for number in range(10)]
    assert without_quoted(log, "The PyTorchJob succeeded.") == log


def test_a_hundred_failures_are_counted() -> None:
    lines = report(*(worker(number, ended(1, 60 + number)) for number in range(100)))
    assert "  and 91 more" in lines
    assert len(lines) < 20


def test_events_come_in_the_order_of_time_and_the_latest_are_kept() -> None:
    events = [
        event("Failed", f"message {number}", lastTimestamp=at(number)) for number in range(20)
    ]
    told = events_in(report(events=events[::-1]))
    assert told[0] == "(12 older events omitted)"
    assert [line[-2:] for line in told[1:]] == [f"{number:2d}" for number in range(12, 20)]


def test_an_event_about_many_pods_is_told_once() -> None:
    uid = "01234567-89ab-cdef-0123-456789abcdef"
    events = [
        event("BackOff", f"restarting failed container in pod w-{n}_ml({uid})", f"w-{n}", count=3)
        for n in range(5)
    ]
    (told,) = events_in(report(events=events))
    assert told.startswith("BackOff (Pod w-0, Pod w-1 and 3 more, 15 times): restarting failed")


def test_a_long_event_keeps_its_end_where_the_cause_is() -> None:
    passed_on = "creation failed: " * 30
    (line,) = events_in(report(events=[event("Failed", f"{passed_on}the name is too long")]))
    assert line.startswith("Failed (Pod train-worker-0): creation failed: ")
    assert line.endswith("the name is too long")
    assert len(line) <= 300


def test_events_of_the_scheduler_have_their_own_count_and_time() -> None:
    late = event(
        "FailedScheduling",
        "late",
        count=None,
        lastTimestamp=None,
        eventTime="2026-11-21T11:00:00.000000Z",
        series={"count": 7, "lastObservedTime": at(50)},
    )
    early = event("FailedScheduling", "early", count=None, lastTimestamp=None, eventTime=at(40))
    told = events_in(report(events=[late, early]))
    assert told == [
        "FailedScheduling (Pod train-worker-0): early",
        "FailedScheduling (Pod train-worker-0, 7 times): late",
    ]


def test_events_of_the_newer_api_are_read_too() -> None:
    newer = {
        "type": "Warning",
        "reason": "FailedCreate",
        "note": "exceeded quota: gpu",
        "regarding": {"kind": "Job", "name": "train-node-0"},
        "deprecatedCount": 2,
        "deprecatedLastTimestamp": at(3),
    }
    assert events_in(report(events=[newer])) == [
        "FailedCreate (Job train-node-0, 2 times): exceeded quota: gpu"
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (event("FailedCreatePod", 'pods "a" is forbidden: exceeded quota'), True),
        (event("FailedCreatePod", 'object is being deleted: pods "a" already exists'), False),
        (event("MPIJobFailed", 'launcher pod created failed: pods "a" already exists'), False),
        (event("MPIJobFailed", 'worker pod created failed: pods "a" already exists'), False),
        (event("MPIJobFailed", 'launcher pod created failed: Pod "a" is invalid'), True),
        (event("FailedCreatePod", "Created worker pod: "), False),
        (event("Failed", "Error: ErrImagePull"), True),
        (event("ExitedWithCode", "Pod: ml.a exited with code 1", type="Normal"), True),
        (event("ExitedWithCode", "Pod: ml.a exited with code 0", type="Normal"), False),
        (event("ExitedWithCode", "Pod: ml.a exited with code 10", type="Normal"), True),
        (event("SuccessfulCreatePod", "Created pod: a", type="Normal"), False),
        (event("DNSConfigForming", "Search Line limits were exceeded"), False),
        (event("PyTorchJobFailed", MESSAGE), False),
        (None, False),
        ({"type": "Warning"}, True),
    ],
)
def test_only_events_that_matter_are_told(said: Any, told: bool) -> None:
    assert bool(events_in(report(events=[said]))) is told


EVENT = event(
    "FailedScheduling",
    "0/3 nodes fit",
    series={"count": 2, "lastObservedTime": at(3)},
    eventTime=at(1),
    regarding={"kind": "Pod", "name": "a"},
    metadata={"creationTimestamp": at(0)},
)


@given(
    st.sampled_from(KINDS),
    spoiled(test_job_state.SAMPLE),
    st.lists(spoiled(test_pods.SAMPLE), max_size=3),
    st.dictionaries(st.sampled_from([log_of(0), log_of(1)]), JSON, max_size=2),
    st.lists(st.one_of(JSON, spoiled(EVENT)), max_size=3),
    st.randoms(use_true_random=False),
)
def test_any_evidence_makes_a_bounded_report_that_is_always_the_same(
    kind: JobKind, resource: Any, raw: list[Any], logs: Any, events: list[Any], random: Any
) -> None:
    state = read_state(kind, resource)
    pods = [read_pod(kind, item) for item in raw]
    text = write_report(kind, state, pods, logs=logs, events=events)
    text.encode()
    random.shuffle(events)
    assert write_report(kind, state, pods, logs=logs, events=events) == text


def test_a_container_may_have_a_name_that_no_encoding_knows() -> None:
    """No server sends one, but a report that cannot be written would lose the job."""
    waits = pod(container(waiting("ImagePullBackOff"), name="\ud800"), phase="Pending")
    write_report(PYTORCH_JOB, job(Phase.STARTING), [waits]).encode()


def test_a_report_stays_small_whatever_it_is_given() -> None:
    much = "x" * 100_000
    state = job(Phase.FAILED, reason=much, message=much)
    pods = [
        worker(number, ended(1, reason=much, message=much), name=f"{much}-{number}")
        for number in range(200)
    ]
    events = [event(much, f"{number} {much}", f"{much}{number}") for number in range(200)]
    text = write_report(
        PYTORCH_JOB,
        state,
        pods,
        logs={log_of(0)._replace(pod=f"{much}-0"): much.replace("xx", "x\n")},
        events=events,
    )
    assert len(text.encode()) < 16_000


def test_a_report_about_a_job_that_waits_too_long_says_for_what() -> None:
    state = job(Phase.STARTING)
    pods = [pending(0, "ContainerCreating")]
    late = after(0) + timedelta(days=1)
    decision = decide(PYTORCH_JOB, state, pods, Timeouts(), late)
    assert report(*pods, state=state, decision=decision) == [
        "The PyTorchJob did not start within 0:30:00 (Timeouts.startup). 0 of 1 pods of the "
        "PyTorchJob run; worker-0: is being created (image, volumes).",
        "Retry: it helps only if the cause passes. Where the cause lies is not known.",
    ]
