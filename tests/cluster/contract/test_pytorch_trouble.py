"""PyTorchJob: what keeps it from starting."""

from __future__ import annotations

import pytest

from tests.cluster.jobs import pytorch_job
from tests.cluster.v1 import FOR_EVER, ended, pytorch, waiting
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest


def test_a_replica_without_a_node_leaves_the_job_created(world: World) -> None:
    nowhere = {"nodeSelector": {"no-such": "label"}}
    roles = {"Master": pytorch(FOR_EVER, pod=nowhere), "Worker": pytorch(FOR_EVER)}
    job = world.submit(pytorch_job(roles))
    told = world.told("FailedScheduling", "Pod/job-master-0")
    assert told.type == "Warning"
    assert "1 node(s) didn't match Pod's node affinity/selector" in told.message
    conditions = job.pod("job-master-0").until(
        lambda pod: any(item["status"] == "False" for item in pod["status"].get("conditions") or [])
    )["status"]["conditions"]
    (scheduled,) = (item for item in conditions if item["type"] == "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    again = world.told("Unschedulable", "PyTorchJob/job")
    assert again.type == "Warning"
    assert again.message == f"Error pod job-master-0 condition message: {scheduled['message']}"
    job.pod("job-worker-0").phase("Running")
    assert set(job.conditions()) <= {"Created"}


def test_events_of_the_scheduler_have_no_count_and_no_last_time(world: World) -> None:
    nowhere = {"nodeSelector": {"no-such": "label"}}
    world.start(pytorch_job({"Master": pytorch(pod=nowhere)}))
    world.told("FailedScheduling")
    (event,) = (item for item in world.listed("Event") if item["reason"] == "FailedScheduling")
    assert (event.get("count"), event.get("firstTimestamp"), event.get("lastTimestamp")) == (
        None,
        None,
        None,
    )
    assert event["eventTime"]
    assert event["reportingComponent"] == "default-scheduler"


_CANNOT_START = [
    pytest.param({"image": "missing/image"}, {"ErrImagePull", "ImagePullBackOff"}, id="pull"),
    pytest.param({"image": "invalid//name"}, {"InvalidImageName"}, id="name"),
    pytest.param(
        {"envFrom": [{"secretRef": {"name": "no"}}]}, {"CreateContainerConfigError"}, id="secret"
    ),
    pytest.param(
        {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}}}]},
        {"CreateContainerConfigError"},
        id="config-map",
    ),
]


@pytest.mark.parametrize(("container", "reasons"), _CANNOT_START)
def test_a_container_that_cannot_start_leaves_the_job_created(
    world: World, container: Manifest, reasons: set[str]
) -> None:
    roles = {"Master": pytorch(**container), "Worker": pytorch(FOR_EVER)}
    job = world.submit(pytorch_job(roles))
    pod = job.pod("job-master-0").until(lambda pod: waiting(pod).get("reason") in reasons)
    assert pod["status"]["phase"] == "Pending"
    job.pod("job-worker-0").phase("Running")
    told = eventually(
        lambda: next(
            (
                event
                for event in world.events()
                if event.object == "PyTorchJob/job" and event.reason in reasons
            ),
            None,
        )
    )
    assert told.type == "Warning"
    assert told.message.startswith("Error pod job-master-0 container pytorch waiting message: ")
    assert set(job.conditions()) <= {"Created"}


def test_a_missing_secret_is_named_in_the_waiting_message(world: World) -> None:
    secret: Manifest = {"envFrom": [{"secretRef": {"name": "no"}}]}
    job = world.start(pytorch_job({"Master": pytorch(**secret)}))
    pod = job.pod("job-master-0").until(lambda pod: waiting(pod).get("message"))
    assert waiting(pod)["message"] == 'secret "no" not found'


def test_a_replica_that_runs_out_of_memory_fails_the_job(world: World) -> None:
    program = "x = bytearray(300 << 20); import time; time.sleep(60)"
    limits: Manifest = {"resources": {"limits": {"memory": "100Mi"}}}
    roles = {
        "Master": pytorch(FOR_EVER),
        "Worker": pytorch(f"exec python -c '{program}'", **limits),
    }
    job = world.submit(pytorch_job(roles))
    job.fails()
    end = ended(job.pod("job-worker-0").now())
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")


def test_out_of_memory_is_retryable_under_exit_code(world: World) -> None:
    program = "x = bytearray(300 << 20); import time; time.sleep(60)"
    limits: Manifest = {"resources": {"limits": {"memory": "100Mi"}}}
    worker = pytorch(f"exec python -c '{program}'", policy="ExitCode", **limits)
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER), "Worker": worker}))
    told = world.told("PyTorchJobRestarting")
    assert told.message in {
        "job job is restarting because Worker replica(s) failed.",
        "PyTorchJob job is restarting because 1 Worker replica(s) failed.",
    }
    assert "Failed" not in job.conditions()


def test_a_name_too_long_for_services_leaves_the_status_empty_while_pods_run(
    world: World,
) -> None:
    name = "n" * 55
    job = world.submit(pytorch_job({"Master": pytorch()}, name=name))
    assert job.pod(f"{name}-master-0").ends()["phase"] == "Succeeded"
    told = world.told("FailedCreateService")
    assert told.type == "Warning"
    assert f'Service "{name}-master-0" is invalid: metadata.name: Invalid value' in told.message
    assert "must be no more than 63 characters" in told.message
    assert not job.status.get("replicaStatuses")
    assert set(job.conditions()) <= {"Created"}
    assert world.names("Service") == []


def test_a_name_of_54_characters_is_just_short_enough(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch()}, name="n" * 54))
    job.succeeds()
    assert world.names("Service") == ["n" * 54 + "-master-0"]


def test_an_unknown_restart_policy_is_taken_and_no_pod_is_made(world: World) -> None:
    job = world.submit(pytorch_job({"Master": pytorch(policy="Sometimes")}))
    told = world.told("FailedCreatePod", "PyTorchJob/job")
    assert told.type == "Warning"
    assert 'spec.restartPolicy: Unsupported value: "Sometimes"' in told.message
    assert job.pods() == []


@pytest.mark.real_only("there are no quotas")
def test_a_pod_beyond_the_quota_is_told_and_not_made(world: World) -> None:
    hard = {"pods": "1"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    world.create({**quota, "spec": {"hard": hard}})
    eventually(lambda: world.listed("ResourceQuota")[0].get("status", {}).get("hard"))
    job = world.submit(pytorch_job({"Master": pytorch(FOR_EVER), "Worker": pytorch(FOR_EVER)}))
    told = world.told("FailedCreatePod", "PyTorchJob/job")
    assert "is forbidden: exceeded quota: q, requested: pods=1, used: pods=1" in told.message
    assert len(job.pods()) == 1
