from datetime import timedelta

import pytest

from airflow_kftrain.job_state import JobState, Phase, ReplicaCount, Reported
from airflow_kftrain.kinds import PYTORCH_JOB, JobReference
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict, judge
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.pods import ContainerEnd, PodState
from airflow_kftrain.specs.timeouts import Timeouts
from airflow_kftrain.watching.course import COUNTS_PAUSE, FAIL_FAST_GRACE, Course
from tests.unit.monitoring.samples import NOON, after

ORDER = WatchOrder(JobReference("PyTorchJob", "ml", "train-1", "uid"), "kubeflow.org/v1")
RUNNING = JobState(Phase.RUNNING, "PyTorchJobRunning", replicas=(ReplicaCount("Worker", 1),))


def course(**fields):
    return Course(ORDER._replace(**fields), PYTORCH_JOB)


def workers(active, succeeded=0):
    return (ReplicaCount("Worker", active, succeeded),)


def test_a_state_is_told_once():
    told = course()
    assert list(told.state_lines(RUNNING, NOON)) == [
        "PyTorchJob ml/train-1: Running (Worker 1 active)"
    ]
    assert list(told.state_lines(RUNNING, after(600))) == []
    assert not told.has_unlogged(RUNNING)


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (JobState(Phase.STARTING), "Starting"),
        (JobState(Phase.QUEUED, "Suspended"), "Queued, Suspended"),
        (JobState(Phase.RUNNING, "Running", progress=Reported(40)), "Running, 40 % done"),
        (
            JobState(Phase.RUNNING, replicas=(ReplicaCount("Master"), ReplicaCount("PS", 1, 2, 3))),
            "Running (PS 1 active, 2 succeeded, 3 failed)",
        ),
    ],
)
def test_a_line_tells_phase_reason_counts_and_progress(state, line):
    assert list(course().state_lines(state, NOON)) == [f"PyTorchJob ml/train-1: {line}"]


def test_counts_are_told_now_and_then_and_a_phase_at_once():
    told = course()
    list(told.state_lines(RUNNING, NOON))
    more = RUNNING._replace(replicas=workers(2))
    assert list(told.state_lines(more, after(1))) == []
    assert told.has_unlogged(more)
    assert told.counts_due(after(1)) == NOON + COUNTS_PAUSE
    assert len(list(told.state_lines(more, NOON + COUNTS_PAUSE))) == 1
    ended = RUNNING._replace(phase=Phase.SUCCEEDED, replicas=workers(0, 2))
    assert len(list(told.state_lines(ended, NOON + COUNTS_PAUSE))) == 1


def test_what_it_waits_for_is_told_when_that_changes_and_again_after_it_ran():
    told = course()
    queued = JobState(Phase.QUEUED)
    decision = judge(PYTORCH_JOB, queued, ())

    def tell(words, quiet=False):
        decided = decision._replace(words=words)
        return list(told.waiting_lines(decided, quiet=quiet))

    assert tell("a") == ["a"]
    assert tell("a") == []
    assert tell("b") == ["b"]
    assert tell("", quiet=True) == []
    assert tell("b") == ["b"]


def test_numbers_alone_are_no_news_of_a_queue():
    told = course()
    decision = judge(PYTORCH_JOB, JobState(Phase.QUEUED, queue="gpu"), ())

    def tell(words, verdict=Verdict.WAIT):
        return list(told.queue_lines(decision._replace(words=words, verdict=verdict)))

    assert tell("1 more needed") == ["1 more needed"]
    assert tell("12 more needed") == []
    assert tell("evicted") == ["evicted"]
    assert tell("1 more needed") == ["1 more needed"]
    assert tell("deactivated", Verdict.FAILED) == []


def failed_pod(**fields):
    end = ContainerEnd("pytorch", "main", 3, reason="Error", finished=NOON)
    return PodState("train-1-worker-0", "worker", 0, phase="Failed", ends=(end,))._replace(**fields)


def test_who_wants_it_fast_gives_the_operator_a_moment_after_a_failure():
    told = course(fail_fast=True)
    first = told.decide(RUNNING, [failed_pod()], NOON)
    assert (first.verdict, first.until) == (Verdict.WAIT, NOON + FAIL_FAST_GRACE)
    ended = told.decide(RUNNING, [failed_pod()], NOON + FAIL_FAST_GRACE)
    assert (ended.verdict, ended.reason, ended.fault) == (Verdict.FAILED, "Error", Fault.USER)
    assert "in worker-0, and the task does not wait" in ended.words
    assert "exit code 3" in ended.words
    assert ended.retryable


def test_a_failure_that_was_mended_meanwhile_ends_nothing():
    told = course(fail_fast=True)
    told.decide(RUNNING, [failed_pod(created=NOON)], NOON)
    anew = PodState("train-1-worker-0", "worker", 0, phase="Running", runs=True, created=after(3))
    mended = told.decide(RUNNING, [failed_pod(created=NOON), anew], after(60))
    assert (mended.verdict, mended.until) == (Verdict.WAIT, None)


def test_without_haste_a_failed_pod_of_a_living_job_ends_nothing():
    decision = course().decide(RUNNING, [failed_pod()], after(3600))
    assert decision.verdict is Verdict.WAIT


def test_the_job_has_the_last_word():
    succeeded = RUNNING._replace(phase=Phase.SUCCEEDED)
    told = course(fail_fast=True, deadline=NOON)
    assert told.decide(succeeded, [failed_pod()], after(60)).verdict is Verdict.SUCCEEDED


def test_a_job_that_was_never_seen_has_no_limit_but_the_deadline():
    patience = Timeouts(startup=timedelta(0), operator=timedelta(0))
    told = course(timeouts=patience, deadline=after(60))
    waits = told.decide(None, [], NOON)
    assert (waits.verdict, waits.until) == (Verdict.WAIT, after(60))
    assert told.decide(None, [], after(60)).verdict is Verdict.TIMED_OUT
    assert course(timeouts=patience).decide(None, [], after(10**6)).verdict is Verdict.WAIT


def test_a_job_that_is_not_there_is_told_once_and_at_the_deadline():
    told = course(deadline=after(60))
    assert "unfinished" in told.decide(None, [], after(60)).words
    (line,) = told.missing_lines()
    assert line.endswith(" has not appeared yet; waiting for it.")
    assert list(told.missing_lines()) == []
    assert told.decide(None, [], after(59)).verdict is Verdict.WAIT
    late = told.decide(None, [], after(60))
    assert late.verdict is Verdict.TIMED_OUT
    assert "had not appeared when the task's execution timeout was up" in late.words
