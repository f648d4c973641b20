"""PyTorchJob: run policy, suspension and updates."""

from __future__ import annotations

import time

import pytest

from tests.cluster.jobs import pytorch_job
from tests.cluster.v1 import (
    FOR_EVER,
    Said,
    counts,
    let_go,
    only,
    operator_looks_again,
    pytorch,
    restarts,
    run_before,
    said,
    uid,
    until_let_go,
    waiting,
)
from tests.cluster.world import Job, World, eventually
from tests.control_plane.api import Manifest

_BACKOFF = "Job job has failed because it has reached the specified backoff limit"
_DEADLINE = "Job job has failed because it was active longer than specified deadline"


def _policy(clean: str | None) -> Manifest:
    return {} if clean is None else {"cleanPodPolicy": clean}


_ALL_THREE = ["job-master-0", "job-worker-0", "job-worker-1"]
_LEFT_BY = pytest.mark.parametrize(
    ("clean", "left"),
    [
        pytest.param(None, _ALL_THREE, id="default"),
        pytest.param("None", _ALL_THREE, id="None"),
        pytest.param("Running", _ALL_THREE[:2], id="Running"),
        pytest.param("All", [], id="All"),
    ],
)


def _are_left(world: World, job: Job, left: list[str]) -> None:
    """Pods and services of the same names. Everything else was deleted; these stay."""
    eventually(lambda: job.pod_names() == left)
    eventually(lambda: world.names("Service") == left)
    operator_looks_again(job)
    assert job.pod_names() == world.names("Service") == left


@_LEFT_BY
def test_clean_pod_policy_after_a_success(world: World, clean: str | None, left: list[str]) -> None:
    """Worker 0 has succeeded, worker 1 still runs."""
    workers = pytorch(count=2, **only("job-worker-1", FOR_EVER))
    roles = {"Master": pytorch("sleep 3"), "Worker": workers}
    job = world.submit(pytorch_job(roles, run_policy=_policy(clean)))
    job.pod("job-worker-0").ends()
    job.pod("job-worker-1").phase("Running")
    job.succeeds()
    _are_left(world, job, left)


@_LEFT_BY
def test_clean_pod_policy_after_a_failure(world: World, clean: str | None, left: list[str]) -> None:
    """The master has failed, worker 0 has succeeded, worker 1 still runs."""
    workers = pytorch(count=2, **only("job-worker-1", FOR_EVER))
    roles = {"Master": pytorch("sleep 3; exit 1"), "Worker": workers}
    job = world.submit(pytorch_job(roles, run_policy=_policy(clean)))
    job.pod("job-worker-0").ends()
    job.pod("job-worker-1").phase("Running")
    job.fails()
    _are_left(world, job, left)


def test_an_unknown_clean_pod_policy_cleans_all(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch()}, run_policy=_policy("Nonsense")))
    job.succeeds()
    eventually(lambda: not job.pods() and not world.names("Service"))


@pytest.mark.parametrize("code", [0, 1])
def test_time_to_live_takes_the_job_and_its_pods(world: World, code: int) -> None:
    policy = {"ttlSecondsAfterFinished": 2}
    job = world.submit(pytorch_job({"Master": pytorch(f"exit {code}")}, run_policy=policy))
    job.fails() if code else job.succeeds()
    eventually(job.is_gone)
    eventually(lambda: not job.pods() and not world.names("Service"))
    # This is the job that was deleted.
    told = world.told("SuccessfulDeletePod", "PyTorchJob/job")
    assert told.message == "Deleted job: job"


def test_time_to_live_never_fires_after_a_failure_under_exit_code(world: World) -> None:
    policy = {"ttlSecondsAfterFinished": 0}
    job = world.submit(
        pytorch_job({"Master": pytorch("exit 1", policy="ExitCode")}, run_policy=policy)
    )
    job.fails()
    operator_looks_again(job)
    assert "completionTime" not in job.status
    assert "deletionTimestamp" not in job.now()["metadata"]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_backoff_limit_counts_restarts_of_containers(world: World, limit: int) -> None:
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch("exit 5", policy="OnFailure")}
    job = world.submit(pytorch_job(roles, run_policy={"backoffLimit": limit}))
    end = job.fails()
    assert (end["reason"], end["message"]) == ("PyTorchJobFailed", _BACKOFF)
    assert job.status["completionTime"]
    assert restarts(job.pod("job-worker-0").now()) >= max(limit, 1)


