"""PyTorchJob: how it runs and ends."""

from __future__ import annotations

import pytest

from tests.cluster.jobs import pytorch_job
from tests.cluster.v1 import (
    FOR_EVER,
    STUBBORN,
    Said,
    counts,
    ended,
    is_stubborn,
    let_go,
    made_anew,
    only,
    operator_looks_again,
    pytorch,
    restarts,
    run_before,
    said,
    uid,
    until_let_go,
)
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest


def test_success_of_master_and_workers(world: World) -> None:
    roles = {"Master": pytorch("sleep 1"), "Worker": pytorch(count=2)}
    job = world.submit(pytorch_job(roles, run_policy={"cleanPodPolicy": "None"}))
    end = job.succeeds()
    assert (end["status"], end["reason"]) == ("True", "PyTorchJobSucceeded")
    assert end["message"] == "PyTorchJob job is successfully completed."
    assert job.pod_names() == ["job-master-0", "job-worker-0", "job-worker-1"]


def test_success_of_a_master_alone(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch("sleep 3")}))
    running = job.becomes("Running")
    assert running["message"] == "PyTorchJob job is running."
    assert counts(job) == {"Master": {"active": 1}}
    job.succeeds()
    status = job.status
    assert (
        status["completionTime"]
        > status["startTime"]
        >= job.created["metadata"]["creationTimestamp"]
    )
    found = said(job)
    # It is written to a cache first, where it may get lost.
    created = Said("True", "PyTorchJobCreated", "PyTorchJob job is created.")
    assert found.pop("Created", created) == created
    succeeded = "PyTorchJob job is successfully completed."
    assert found == {
        "Running": Said("False", "PyTorchJobRunning", "PyTorchJob job is running."),
        "Succeeded": Said("True", "PyTorchJobSucceeded", succeeded),
    }


def test_without_a_master_all_workers_have_to_succeed(world: World) -> None:
    worker = pytorch(count=2, **only("job-worker-1", "sleep 3"))
    job = world.submit(pytorch_job({"Worker": worker}))
    job.until(lambda _: counts(job) == {"Worker": {"active": 1, "succeeded": 1}})
    assert job.is_true("Running")
    end = job.succeeds()
    assert end["message"] == f"PyTorchJob {world.namespace}/job successfully completed."
    assert said(job)["Running"].message == f"PyTorchJob {world.namespace}/job is running."
    assert counts(job) == {"Worker": {"succeeded": 2}}


def test_a_fast_job_need_not_have_been_running(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch(), "Worker": pytorch(count=2)}))
    job.succeeds()
    found = said(job)
    assert {"Succeeded"} <= found.keys() <= {"Created", "Running", "Succeeded"}
    assert found.get("Running", Said("False", "", "")).status == "False"


def test_a_master_that_is_done_ends_the_job_and_leaves_the_workers_running(world: World) -> None:
    roles = {"Master": pytorch("sleep 3"), "Worker": pytorch(FOR_EVER)}
    job = world.submit(pytorch_job(roles))
    job.pod("job-worker-0").phase("Running")
    job.succeeds()
    # Says so about a worker that runs, and about one that fails later: a second status shows that.
    job.until(lambda _: counts(job)["Worker"] == {"succeeded": 1})
    assert job.pod("job-worker-0").status["phase"] == "Running"


def test_a_worker_that_exited_with_1_is_counted_as_succeeded(world: World) -> None:
    roles = {"Master": pytorch("sleep 3"), "Worker": pytorch("sleep 5; exit 1")}
    job = world.submit(pytorch_job(roles))
    job.succeeds()
    worker = job.pod("job-worker-0").ends()
    assert worker["phase"] == "Failed"
    operator_looks_again(job)
    assert counts(job)["Worker"] == {"succeeded": 1}


def test_a_worker_that_fails_under_never_fails_the_job(world: World) -> None:
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch("sleep 2; exit 3")}
    job = world.submit(pytorch_job(roles))
    job.becomes("Running")
    end = job.fails()
    assert end["reason"] == "PyTorchJobFailed"
    assert end["message"] == "PyTorchJob job is failed because 1 Worker replica(s) failed."
    assert said(job)["Running"] == Said("False", "PyTorchJobRunning", "PyTorchJob job is running.")
    assert job.status["completionTime"]
    assert job.pod("job-master-0").status["phase"] == "Running"


def test_a_master_that_fails_under_never_fails_the_job(world: World) -> None:
    roles = {"Master": pytorch("sleep 1; exit 7"), "Worker": pytorch(FOR_EVER)}
    job = world.submit(pytorch_job(roles))
    end = job.fails()
    assert end["message"] == "PyTorchJob job is failed because 1 Master replica(s) failed."
    assert ended(job.pod("job-master-0").now())["exitCode"] == 7


