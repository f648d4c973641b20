"""TFJob: what differs from PyTorchJob."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.jobs import replica, tf_job
from tests.cluster.v1 import (
    FOR_EVER,
    counts,
    ended,
    made_anew,
    only,
    operator_looks_again,
    variables,
)
from tests.cluster.world import Job, World, eventually
from tests.control_plane.api import Manifest


def tensorflow(
    script: str = "true", count: int = 1, policy: str = "Never", **more: Any
) -> Manifest:
    return replica("tensorflow", script, count, policy, **more)


def _done(world: World) -> str:
    return f"TFJob {world.namespace}/job successfully completed."


def _failed(world: World, role: str) -> str:
    return f"TFJob {world.namespace}/job has failed because 1 {role} replica(s) failed."


@pytest.mark.parametrize("leader", ["Chief", "Master"])
def test_the_end_of_the_chief_ends_the_job(world: World, leader: str) -> None:
    roles = {
        leader: tensorflow("sleep 3"),
        "Worker": tensorflow(FOR_EVER),
        "PS": tensorflow(FOR_EVER),
    }
    job = world.submit(tf_job(roles))
    running = job.becomes("Running")
    assert running["message"] == f"TFJob {world.namespace}/job is running."
    job.pod("job-ps-0").phase("Running")
    end = job.succeeds()
    assert (end["reason"], end["message"]) == ("TFJobSucceeded", _done(world))
    # The default leaves them running.
    operator_looks_again(job)
    for name in ("job-ps-0", "job-worker-0"):
        assert job.pod(name).status["phase"] == "Running"


def test_a_worker_that_is_done_does_not_end_a_job_with_a_chief(world: World) -> None:
    roles = {"Chief": tensorflow(FOR_EVER), "Worker": tensorflow()}
    job = world.submit(tf_job(roles))
    job.until(lambda _: counts(job) == {"Chief": {"active": 1}, "Worker": {"succeeded": 1}})
    operator_looks_again(job)
    assert job.is_true("Running")
    assert "Succeeded" not in job.conditions()


def test_without_a_chief_the_end_of_worker_0_ends_the_job(world: World) -> None:
    workers = tensorflow(count=2, **only("job-worker-1", FOR_EVER, "sleep 2"))
    job = world.submit(tf_job({"Worker": workers}))
    job.pod("job-worker-1").phase("Running")
    end = job.succeeds()
    assert end["message"] == _done(world)
    assert job.pod("job-worker-1").status["phase"] == "Running"


def test_without_a_chief_another_worker_does_not_end_the_job(world: World) -> None:
    workers = tensorflow(count=2, **only("job-worker-0", FOR_EVER))
    job = world.submit(tf_job({"Worker": workers}))
    job.until(lambda _: counts(job) == {"Worker": {"active": 1, "succeeded": 1}})
    operator_looks_again(job)
    assert job.is_true("Running")


def test_all_workers_have_to_be_done_where_the_success_policy_says_so(world: World) -> None:
    workers = tensorflow(count=2, **only("job-worker-1", "sleep 3"))
    job = world.submit(tf_job({"Worker": workers}, successPolicy="AllWorkers"))
    job.until(lambda _: counts(job) == {"Worker": {"active": 1, "succeeded": 1}})
    assert job.is_true("Running")
    job.succeeds()
    assert job.pod("job-worker-1").status["phase"] == "Succeeded"


def test_parameter_servers_are_cleaned_up_when_the_workers_are_done(world: World) -> None:
    roles = {"PS": tensorflow(FOR_EVER), "Worker": tensorflow("sleep 2")}
    job = world.submit(tf_job(roles, run_policy={"cleanPodPolicy": "Running"}))
    job.pod("job-ps-0").phase("Running")
    job.succeeds()
    eventually(lambda: job.pod_names() == world.names("Service") == ["job-worker-0"])


@pytest.mark.parametrize("role", ["Chief", "Worker", "PS", "Evaluator"])
def test_any_role_that_fails_fails_the_job(world: World, role: str) -> None:
    roles = {name: tensorflow(FOR_EVER) for name in ("Chief", "Worker", "PS", "Evaluator")}
    roles[role] = tensorflow("sleep 1; exit 3")
    job = world.submit(tf_job(roles))
    end = job.fails()
    assert (end["reason"], end["message"]) == ("TFJobFailed", _failed(world, role))
    assert job.status["completionTime"]


def test_the_end_of_an_evaluator_ends_nothing(world: World) -> None:
    roles = {"Chief": tensorflow(FOR_EVER), "Evaluator": tensorflow()}
    job = world.submit(tf_job(roles))
    job.until(lambda _: counts(job).get("Evaluator") == {"succeeded": 1})
    job.becomes("Running")
    operator_looks_again(job)
    assert "Succeeded" not in job.conditions()


def test_a_job_of_parameter_servers_alone_never_ends(world: World) -> None:
    job = world.submit(tf_job({"PS": tensorflow("sleep 1", count=2)}))
    job.until(lambda _: counts(job) == {"PS": {"succeeded": 2}})
    operator_looks_again(job)
    assert set(job.conditions()) <= {"Created"}


def test_dynamic_workers_may_fail(world: World) -> None:
    roles = {"Chief": tensorflow("sleep 4"), "Worker": tensorflow("exit 1", count=2)}
    job = world.submit(tf_job(roles, enableDynamicWorker=True))
    job.until(lambda _: counts(job).get("Worker") == {"failed": 2})
    assert "Failed" not in job.conditions()
    job.succeeds()


def test_exit_code_fails_the_job_with_a_completion_time(world: World) -> None:
    job = world.submit(tf_job({"Worker": tensorflow("exit 1", policy="ExitCode")}))
    end = job.fails()
    assert end["message"] == 'job "job" is failing because "Worker" replica(s) failed.'
    assert job.status["completionTime"]


def test_exit_code_makes_the_pod_anew_after_a_retryable_code(world: World) -> None:
    roles = {"Chief": tensorflow(FOR_EVER), "Worker": tensorflow("exit 130", policy="ExitCode")}
    job = world.submit(tf_job(roles))
    first = job.first_seen("job-worker-0")
    told = world.told("TFJobRestarting", "TFJob/job")
    assert told.message == "job job is restarting because Worker replica(s) failed."
    made_anew(job, first)
    assert "Failed" not in job.conditions()


def test_restarts_are_counted_up_to_the_backoff_limit(world: World) -> None:
    roles = {"Chief": tensorflow(FOR_EVER), "Worker": tensorflow("exit 1", policy="OnFailure")}
    job = world.submit(tf_job(roles, run_policy={"backoffLimit": 2}))
    end = job.fails()
    assert end["message"] == "Job job has failed because it has reached the specified backoff limit"


def test_names_labels_and_services_of_all_roles(world: World) -> None:
    roles = {name: tensorflow(FOR_EVER) for name in ("Chief", "Worker", "PS", "Evaluator")}
    job = world.start(tf_job(roles))
    names = ["job-chief-0", "job-evaluator-0", "job-ps-0", "job-worker-0"]
    eventually(lambda: job.pod_names() == world.names("Service") == names)
    prefix = "training.kubeflow.org/"
    for pod, service in zip(job.pods(), world.listed("Service"), strict=True):
        role = pod["metadata"]["name"].split("-")[1]
        labels = {
            prefix + "operator-name": "tfjob-controller",
            prefix + "job-name": "job",
            prefix + "replica-type": role,
            prefix + "replica-index": "0",
        }
        leads = {prefix + "job-role": "master"} if role == "chief" else {}
        assert pod["metadata"]["labels"] == labels | leads
        assert service["spec"]["selector"] == labels
        (port,) = service["spec"]["ports"]
        assert (port["name"], port["port"]) == ("tfjob-port", 2222)


def test_without_a_chief_worker_0_bears_the_role_of_the_master(world: World) -> None:
    job = world.start(tf_job({"Worker": tensorflow(count=2), "PS": tensorflow()}))
    role = "training.kubeflow.org/job-role"
    labels = [job.pod(f"job-worker-{i}").now()["metadata"]["labels"] for i in range(2)]
    assert [found.get(role) for found in labels] == ["master", None]


def _config(job: Job, pod: str) -> Any:
    ((name, value),) = variables(job.pod(pod).now())
    assert name == "TF_CONFIG"
    return json.loads(value)


def test_every_role_is_told_the_cluster_and_its_task(world: World) -> None:
    roles = {
        "Chief": tensorflow(),
        "Worker": tensorflow(count=2),
        "PS": tensorflow(),
        "Evaluator": tensorflow(),
    }
    job = world.start(tf_job(roles))
    domain = f"{world.namespace}.svc:2222"
    cluster = {
        "chief": [f"job-chief-0.{domain}"],
        "evaluator": [f"job-evaluator-0.{domain}"],
        "ps": [f"job-ps-0.{domain}"],
        "worker": [f"job-worker-0.{domain}", f"job-worker-1.{domain}"],
    }
    tasks = [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1), ("evaluator", 0)]
    for role, index in tasks:
        assert _config(job, f"job-{role}-{index}") == {
            "cluster": cluster,
            "task": {"type": role, "index": index},
            "environment": "cloud",
        }


def test_dynamic_workers_are_told_of_themselves_and_the_servers_only(world: World) -> None:
    roles = {"Worker": tensorflow(count=2), "PS": tensorflow(count=2), "Chief": tensorflow()}
    job = world.start(tf_job(roles, enableDynamicWorker=True))
    domain = f"{world.namespace}.svc:2222"
    ps = [f"job-ps-{index}.{domain}" for index in range(2)]
    assert _config(job, "job-worker-1") == {
        "cluster": {"worker": {"1": f"job-worker-1.{domain}"}, "ps": ps},
        "task": {"type": "worker", "index": 1},
    }
    # A server gets only itself, a chief nothing.
    assert _config(job, "job-ps-1")["cluster"] == {"worker": {}, "ps": ps[1:]}
    assert _config(job, "job-chief-0") == {
        "cluster": {"worker": {}, "ps": []},
        "task": {"type": "chief", "index": 0},
    }


def test_a_job_of_one_replica_is_told_nothing(world: World) -> None:
    job = world.start(tf_job({"Worker": tensorflow()}))
    assert variables(job.pod("job-worker-0").now()) == []


def test_only_the_container_named_tensorflow_is_told(world: World) -> None:
    role = tensorflow(count=2)
    sidecar = {"name": "beside", "image": "x", "command": ["true"]}
    role["template"]["spec"]["containers"].append(sidecar)
    job = world.start(tf_job({"Worker": role}))
    pod = job.pod("job-worker-0").now()
    assert [name for name, _ in variables(pod)] == ["TF_CONFIG"]
    assert variables(pod, 1) == []


def test_a_role_in_lower_case_is_meant(world: World) -> None:
    job = world.submit(tf_job({"worker": tensorflow()}))
    job.succeeds()
    assert job.pod_names() == ["job-worker-0"]
    assert set(job.status["replicaStatuses"]) == {"Worker"}


def test_an_unknown_role_runs_and_never_counts(world: World) -> None:
    job = world.submit(tf_job({"Worker": tensorflow(FOR_EVER), "Helper": tensorflow("exit 1")}))
    assert ended(job.pod("job-helper-0").until(ended))["exitCode"] == 1
    job.becomes("Running")
    operator_looks_again(job)
    assert "Failed" not in job.conditions()


def test_time_to_live_takes_the_job(world: World) -> None:
    job = world.submit(tf_job({"Worker": tensorflow()}, run_policy={"ttlSecondsAfterFinished": 2}))
    job.succeeds()
    eventually(job.is_gone)
    assert world.told("SuccessfulDeleteJob", "TFJob/job").message == "Deleted job: job"