def test_replicas_are_still_called_active_after_the_backoff_limit(world: World) -> None:
    policy = {"backoffLimit": 1, "cleanPodPolicy": "All"}
    crash = pytorch("sleep 2; exit 5", policy="OnFailure")
    roles = {"Master": pytorch(FOR_EVER), "Worker": crash}
    job = world.submit(pytorch_job(roles, run_policy=policy))
    job.until(lambda _: counts(job) == {"Master": {"active": 1}, "Worker": {"active": 1}})
    job.fails()
    eventually(lambda: not job.pods())
    operator_looks_again(job)
    assert counts(job) == {"Master": {"active": 1}, "Worker": {"active": 1}}


def test_backoff_limit_has_no_effect_with_never(world: World) -> None:
    policy = {"backoffLimit": 3}
    job = world.submit(pytorch_job({"Master": pytorch("exit 5")}, run_policy=policy))
    end = job.fails()
    assert end["message"] == "PyTorchJob job is failed because 1 Master replica(s) failed."


def test_backoff_limit_zero_is_told_instead_of_the_failed_replica(world: World) -> None:
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch("exit 5")}
    job = world.submit(pytorch_job(roles, run_policy={"backoffLimit": 0}))
    assert job.fails()["message"] == _BACKOFF


def test_backoff_limit_is_not_reached_by_pods_that_are_made_anew(world: World) -> None:
    roles = {"Master": pytorch("exit 137", policy="ExitCode")}
    job = world.submit(pytorch_job(roles, run_policy={"backoffLimit": 1}))
    seen: set[str] = set()

    def three_pods() -> bool:
        seen.update(uid(pod) for pod in job.pods())
        return len(seen) >= 3

    eventually(three_pods)
    assert "Failed" not in job.conditions()


def test_clean_pod_policy_running_deletes_the_pod_that_crashed_at_the_backoff_limit(
    world: World,
) -> None:
    fall_back: Manifest = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    crash = pytorch("echo last words; exit 5", policy="OnFailure", **fall_back)
    policy = {"backoffLimit": 2, "cleanPodPolicy": "Running"}
    job = world.submit(pytorch_job({"Master": crash}, run_policy=policy))
    pod = job.pod("job-master-0").until(run_before)
    assert run_before(pod)["message"] == "last words\n"
    job.fails()
    eventually(lambda: not job.pods())


def test_active_deadline_is_looked_at_only_when_something_else_happens(world: World) -> None:
    policy = {"activeDeadlineSeconds": 2}
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER)}, run_policy=policy))
    job.becomes("Running")
    # Nothing happens, so only time can show it.
    time.sleep(5)
    assert "Failed" not in job.conditions()
    job.patch({"metadata": {"labels": {"something": "happens"}}})
    end = job.fails()
    assert (end["reason"], end["message"]) == ("PyTorchJobFailed", _DEADLINE)
    assert job.status["completionTime"]
    assert counts(job) == {"Master": {"active": 1}}
    assert job.pod("job-master-0").status["phase"] == "Running"


def test_a_job_that_is_suspended_from_the_start_has_no_pods_until_it_is_resumed(
    world: World,
) -> None:
    roles = {"Master": pytorch("sleep 1"), "Worker": pytorch()}
    job = world.submit(pytorch_job(roles, run_policy={"suspend": True}))
    suspended = job.becomes("Suspended")
    assert suspended["reason"] == "PyTorchJobSuspended"
    assert suspended["message"] == "PyTorchJob job is suspended."
    operator_looks_again(job)
    assert "startTime" not in job.status
    assert job.pods() == world.listed("Service") == []
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.succeeds()
    resumed = Said("False", "PyTorchJobResumed", "PyTorchJob job is resumed.")
    assert said(job)["Suspended"] == resumed
    assert job.status["startTime"]
    for reason in ("PyTorchJobSuspended", "PyTorchJobResumed"):
        world.told(reason, "PyTorchJob/job")