def test_a_failure_stays_although_the_master_succeeds_later(world: World) -> None:
    roles = {"Master": pytorch("sleep 3"), "Worker": pytorch("exit 1")}
    job = world.submit(pytorch_job(roles))
    job.fails()
    assert job.pod("job-master-0").ends()["phase"] == "Succeeded"
    operator_looks_again(job)
    assert "Succeeded" not in job.conditions()


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_a_container_that_fails_is_restarted_in_its_pod(world: World, policy: str) -> None:
    script = "[ -e /once/file ] || { touch /once/file; exit 1; }; sleep 2"
    mount: Manifest = {"volumeMounts": [{"name": "once", "mountPath": "/once"}]}
    volume = {"volumes": [{"name": "once", "emptyDir": {}}]}
    roles = {
        "Master": pytorch("sleep 6"),
        "Worker": pytorch(script, policy=policy, pod=volume, **mount),
    }
    job = world.submit(pytorch_job(roles))
    worker = job.pod("job-worker-0")
    first = worker.now()
    again = worker.until(run_before)
    assert uid(again) == uid(first)
    assert again["status"]["phase"] == "Running"
    last = run_before(again)
    assert (last["exitCode"], last["reason"]) == (1, "Error")
    assert "Restarting" not in job.conditions()
    job.succeeds()


def test_always_restarts_what_succeeded_so_that_the_job_never_ends(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch("sleep 0.2", policy="Always")}))
    master = job.pod("job-master-0").until(lambda pod: restarts(pod) >= 2 and run_before(pod))
    last = run_before(master)
    assert (last["exitCode"], last["reason"]) == (0, "Completed")
    assert job.is_true("Running")
    assert "Succeeded" not in job.conditions()


@pytest.mark.parametrize("code", [128, 137, 255])
def test_exit_code_makes_the_pod_anew_after_a_retryable_code(world: World, code: int) -> None:
    roles = {
        "Master": pytorch(FOR_EVER),
        "Worker": pytorch(policy="ExitCode", **until_let_go(f"exit {code}")),
    }
    job = world.submit(pytorch_job(roles))
    first = job.first_seen("job-worker-0")
    assert first["spec"]["restartPolicy"] == "Never"
    told = world.told("ExitedWithCode")
    assert told.message == f"Pod: {world.namespace}.job-worker-0 exited with code {code}"
    restarting = world.told("PyTorchJobRestarting", "PyTorchJob/job")
    assert restarting.type == "Warning"
    assert restarting.message in {
        "job job is restarting because Worker replica(s) failed.",
        "PyTorchJob job is restarting because 1 Worker replica(s) failed.",
    }
    let_go(world)
    made_anew(job, first, "Succeeded")
    assert "Failed" not in job.conditions()


def test_restarting_and_running_take_each_others_place(world: World) -> None:
    job = world.submit(
        pytorch_job({"Master": pytorch(policy="ExitCode", **until_let_go("exit 130"))})
    )
    restarting = job.becomes("Restarting")
    assert restarting["reason"] == "PyTorchJobRestarting"
    true = {name for name, item in said(job).items() if item.status == "True"}
    assert not {"Running", "Restarting"} <= true
    let_go(world)
    job.succeeds()


@pytest.mark.parametrize("code", [1, 127])
def test_exit_code_fails_the_job_after_a_permanent_code(world: World, code: int) -> None:
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch(f"exit {code}", policy="ExitCode")}
    job = world.submit(pytorch_job(roles, run_policy={"ttlSecondsAfterFinished": 0}))
    end = job.fails()
    assert end["reason"] == "PyTorchJobFailed"
    assert end["message"] == 'job "job" is failing because "Worker" replica(s) failed.'
    assert world.told("PyTorchJobFailed", "PyTorchJob/job").type == "Warning"
    assert "completionTime" not in job.status


def test_a_pod_that_kubernetes_ended_is_made_anew_under_on_failure(world: World) -> None:
    short = {"activeDeadlineSeconds": 1}
    roles = {
        "Master": pytorch(FOR_EVER),
        "Worker": pytorch(FOR_EVER, policy="OnFailure", pod=short),
    }
    job = world.submit(pytorch_job(roles))
    first = job.first_seen("job-worker-0")
    told = world.told("PyTorchJobRestarting", "PyTorchJob/job")
    assert told.type == "Warning"
    made_anew(job, first)
    assert not {"Failed", "Succeeded"} & job.conditions().keys()


def test_a_pod_that_kubernetes_ended_fails_the_job_under_never(world: World) -> None:
    short = {"activeDeadlineSeconds": 1}
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER, pod=short)}))
    end = job.fails()
    assert end["message"] == "PyTorchJob job is failed because 1 Master replica(s) failed."
    assert job.pod("job-master-0").status["reason"] == "DeadlineExceeded"


def test_events_of_a_success(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch("sleep 1"), "Worker": pytorch()}))
    job.succeeds()
    world.told("PyTorchJobSucceeded")
    about = {event[1:] for event in world.events() if event.object == "PyTorchJob/job"}
    made = {
        ("Normal", f"SuccessfulCreate{kind}", f"Created {kind.lower()}: {name}")
        for kind in ("Pod", "Service")
        for name in ("job-master-0", "job-worker-0")
    }
    exited = f"Pod: {world.namespace}.job-master-0 exited with code 0"
    assert about >= {
        *made,
        ("Normal", "ExitedWithCode", exited),
        ("Normal", "PyTorchJobSucceeded", "PyTorchJob job is successfully completed."),
    }
    # There are no events for Created and Running.
    assert not {reason for _, reason, _ in about} & {"PyTorchJobCreated", "PyTorchJobRunning"}
    of_the_pod = {event.reason for event in world.events() if event.object == "Pod/job-master-0"}
    assert of_the_pod >= {"Scheduled", "Started"}


