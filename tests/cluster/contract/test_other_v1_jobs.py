"""XGBoostJob, PaddleJob and JAXJob: what differs from PyTorchJob."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.cluster.jobs import jax_job, paddle_job, replica, tf_job, xgboost_job
from tests.cluster.v1 import (
    FOR_EVER,
    STUBBORN,
    Said,
    counts,
    each_of,
    is_stubborn,
    let_go,
    made_anew,
    not_run,
    only,
    operator_looks_again,
    restarts,
    said,
    until_let_go,
    variables,
)
from tests.cluster.world import Job, World, eventually
from tests.control_plane.api import Manifest


class Kind(NamedTuple):
    make: Callable[..., Manifest]
    container: str
    leader: str
    """The role that a job of this kind requires."""
    port: tuple[str, int]
    policy: str
    """The default restart policy."""

    @property
    def name(self) -> str:
        return str(self.make({})["kind"])

    @property
    def pod(self) -> str:
        """The pod of the leader."""
        return f"job-{self.leader.lower()}-0"

    def job(self, script: str, policy: str | None = "Never", **spec: Any) -> Manifest:
        return self.make({self.leader: replica(self.container, script, 1, policy)}, **spec)


_XGBOOST = Kind(xgboost_job, "xgboost", "Master", ("xgboostjob-port", 9999), "Never")
_PADDLE = Kind(paddle_job, "paddle", "Worker", ("master", 36543), "OnFailure")
_JAX = Kind(jax_job, "jax", "Worker", ("jaxjob-port", 6666), "Never")
_TF = Kind(tf_job, "tensorflow", "Worker", ("tfjob-port", 2222), "Never")

_OTHERS = {"xgboost": _XGBOOST, "paddle": _PADDLE, "jax": _JAX}
each_kind = each_of(_OTHERS)
each_but_pytorch = each_of({**_OTHERS, "tf": _TF})


@each_kind
def test_conditions_of_a_success(world: World, kind: Kind) -> None:
    job = world.submit(kind.job("sleep 3"))
    job.becomes("Running")
    end = job.succeeds()
    who = "job" if kind is _XGBOOST else f"{world.namespace}/job"
    is_done = "is successfully" if kind is _XGBOOST else "successfully"
    assert (end["reason"], end["message"]) == (
        f"{kind.name}Succeeded",
        f"{kind.name} {who} {is_done} completed.",
    )
    running = Said("False", f"{kind.name}Running", f"{kind.name} {who} is running.")
    assert said(job)["Running"] == running
    created = Said("True", f"{kind.name}Created", f"{kind.name} job is created.")
    assert said(job).get("Created", created) == created
    assert job.status["completionTime"] >= job.status["startTime"]


@each_kind
def test_conditions_of_a_failure_under_never(world: World, kind: Kind) -> None:
    job = world.submit(kind.job("sleep 1; exit 3"))
    end = job.fails()
    assert (end["reason"], end["message"]) == (
        f"{kind.name}Failed",
        f"{kind.name} job is failed because 1 {kind.leader} replica(s) failed.",
    )
    assert job.status["completionTime"]
    told = world.told(f"{kind.name}Failed", f"{kind.name}/job")
    assert (told.type, told.message) == ("Normal", end["message"])


@each_kind
def test_exit_code_fails_the_job_after_a_permanent_code(world: World, kind: Kind) -> None:
    job = world.submit(kind.job("exit 2", "ExitCode"))
    end = job.fails()
    assert end["message"] == f'job "job" is failing because "{kind.leader}" replica(s) failed.'
    assert "completionTime" not in job.status


@each_kind
def test_exit_code_makes_the_pod_anew_after_a_retryable_code(world: World, kind: Kind) -> None:
    role = replica(kind.container, count=1, policy="ExitCode", **until_let_go("exit 137"))
    job = world.submit(kind.make({kind.leader: role}))
    first = job.first_seen(kind.pod)
    told = world.told(f"{kind.name}Restarting", f"{kind.name}/job")
    assert told.message in {
        f"job job is restarting because {kind.leader} replica(s) failed.",
        f"{kind.name} job is restarting because 1 {kind.leader} replica(s) failed.",
    }
    made_anew(job, first)
    let_go(world)
    job.succeeds()


@each_kind
def test_containers_are_restarted_until_the_backoff_limit(world: World, kind: Kind) -> None:
    job = world.submit(kind.job("exit 4", "OnFailure", run_policy={"backoffLimit": 2}))
    end = job.fails()
    assert end["message"] == "Job job has failed because it has reached the specified backoff limit"
    assert restarts(job.pod(kind.pod).now()) >= 2


@each_but_pytorch
def test_default_restart_policy(world: World, kind: Kind) -> None:
    job = world.start(kind.job("true", None))
    assert job.pod(kind.pod).now()["spec"]["restartPolicy"] == kind.policy


@each_but_pytorch
def test_suspending_and_resuming(world: World, kind: Kind) -> None:
    job = world.submit(kind.job(FOR_EVER))
    job.becomes("Running")
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    suspended = job.becomes("Suspended")
    assert suspended["reason"] == f"{kind.name}Suspended"
    assert suspended["message"] == f"{kind.name} job is suspended."
    assert said(job)["Running"][:2] == ("False", f"{kind.name}Suspended")
    eventually(lambda: not job.pods() and not world.names("Service"))
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.becomes("Running")
    resumed = Said("False", f"{kind.name}Resumed", f"{kind.name} job is resumed.")
    assert said(job)["Suspended"] == resumed


@each_kind
def test_time_to_live_takes_the_job(world: World, kind: Kind) -> None:
    job = world.submit(kind.job("true", run_policy={"ttlSecondsAfterFinished": 2}))
    job.succeeds()
    eventually(job.is_gone)
    reason = "SuccessfulDeleteJob" if kind is _XGBOOST else "SuccessfulDeletePod"
    assert world.told(reason, f"{kind.name}/job").message == "Deleted job: job"


@each_kind
def test_names_labels_and_services(world: World, kind: Kind) -> None:
    job = world.start(kind.job(FOR_EVER))
    eventually(lambda: job.pod_names() == world.names("Service") == [kind.pod])
    prefix = "training.kubeflow.org/"
    labels = {
        prefix + "operator-name": f"{kind.name.lower()}-controller",
        prefix + "job-name": "job",
        prefix + "replica-type": kind.leader.lower(),
        prefix + "replica-index": "0",
    }
    leads = {} if kind is _PADDLE else {prefix + "job-role": "master"}
    ((pod,), (service,)) = job.pods(), world.listed("Service")
    assert pod["metadata"]["labels"] == labels | leads
    assert service["metadata"]["labels"] == service["spec"]["selector"] == labels
    assert service["spec"]["clusterIP"] == "None"
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"]) == kind.port


@not_run
def test_the_role_of_the_master_is_labelled_in_each_kind(world: World) -> None:
    roles = {"Master": replica("paddle"), "Worker": replica("paddle")}
    job = world.start(paddle_job(roles))
    role = "training.kubeflow.org/job-role"
    names = ("job-master-0", "job-worker-0")
    found = [job.pod(name).now()["metadata"]["labels"].get(role) for name in names]
    assert found == ["master", None]


@not_run
def test_only_the_first_jax_worker_is_labelled_as_the_master(world: World) -> None:
    job = world.start(jax_job({"Worker": replica("jax", count=2)}))
    role = "training.kubeflow.org/job-role"
    names = ("job-worker-0", "job-worker-1")
    found = [job.pod(name).now()["metadata"]["labels"].get(role) for name in names]
    assert found == ["master", None]


def _env(job: Job, pod: str) -> list[tuple[str, str]]:
    return variables(job.pod(pod).now())


@not_run
def test_variables_of_an_xgboost_job(world: World) -> None:
    roles = {"Master": replica("xgboost"), "Worker": replica("xgboost", count=2)}
    job = world.start(xgboost_job(roles))
    for rank, name in enumerate(["job-master-0", "job-worker-0", "job-worker-1"]):
        assert _env(job, name) == [
            ("MASTER_PORT", "9999"),
            ("MASTER_ADDR", "job-master-0"),
            ("WORLD_SIZE", "3"),
            ("RANK", str(rank)),
            ("PYTHONUNBUFFERED", "1"),
            ("WORKER_PORT", "9999"),
            ("WORKER_ADDRS", "job-worker-0,job-worker-1"),
        ]


@not_run
def test_variables_of_an_xgboost_master_alone(world: World) -> None:
    job = world.start(_XGBOOST.job("true"))
    assert _env(job, "job-master-0") == [
        ("MASTER_PORT", "9999"),
        ("MASTER_ADDR", "job-master-0"),
        ("WORLD_SIZE", "1"),
        ("RANK", "0"),
        ("PYTHONUNBUFFERED", "1"),
    ]


@not_run
def test_variables_of_a_paddle_job_of_workers(world: World) -> None:
    job = world.start(paddle_job({"Worker": replica("paddle", count=2)}))
    same = [("PYTHONUNBUFFERED", "1"), ("PADDLE_JOB_ID", "job"), ("PADDLE_NNODES", "2")]
    first = [("POD_IP_DUMMY", ""), ("PADDLE_MASTER", "$(POD_IP_DUMMY):36543")]
    assert _env(job, "job-worker-0") == same + first
    assert _env(job, "job-worker-1") == [*same, ("PADDLE_MASTER", "job-worker-0:36543")]
    sources = job.pod("job-worker-0").env()
    address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    assert sources["POD_IP_DUMMY"] == address


@not_run
def test_variables_of_a_paddle_job_with_a_parameter_server(world: World) -> None:
    roles = {"Master": replica("paddle"), "Worker": replica("paddle")}
    job = world.start(paddle_job(roles))
    same = [("PYTHONUNBUFFERED", "1"), ("PADDLE_JOB_ID", "job"), ("PADDLE_NNODES", "2")]
    assert _env(job, "job-master-0") == [
        *same,
        ("POD_IP_DUMMY", ""),
        ("PADDLE_MASTER", "$(POD_IP_DUMMY):36543"),
        ("PADDLE_SERVER_NUM", "1"),
    ]
    assert _env(job, "job-worker-0") == [
        *same,
        ("PADDLE_MASTER", "job-master-0:36543"),
        ("PADDLE_TRAINER_NUM", "1"),
    ]


@not_run
def test_variables_of_a_jax_job(world: World) -> None:
    job = world.start(jax_job({"Worker": replica("jax", count=2)}))
    for index in range(2):
        assert _env(job, f"job-worker-{index}") == [
            ("PYTHONUNBUFFERED", "1"),
            ("COORDINATOR_PORT", "6666"),
            ("COORDINATOR_ADDRESS", "job-worker-0"),
            ("NUM_PROCESSES", "2"),
            ("PROCESS_ID", str(index)),
        ]


@not_run
def test_an_xgboost_job_was_running_however_fast_it_was(world: World) -> None:
    job = world.submit(_XGBOOST.job("true"))
    job.succeeds()
    assert said(job)["Running"].status == "False"


@not_run
def test_an_xgboost_master_that_is_done_ends_the_job(world: World) -> None:
    roles = {"Master": replica("xgboost", "sleep 1"), "Worker": replica("xgboost", FOR_EVER)}
    job = world.submit(xgboost_job(roles))
    job.pod("job-worker-0").phase("Running")
    job.succeeds()
    assert job.pod("job-worker-0").status["phase"] == "Running"


@not_run
def test_an_xgboost_worker_that_fails_under_never_fails_the_job(world: World) -> None:
    roles = {"Master": replica("xgboost", FOR_EVER), "Worker": replica("xgboost", "exit 1")}
    job = world.submit(xgboost_job(roles))
    end = job.fails()
    assert end["message"] == "XGBoostJob job is failed because 1 Worker replica(s) failed."


@not_run
def test_an_xgboost_worker_that_is_deleted_under_on_failure_fails_the_job(world: World) -> None:
    worker = replica("xgboost", STUBBORN, 1, "OnFailure")
    job = world.submit(xgboost_job({"Master": replica("xgboost", FOR_EVER), "Worker": worker}))
    found = job.pod("job-worker-0")
    is_stubborn(found)
    found.delete()
    end = job.fails()
    assert end["message"] == "XGBoostJob job is failed because 1 Worker replica(s) failed."


@each_of({"paddle": _PADDLE, "jax": _JAX})
def test_all_workers_have_to_succeed(world: World, kind: Kind) -> None:
    fields = only("job-worker-0", "true", "sleep 3")
    job = world.submit(kind.make({"Worker": replica(kind.container, count=2, **fields)}))
    job.until(lambda _: counts(job) == {"Worker": {"active": 1, "succeeded": 1}})
    assert job.is_true("Running")
    job.succeeds()
    assert counts(job) == {"Worker": {"succeeded": 2}}


@each_of({"paddle": _PADDLE, "jax": _JAX})
def test_a_worker_that_is_deleted_under_on_failure_is_made_anew(world: World, kind: Kind) -> None:
    job = world.submit(kind.job(STUBBORN, "OnFailure"))
    worker = job.pod("job-worker-0")
    first = worker.now()
    is_stubborn(worker)
    worker.delete()
    restarting = job.becomes("Restarting")
    message = f"{kind.name} job is restarting because 1 Worker replica(s) failed."
    assert restarting["message"] == message
    made_anew(job, first)
    job.becomes("Running")


@not_run
def test_a_paddle_master_that_is_done_ends_the_job(world: World) -> None:
    roles = {"Master": replica("paddle", "sleep 1"), "Worker": replica("paddle", FOR_EVER)}
    job = world.submit(paddle_job(roles))
    end = job.succeeds()
    assert end["message"] == "PaddleJob job is successfully completed."


@not_run
def test_an_elastic_paddle_job_needs_all_its_workers_to_be_done(world: World) -> None:
    fields = only("job-worker-0", "true", FOR_EVER)
    worker = replica("paddle", count=2, **fields)
    policy = {"minReplicas": 1, "maxReplicas": 2}
    job = world.submit(paddle_job({"Worker": worker}, elasticPolicy=policy))
    job.until(lambda _: counts(job) == {"Worker": {"active": 1, "succeeded": 1}})
    operator_looks_again(job)
    assert "Succeeded" not in job.conditions()


@not_run
def test_metrics_of_an_elastic_paddle_job_make_no_autoscaler(world: World) -> None:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    metrics = [{"type": "Resource", "resource": cpu}]
    policy = {"minReplicas": 1, "maxReplicas": 2, "metrics": metrics}
    job = world.start(paddle_job({"Worker": replica("paddle", FOR_EVER)}, elasticPolicy=policy))
    job.becomes("Running")
    assert world.names("HorizontalPodAutoscaler", "autoscaling/v2") == []
