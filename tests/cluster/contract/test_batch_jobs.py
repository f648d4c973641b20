"""Job of batch/v1, which mpi-operator and JobSet make."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.jobs import shell
from tests.cluster.world import Job, World, eventually
from tests.control_plane.api import Manifest

API_VERSION = "batch/v1"


def create(world: World, script: str, policy: str = "Never", **spec: Any) -> Job:
    """A job with one pod unless the spec says otherwise. It is not recorded."""
    main = {"name": "main", "image": "x", "command": shell(script)}
    pod = {"restartPolicy": policy, "containers": [main], "terminationGracePeriodSeconds": 1}
    template = {"spec": pod, "metadata": {"labels": {"mine": "yes"}}}
    body = {"apiVersion": API_VERSION, "kind": "Job", "metadata": {"name": "job"}}
    created = world.create({**body, "spec": {"template": template, **spec}})
    return Job(world, world.path("Job", "job", API_VERSION), created)


def said(job: Job, condition: str) -> tuple[str, str]:
    """(reason, message) of a condition, as soon as it is True."""
    found = job.becomes(condition)
    return found["reason"], found["message"]


def pods_until(job: Job, good: Callable[[list[Manifest]], Any]) -> list[Manifest]:
    def look() -> tuple[list[Manifest]] | None:
        pods = job.pods()
        return (pods,) if good(pods) else None

    return eventually(look, job.pods)[0]


def wait_until_no_pods(job: Job) -> None:
    pods_until(job, lambda pods: not pods)


def all_run(pods: list[Manifest]) -> bool:
    return bool(pods) and all(pod["status"].get("phase") == "Running" for pod in pods)


# ----- ends


def test_a_job_is_complete_when_its_pod_succeeds(world: World) -> None:
    job = create(world, "true")
    reached = ("CompletionsReached", "Reached expected number of succeeded pods")
    assert said(job, "Complete") == reached
    assert said(job, "SuccessCriteriaMet") == reached
    status = job.status
    assert (status["succeeded"], status["ready"], status["terminating"]) == (1, 0, 0)
    assert "failed" not in status
    assert "active" not in status
    assert status["startTime"] <= status["completionTime"]
    assert status["uncountedTerminatedPods"] == {}


def test_several_completions_run_as_many_at_once_as_parallelism_allows(world: World) -> None:
    job = create(world, "sleep 0.3", completions=3, parallelism=2)
    assert job.until(lambda now: now.get("status", {}).get("active") == 2)
    job.becomes("Complete")
    assert job.status["succeeded"] == 3
    assert len(job.pods()) == 3


def test_backoff_limit_zero_fails_a_job_at_its_first_pod(world: World) -> None:
    job = create(world, "exit 3", backoffLimit=0)
    exceeded = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert said(job, "Failed") == exceeded
    assert said(job, "FailureTarget") == exceeded
    assert job.status["failed"] == 1
    assert "completionTime" not in job.status
    (pod,) = job.pods()
    assert pod["status"]["phase"] == "Failed"
    event = world.told("BackoffLimitExceeded", "Job/job")
    assert (event.type, event.message) == ("Warning", exceeded[1])


def test_under_never_each_try_is_a_pod_of_its_own(world: World) -> None:
    # The second pod comes after a pause of ten seconds.
    job = create(world, "exit 3", backoffLimit=1)
    pods = pods_until(job, lambda pods: len(pods) == 2)
    assert pods[0]["metadata"]["uid"] != pods[1]["metadata"]["uid"]
    job.becomes("Failed")
    assert job.status["failed"] == 2


def test_under_on_failure_restarts_of_the_container_count(world: World) -> None:
    job = create(world, "exit 3", "OnFailure", backoffLimit=1)
    assert said(job, "Failed")[0] == "BackoffLimitExceeded"
    # Its pod is deleted, and its log with it.
    wait_until_no_pods(job)
    assert world.told("SuccessfulDelete", "Job/job").message.startswith("Deleted pod: job-")


def test_active_deadline_of_a_job_fails_it_and_deletes_its_pods(world: World) -> None:
    job = create(world, "sleep 1000", activeDeadlineSeconds=1)
    wanted = ("DeadlineExceeded", "Job was active longer than specified deadline")
    assert said(job, "Failed") == wanted
    wait_until_no_pods(job)
    assert world.told("DeadlineExceeded", "Job/job").type == "Warning"


@pytest.mark.parametrize("script", ["true", "false"])
def test_ttl_removes_a_finished_job_and_its_pods(world: World, script: str) -> None:
    job = create(world, script, backoffLimit=0, ttlSecondsAfterFinished=1)
    eventually(job.is_gone, job.now)
    wait_until_no_pods(job)


def test_pod_failure_policy_fails_a_job_on_an_exit_code(world: World) -> None:
    rule = {
        "action": "FailJob",
        "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]},
    }
    job = create(world, "exit 42", backoffLimit=6, podFailurePolicy={"rules": [rule]})
    (pod,) = pods_until(job, bool)
    name = pod["metadata"]["name"]
    assert said(job, "Failed") == (
        "PodFailurePolicy",
        f"Container main for pod {world.namespace}/{name} failed with exit code 42"
        " matching FailJob rule at index 0",
    )
    assert job.pod_names() == [name]


def test_pod_failure_policy_can_ignore_an_exit_code(world: World) -> None:
    rules = [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [43]}},
    ]
    job = create(world, "exit 42", backoffLimit=0, podFailurePolicy={"rules": rules})
    pods_until(job, lambda pods: len(pods) >= 2)
    assert not {"Failed", "FailureTarget"} & job.conditions().keys()
    assert "failed" not in job.status


# ----- its pods


def test_names_labels_and_owner_of_its_pods(world: World) -> None:
    job = create(world, "true")
    (pod,) = pods_until(job, bool)
    metadata, uid = pod["metadata"], job.created["metadata"]["uid"]
    assert re.fullmatch(r"job-[a-z0-9]{5}", metadata["name"])
    assert metadata["generateName"] == "job-"
    assert metadata["labels"] == {
        "mine": "yes",
        "job-name": "job",
        "batch.kubernetes.io/job-name": "job",
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": API_VERSION,
            "kind": "Job",
            "name": "job",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert job.created["spec"]["selector"] == {
        "matchLabels": {"batch.kubernetes.io/controller-uid": uid}
    }


def test_a_finished_pod_loses_the_finalizer_by_which_it_is_counted(world: World) -> None:
    tracking = "batch.kubernetes.io/job-tracking"
    job = create(world, "sleep 1")
    pods_until(job, all_run)
    assert job.pods()[0]["metadata"]["finalizers"] == [tracking]
    job.becomes("Complete")
    assert "finalizers" not in job.pods()[0]["metadata"]


def test_indexed_pods_know_their_index(world: World) -> None:
    index = "batch.kubernetes.io/job-completion-index"
    script = "echo index $JOB_COMPLETION_INDEX of $HOSTNAME"
    job = create(world, script, completions=2, parallelism=2, completionMode="Indexed")
    job.becomes("Complete")
    assert job.status["completedIndexes"] == "0,1"
    pods = job.pods()
    for number, pod in enumerate(pods):
        metadata = pod["metadata"]
        assert re.fullmatch(rf"job-{number}-[a-z0-9]{{5}}", metadata["name"])
        assert metadata["annotations"][index] == metadata["labels"][index] == str(number)
        assert pod["spec"]["hostname"] == f"job-{number}"
        variables = pod["spec"]["containers"][0]["env"]
        field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{index}']"}
        assert variables == [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}]
        log = job.pod(metadata["name"]).log().text
        assert log == f"index {number} of job-{number}\n"


def test_events_of_a_job(world: World) -> None:
    job = create(world, "true")
    job.becomes("Complete")
    created = world.told("SuccessfulCreate", "Job/job")
    assert (created.type, created.message) == ("Normal", f"Created pod: {job.pod_names()[0]}")
    completed = world.told("Completed", "Job/job")
    assert (completed.type, completed.message) == ("Normal", "Job completed")


def test_a_pod_that_is_deleted_is_replaced(world: World) -> None:
    job = create(world, "sleep 1000")
    (pod,) = pods_until(job, all_run)
    job.pod(pod["metadata"]["name"]).delete()
    uid = pod["metadata"]["uid"]
    pods_until(job, lambda pods: len(pods) == 1 and pods[0]["metadata"]["uid"] != uid)
    job.until(lambda now: now["status"].get("failed") == 1)
    assert "Failed" not in job.conditions()


# ----- suspend


def test_a_job_is_suspended_and_resumed(world: World) -> None:
    job = create(world, "sleep 1000")
    pods_until(job, all_run)
    job.patch({"spec": {"suspend": True}})
    assert said(job, "Suspended") == ("JobSuspended", "Job suspended")
    wait_until_no_pods(job)
    assert "startTime" not in job.status
    job.patch({"spec": {"suspend": False}})
    pods_until(job, all_run)
    condition = job.until(lambda now: now["status"].get("startTime")) and job.conditions()
    found = condition["Suspended"]
    assert (found["status"], found["reason"], found["message"]) == (
        "False",
        "JobResumed",
        "Job resumed",
    )
    for reason in ("Suspended", "Resumed", "SuccessfulDelete"):
        world.told(reason, "Job/job")


def test_a_job_that_is_created_suspended_has_no_pods_until_it_is_resumed(world: World) -> None:
    job = create(world, "true", suspend=True)
    assert said(job, "Suspended") == ("JobSuspended", "Job suspended")
    assert not job.pods()
    job.patch({"spec": {"suspend": False}})
    job.becomes("Complete")


# ----- deletion


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_takes_the_pods_along(world: World, policy: str) -> None:
    job = create(world, "sleep 1000")
    pods_until(job, all_run)
    answer = job.delete(propagationPolicy=policy)
    assert answer.code == 200
    if policy == "Foreground":
        assert answer.object["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert answer.object["metadata"]["deletionTimestamp"]
    wait_until_no_pods(job)
    eventually(job.is_gone)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"propagationPolicy": "Orphan"}, id="Orphan"),
        pytest.param({}, id="without-a-policy"),
    ],
)
def test_deletion_leaves_the_pods_alone(world: World, options: Manifest) -> None:
    job = create(world, "sleep 1000")
    (pod,) = pods_until(job, all_run)
    job.delete(**options)
    eventually(job.is_gone)
    (left,) = pods_until(job, lambda pods: "ownerReferences" not in pods[0]["metadata"])
    assert left["metadata"]["uid"] == pod["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


# ----- the API


def test_defaults_of_a_job(world: World) -> None:
    spec = create(world, "sleep 1000").created["spec"]
    defaults = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "suspend": False,
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert defaults.items() <= spec.items()


def test_restart_policy_always_is_refused(world: World) -> None:
    main = {"name": "main", "image": "x"}
    spec = {"template": {"spec": {"restartPolicy": "Always", "containers": [main]}}}
    body = {"apiVersion": API_VERSION, "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
    refused = world.try_create(body)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure"' in (
        refused.message
    )


def test_the_template_of_a_job_cannot_be_changed(world: World) -> None:
    job = create(world, "sleep 1000")
    path, body = job.path, {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}
    refused = world.api.call(
        "PATCH", path, body, content_type="application/strategic-merge-patch+json"
    )
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert "spec.template: Invalid value" in refused.message
    assert refused.message.endswith("field is immutable")