def test_suspending_a_running_job_deletes_its_pods_and_resuming_makes_them_anew(
    world: World,
) -> None:
    roles = {"Master": pytorch(**until_let_go(FOR_EVER)), "Worker": pytorch(FOR_EVER)}
    job = world.submit(pytorch_job(roles, run_policy={"cleanPodPolicy": "None"}))
    job.becomes("Running")
    for name in ("job-master-0", "job-worker-0"):
        job.pod(name).phase("Running")
    before = {uid(pod) for pod in job.pods()}
    started = job.status["startTime"]
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.becomes("Suspended")
    eventually(lambda: not job.pods() and not world.names("Service"))
    running = said(job)["Running"]
    assert running == Said("False", "PyTorchJobSuspended", "PyTorchJob job is suspended.")
    assert job.status["startTime"] == started
    assert "completionTime" not in job.status
    job.until(lambda _: not any(found.get("active") for found in counts(job).values()))
    let_go(world)
    time.sleep(1)  # the compared times are in whole seconds
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.succeeds()
    assert not before & {uid(pod) for pod in job.pods()}
    assert job.status["startTime"] > started
    assert said(job)["Suspended"].reason == "PyTorchJobResumed"


def test_a_job_of_another_controller_is_left_alone(world: World) -> None:
    managed = {"managedBy": "kueue.x-k8s.io/multikueue"}
    job = world.submit(pytorch_job({"Master": pytorch()}, run_policy=managed))
    operator_looks_again(job)
    assert job.status == {}
    assert job.pods() == world.listed("Service") == []
    assert world.events() == set()


def test_a_job_may_name_its_controller(world: World) -> None:
    managed = {"managedBy": "kubeflow.org/training-operator"}
    job = world.submit(pytorch_job({"Master": pytorch()}, run_policy=managed))
    job.succeeds()


def test_scheduling_policy_means_nothing_without_a_gang_scheduler(world: World) -> None:
    policy = {"schedulingPolicy": {"minAvailable": 5, "queue": "q", "priorityClass": "no-such"}}
    job = world.submit(pytorch_job({"Master": pytorch()}, run_policy=policy))
    job.succeeds()
    (pod,) = job.pods()
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert "priorityClassName" not in pod["spec"]


def test_more_workers_of_a_running_job_are_made_and_the_others_not_told(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER), "Worker": pytorch(FOR_EVER)}))
    first = job.first_seen("job-worker-0")
    job.becomes("Running")
    job.patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    second = job.pod("job-worker-1")
    assert second.env()["WORLD_SIZE"] == "3"
    assert uid(job.pod("job-worker-0").now()) == uid(first)
    assert job.pod("job-worker-0").env()["WORLD_SIZE"] == "2"
    eventually(lambda: "job-worker-1" in world.names("Service"))


def test_fewer_workers_of_a_running_job_are_deleted_with_their_services(world: World) -> None:
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch(FOR_EVER, count=2, policy="OnFailure")}
    job = world.submit(pytorch_job(roles))
    for name in ("job-worker-0", "job-worker-1"):
        job.pod(name).phase("Running")
    job.patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}})
    left = ["job-master-0", "job-worker-0"]
    eventually(lambda: job.pod_names() == world.names("Service") == left)
    assert "Failed" not in job.conditions()


def test_a_new_template_reaches_only_pods_that_are_made_later(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER), "Worker": pytorch(FOR_EVER)}))
    job.becomes("Running")
    roles = {"Worker": pytorch(FOR_EVER, count=2)}
    roles["Worker"]["template"]["spec"]["containers"][0]["image"] = "y"
    job.patch({"spec": {"pytorchReplicaSpecs": roles}})
    new = job.pod("job-worker-1").now()
    old = job.pod("job-worker-0").now()
    assert [pod["spec"]["containers"][0]["image"] for pod in (old, new)] == ["x", "y"]


def test_a_crash_loop_without_a_limit_keeps_the_job_running(world: World) -> None:
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch("exit 1", policy="OnFailure")}
    job = world.submit(pytorch_job(roles))
    pod = job.pod("job-worker-0").until(
        lambda pod: restarts(pod) >= 2 and waiting(pod).get("reason") == "CrashLoopBackOff"
    )
    assert pod["status"]["phase"] == "Running"
    assert job.is_true("Running")
    job.until(lambda _: counts(job)["Worker"] == {"active": 1})
    assert not {"Failed", "Restarting"} & job.conditions().keys()
    told = world.told("CrashLoopBackOff", "PyTorchJob/job")
    assert told.message.startswith("Error pod job-worker-0 container pytorch waiting message: ")