def test_events_of_a_failure(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch("exit 2")}))
    job.fails()
    failed = world.told("PyTorchJobFailed")
    # Normal although it is a failure; but under ExitCode it is a Warning.
    assert failed[1:] == (
        "Normal",
        "PyTorchJobFailed",
        "PyTorchJob job is failed because 1 Master replica(s) failed.",
    )
    told = world.told("ExitedWithCode")
    assert told.type == "Normal"
    assert told.message == f"Pod: {world.namespace}.job-master-0 exited with code 2"


def test_a_running_worker_that_is_deleted_under_never_fails_the_job(world: World) -> None:
    # For a moment it is Running with a deletionTimestamp, and counts as failed.
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch(STUBBORN)}
    job = world.submit(pytorch_job(roles))
    worker = job.pod("job-worker-0")
    is_stubborn(worker)
    worker.delete()
    end = job.fails()
    assert end["message"] == "PyTorchJob job is failed because 1 Worker replica(s) failed."


def test_a_running_worker_that_is_deleted_under_on_failure_is_made_anew(world: World) -> None:
    roles = {"Master": pytorch(FOR_EVER), "Worker": pytorch(STUBBORN, policy="OnFailure")}
    job = world.submit(pytorch_job(roles))
    worker = job.pod("job-worker-0")
    first = worker.now()
    is_stubborn(worker)
    worker.delete()
    # Of the conditions Restarting and Running the one that is written later stays, at random.
    message = "PyTorchJob job is restarting because 1 Worker replica(s) failed."
    eventually(lambda: any(event.message == message for event in world.events()))
    made_anew(job, first, "Running")
    job.becomes("Running")
    assert "Failed" not in job.conditions()


def test_a_service_that_is_deleted_is_made_anew(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER)}))
    job.becomes("Running")
    (service,) = world.listed("Service")
    world.api.call("DELETE", world.path("Service", "job-master-0"))

    def again() -> bool:
        return any(uid(item) != uid(service) for item in world.listed("Service"))

    eventually(again)
    assert world.names("Service") == ["job-master-0"]


@pytest.mark.parametrize("how", ["Background", "Foreground"])
def test_pods_and_services_of_a_deleted_job_go_with_it(world: World, how: str) -> None:
    stubborn = pytorch(STUBBORN)
    job = world.submit(pytorch_job({"Master": stubborn, "Worker": stubborn}))
    for name in ("job-master-0", "job-worker-0"):
        is_stubborn(job.pod(name))
    assert job.delete(propagationPolicy=how).code == 200
    assert job.is_gone() == (how == "Background")
    master = job.pod("job-master-0").until(lambda pod: "deletionTimestamp" in pod["metadata"])
    assert master["metadata"]["deletionGracePeriodSeconds"] == 2
    eventually(lambda: not job.pods() and not world.names("Service") and job.is_gone())


def test_pods_of_a_job_that_is_deleted_as_an_orphan_stay(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER)}))
    master = job.pod("job-master-0")
    master.phase("Running")
    job.delete(propagationPolicy="Orphan")
    eventually(job.is_gone)
    found = master.now()
    assert "ownerReferences" not in found["metadata"]
    assert found["status"]["phase"] == "Running"
    assert world.names("Service") == ["job-master-0"]


def test_an_elastic_job_is_done_when_one_worker_is(world: World) -> None:
    worker = pytorch(count=2, **only("job-worker-0", "sleep 1", FOR_EVER))
    job = world.submit(pytorch_job({"Worker": worker}, elasticPolicy={"minReplicas": 1}))
    end = job.succeeds()
    assert end["message"] == f"PyTorchJob {world.namespace}/job successfully completed."


def test_an_elastic_job_under_never_fails_with_one_worker(world: World) -> None:
    worker = pytorch(count=2, **only("job-worker-1", "sleep 1; exit 1", FOR_EVER))
    policy = {"minReplicas": 1, "maxReplicas": 2, "maxRestarts": 3}
    job = world.submit(pytorch_job({"Worker": worker}, elasticPolicy=policy))
    end = job.fails()
    assert end["message"] == "PyTorchJob job is failed because 1 Worker replica(s) failed."


def test_an_elastic_job_under_on_failure_survives_the_loss_of_a_worker(world: World) -> None:
    script = only("job-worker-1", "sleep 1; exit 1", "sleep 5")
    worker = pytorch(count=2, policy="OnFailure", **script)
    policy = {"minReplicas": 1, "maxReplicas": 2}
    job = world.submit(pytorch_job({"Worker": worker}, elasticPolicy=policy))
    job.pod("job-worker-1").until(restarts)
    assert job.is_true("Running")
    job.succeeds()
