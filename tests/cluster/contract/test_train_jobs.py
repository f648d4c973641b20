"""TrainJob of Kubeflow Trainer, with JobSet and batch Jobs below it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cluster.jobs import shell, train_job
from tests.cluster.world import Job, Pod, World, eventually
from tests.control_plane.api import MERGE, Answer, Manifest

TRAINER = "trainer.kubeflow.org/v1alpha1"
JOB_SET = ("JobSet", "job", "jobset.x-k8s.io/v1alpha2")
NODE_JOB = ("Job", "job-node-0", "batch/v1")
NOWHERE = {"nodeSelector": {"no": "such-node"}}
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


def step(
    name: str, container: str, ancestor: str = "", *, pod: Manifest | None = None, **fields: Any
) -> Manifest:
    """A replicated job of a runtime: `pod` is for its pod's spec, other `fields` for its Job's."""
    main: Manifest = {"name": container, "image": "x", "command": shell("true")}
    spec: Manifest = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2}
    spec["containers"] = [main]
    body = {"backoffLimit": 0, **fields, "template": {"spec": spec | (pod or {})}}
    labels = {STEP: ancestor} if ancestor else {}
    depends_on = body.pop("dependsOn", None)
    made = {"name": name, "template": {"metadata": {"labels": labels}, "spec": body}}
    return made | ({"dependsOn": depends_on} if depends_on else {})


def runtime(
    *steps: Manifest, policy: Manifest | None = None, name: str = "own", **job_set: Any
) -> Manifest:
    """A runtime of the namespace, with one attempt per node unless `steps` say otherwise."""
    jobs = list(steps) or [step("node", "node", "trainer")]
    return {
        "apiVersion": TRAINER,
        "kind": "TrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": {"numNodes": 1, **({"torch": {}} if policy is None else policy)},
            "template": {"spec": {"replicatedJobs": jobs, **job_set}},
        },
    }


OWN = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "own"}


def own_job(world: World, script: str = "true", nodes: int = 1, **spec: Any) -> Manifest:
    """On a runtime with one attempt, or on the given one."""
    world.create(spec.pop("runtime", runtime()), fieldValidation="Strict")
    return train_job(script, nodes, runtimeRef=OWN, **spec)


def counts(job: Job, name: str = "node") -> Manifest:
    found = [item for item in job.status.get("jobsStatus") or [] if item["name"] == name]
    return found[0] if found else {}


def counted(job: Job, name: str = "node", **wanted: int) -> None:
    """Waits until the status counts Jobs (not pods) like this; what is not named is 0."""
    all_of_them = dict.fromkeys(("active", "ready", "succeeded", "failed", "suspended"), 0)
    whole = {"name": name, **all_of_them, **wanted}
    eventually(lambda: counts(job, name) == whole, lambda: job.status)


def pods_of(job: Job, replicated_job: str = "node") -> list[Pod]:
    return [
        Pod(job.world, pod["metadata"]["name"])
        for pod in job.pods()
        if pod["metadata"]["labels"].get(REPLICATED_JOB) == replicated_job
    ]


def node_of(job: Job) -> Pod:
    """The pod of the first node, as soon as it exists."""
    return eventually(lambda: pods_of(job), job.now)[0]


def patch(**pod: Any) -> Manifest:
    """A patch to the pods of nodes: `containers`, `nodeSelector`, ..."""
    return patch_of("node", {"spec": {"template": {"spec": pod}}})


def patch_of(replicated_job: str, template: Manifest, manager: str = "a.b/c") -> Manifest:
    jobs = [{"name": replicated_job, "template": template}]
    spec = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"manager": manager, "trainingRuntimeSpec": spec}


def denied(answer: Answer, words: str) -> None:
    """Rejected by the webhook: with the code of a missing permission."""
    assert (answer.code, answer.reason) == (403, "Forbidden"), answer.text
    webhook = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
    assert answer.message.startswith(webhook), answer.message
    assert words in answer.message


# ---- success


def test_success_of_one_node(world: World) -> None:
    job = world.submit(train_job("sleep 1"))
    end = job.succeeds()
    assert (end["reason"], end["message"]) == ("AllJobsCompleted", "jobset completed successfully")
    # There is no Created, no Running, no start or end time, and no progress.
    assert set(job.status) == {"conditions", "jobsStatus"}
    assert set(job.conditions()) == {"Complete"}
    counted(job, succeeded=1)
    assert node_of(job).status["phase"] == "Succeeded"


def test_success_of_two_nodes_that_know_their_places(world: World) -> None:
    script = (
        "test $PET_NNODES = 2 && test $PET_NPROC_PER_NODE = 3 && test $A = 1 &&"
        " test $PET_NODE_RANK = $JOB_COMPLETION_INDEX && echo rank $PET_NODE_RANK"
    )
    trainer = {"numProcPerNode": 3, "env": [{"name": "A", "value": "1"}]}
    job = world.submit(train_job(script, 2, trainer=trainer))
    job.succeeds()
    logs = [pod.log().text for pod in pods_of(job)]
    assert logs == ["rank 0\n", "rank 1\n"]
    # One Job, whatever the number of nodes.
    counted(job, succeeded=1)


def test_variables_of_a_torch_node(world: World) -> None:
    job = world.submit(train_job("sleep 30", 2))
    index = "batch.kubernetes.io/job-completion-index"
    env = node_of(job).env()
    rank, own_index = (env.pop(name)["fieldRef"] for name in ("PET_NODE_RANK", _INDEX_VARIABLE))
    assert rank["fieldPath"] == f"metadata.annotations['{index}']"
    assert own_index["fieldPath"] == f"metadata.labels['{index}']"
    assert env == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "job-node-0-0.job",
        "PET_MASTER_PORT": "29500",
    }


_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # in every indexed batch Job


def test_pods_of_a_job_with_labels_names_and_owners(world: World) -> None:
    manifest = train_job("sleep 30", 2)
    manifest["metadata"]["labels"] = {"mine": "1"}
    job = world.submit(manifest)
    eventually(lambda: len(job.pods()) == 2)
    for index, pod in enumerate(job.pods()):
        metadata, spec = pod["metadata"], pod["spec"]
        assert re.fullmatch(rf"job-node-0-{index}-[a-z0-9]{{5}}", metadata["name"])
        assert (
            metadata["labels"].items()
            >= {
                "jobset.sigs.k8s.io/jobset-name": "job",
                REPLICATED_JOB: "node",
                "jobset.sigs.k8s.io/restart-attempt": "0",
                "jobset.sigs.k8s.io/job-index": "0",
                "batch.kubernetes.io/job-name": "job-node-0",
                "batch.kubernetes.io/job-completion-index": str(index),
            }.items()
        )
        # Neither the labels of the TrainJob nor the name of the step reach the pods.
        assert not {"mine", STEP} & set(metadata["labels"])
        assert (spec["hostname"], spec["subdomain"]) == (f"job-node-0-{index}", "job")
        assert spec["restartPolicy"] == "OnFailure"
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Job", "job-node-0")
    assert "mine" not in world.find(*JOB_SET)["metadata"].get("labels", {})


def test_objects_of_a_job_and_their_owners(world: World) -> None:
    job = world.submit(train_job("sleep 30", 2))
    node_of(job)
    job_set, batch = world.find(*JOB_SET), world.find(*NODE_JOB)
    service = world.find("Service", "job")
    snapshot = world.find("ConfigMap", "job-runtime-snapshot")
    made = [job_set, batch, service, snapshot]
    owners = [found["metadata"]["ownerReferences"][0]["kind"] for found in made]
    assert owners == ["TrainJob", "JobSet", "JobSet", "TrainJob"]
    assert batch["metadata"]["labels"][STEP] == "trainer"
    wanted = {"parallelism": 2, "completions": 2, "backoffLimit": 6, "completionMode": "Indexed"}
    assert batch["spec"].items() >= wanted.items()
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == (
        "None",
        True,
    )
    assert service["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": "job"}
    assert "name: torch-distributed" in snapshot["data"]["runtime"]


def test_defaults_are_written_into_the_spec(world: World) -> None:
    manifest = train_job("true")
    job = world.submit(manifest)
    job.succeeds()
    assert job.now()["spec"] == {
        **manifest["spec"],
        "managedBy": "trainer.kubeflow.org/trainjob-controller",
        "suspend": False,
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": "torch-distributed",
        },
    }


def test_no_event_is_about_the_job_itself(world: World) -> None:
    job = world.submit(train_job("true"))
    job.succeeds()
    pod = node_of(job).name
    world.told("AllJobsCompleted", "JobSet/job")
    world.told("Completed", "Job/job-node-0")
    assert world.told("SuccessfulCreate").message == f"Created pod: {pod}"
    assert not [event for event in world.events() if event.object.startswith("TrainJob/")]


# ---- the counts of the status


def test_a_job_counts_as_active_while_its_pod_waits_for_a_node(world: World) -> None:
    job = world.submit(train_job(runtimePatches=[patch(**NOWHERE)]))
    counted(job, active=1)
    status = node_of(job).status
    assert status["phase"] == "Pending"
    world.told("FailedScheduling", f"Pod/{node_of(job).name}")
    assert "conditions" not in job.status
    listed = world.api.call("GET", world.path("Event")).object["items"]
    event = next(item for item in listed if item["reason"] == "FailedScheduling")
    # The scheduler writes the newer kind of event.
    assert (event.get("count"), event.get("lastTimestamp")) == (None, None)
    assert event["eventTime"]


def test_a_job_counts_as_ready_when_all_its_nodes_run(world: World) -> None:
    job = world.submit(train_job("sleep 30", 2))
    counted(job, active=1, ready=1)
    assert "conditions" not in job.status


def test_a_job_with_an_image_that_cannot_be_had_is_active(world: World) -> None:
    job = world.submit(train_job(trainer={"image": "missing/image"}))
    pod = node_of(job)
    pod.until(lambda now: waiting(now) in ("ErrImagePull", "ImagePullBackOff"))
    counted(job, active=1)
    assert "conditions" not in job.status


def waiting(pod: Manifest) -> str:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))


def test_a_job_whose_node_crashes_again_and_again_is_active_until_its_seventh_crash(
    world: World,
) -> None:
    """Kubernetes' default; only the first crashes are waited for."""
    job = world.submit(train_job("exit 3"))
    pod = node_of(job)
    now = pod.until(lambda now: restarts(now) >= 2 and waiting(now) == "CrashLoopBackOff")
    last = now["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 3
    assert now["status"]["phase"] == "Running"
    assert counts(job)["active"] == 1
    assert "conditions" not in job.status


def restarts(pod: Manifest) -> int:
    return int((pod["status"].get("containerStatuses") or [{}])[0].get("restartCount", 0))


# ---- failure


def test_a_node_that_fails_fails_the_job_and_its_pod_stays(world: World) -> None:
    """Under Never, which only a runtime can set."""
    job = world.submit(own_job(world, "exit 3"))
    end = job.fails()
    assert end["reason"] == "FailedJobs"
    words = "jobset failed due to one or more job failures (first failed job: job-node-0)"
    assert end["message"] == words
    counted(job, failed=1)
    (status,) = node_of(job).status["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3
    assert world.told("FailedJobs", "JobSet/job").message == words
    world.told("BackoffLimitExceeded", "Job/job-node-0")


def test_a_node_that_restarted_up_to_the_limit_is_gone_at_the_failure(world: World) -> None:
    """With its exit code and log. This is the case for the runtimes that come with the Trainer."""
    crashes = step("node", "node", "trainer", backoffLimit=1, pod={"restartPolicy": "OnFailure"})
    job = world.submit(own_job(world, "exit 3", runtime=runtime(crashes)))
    assert job.fails()["reason"] == "FailedJobs"
    eventually(lambda: not job.pods(), job.pod_names)
    world.told("SuccessfulDelete", "Job/job-node-0")


def test_one_node_that_fails_ends_the_others(world: World) -> None:
    script = "test $JOB_COMPLETION_INDEX = 0 && exit 3; sleep 60"
    job = world.submit(own_job(world, script, 2))
    assert job.fails()["reason"] == "FailedJobs"
    eventually(lambda: "Running" not in [pod["status"]["phase"] for pod in job.pods()])
    failed = Pod(world, next(name for name in job.pod_names() if "node-0-0" in name)).status
    assert failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_restarts_of_the_whole_are_counted_by_the_runtime(world: World) -> None:
    again = runtime(failurePolicy={"maxRestarts": 1})
    job = world.submit(own_job(world, "sleep 1; exit 3", runtime=again))
    first = node_of(job).now()["metadata"]
    attempt = "jobset.sigs.k8s.io/restart-attempt"
    assert first["labels"][attempt] == "0"

    def second() -> Pod | None:
        found = [pod for pod in job.pods() if pod["metadata"]["labels"][attempt] == "1"]
        return Pod(world, found[0]["metadata"]["name"]) if found else None

    pod = eventually(second, job.pod_names)
    assert "conditions" not in job.status
    assert world.find(*JOB_SET)["status"]["restarts"] == 1
    # Nothing is left of the first attempt.
    assert job.pod_names() == [pod.name]
    end = job.fails()
    assert end["reason"] == "ReachedMaxRestarts"
    assert end["message"].startswith("jobset failed due to reaching max number of restarts")
    world.told("ReachedMaxRestarts", "JobSet/job")


def test_a_node_that_takes_too_much_memory_fails_the_job(world: World) -> None:
    hungry = ["python", "-c", "x = bytearray(300 << 20); import time; time.sleep(60)"]
    limits = {"resourcesPerNode": {"limits": {"memory": "100Mi"}}, "command": hungry}
    job = world.submit(own_job(world, trainer=limits))
    assert job.fails()["reason"] == "FailedJobs"
    (status,) = node_of(job).status["containerStatuses"]
    ended = status["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_the_deadline_takes_everything_away(world: World) -> None:
    job = world.submit(train_job("sleep 60", activeDeadlineSeconds=2))
    end = job.fails()
    assert end["reason"] == "DeadlineExceeded"
    assert end["message"] == "TrainJob exceeded its active deadline"
    # The last count is random: the numbers of before, or those of a Job that is being deleted.
    eventually(lambda: not world.find(*JOB_SET) and not job.pods(), job.pod_names)


def test_a_failed_job_whose_job_set_is_deleted_runs_again(world: World) -> None:
    """So it is no longer failed, which is a bug of this version: nothing is recorded."""
    job = world.start(own_job(world, "sleep 1; exit 3"))
    job.becomes("Failed")
    uid = world.find(*JOB_SET)["metadata"]["uid"]
    world.api.call("DELETE", world.path(*JOB_SET), {"propagationPolicy": "Background"})
    eventually(lambda: world.find(*JOB_SET).get("metadata", {}).get("uid", uid) != uid)
    job.until(lambda now: not (now["status"].get("conditions") or []))
    job.becomes("Failed")


# ---- suspension and deletion


def test_a_job_that_is_suspended_from_the_start_has_no_pods_until_it_is_resumed(
    world: World,
) -> None:
    job = world.submit(train_job("true", suspend=True))
    suspended = job.becomes("Suspended")
    assert (suspended["reason"], suspended["message"]) == ("Suspended", "TrainJob is suspended")
    counted(job, suspended=1)
    assert world.find(*JOB_SET)["spec"]["suspend"] is True
    assert world.find(*NODE_JOB)["spec"]["suspend"] is True
    assert job.pods() == []
    job.patch({"spec": {"suspend": False}})
    job.succeeds()
    resumed = job.conditions()["Suspended"]
    assert (resumed["status"], resumed["reason"]) == ("False", "Resumed")
    assert resumed["message"] == "TrainJob is resumed"


def test_a_job_that_is_suspended_while_it_runs_loses_its_pods_and_starts_anew(
    world: World,
) -> None:
    job = world.submit(own_job(world, "sleep 2"))
    counted(job, active=1, ready=1)
    first = node_of(job).name
    job.patch({"spec": {"suspend": True}})
    job.becomes("Suspended")
    eventually(lambda: not job.pods(), job.pod_names)
    counted(job, suspended=1)
    job.patch({"spec": {"suspend": False}})
    job.succeeds()
    assert job.pod_names() != [first]


_REST = (JOB_SET, NODE_JOB, ("Service", "job"), ("ConfigMap", "job-runtime-snapshot"))


def test_deletion_takes_everything_along(world: World) -> None:
    job = world.submit(own_job(world, "sleep 60"))
    counted(job, active=1, ready=1)
    assert job.delete(propagationPolicy="Background").code == 200
    assert job.is_gone()
    eventually(lambda: not job.pods() and not any(world.find(*found) for found in _REST))
    assert len(made_pods(world)) == 1


@pytest.mark.real_only("a race that the embedded garbage collector wins at once")
def test_deletion_in_the_foreground_starts_the_training_again_and_again_before_it_is_done(
    world: World,
) -> None:
    """The Trainer recreates the JobSet while the TrainJob exists, and that exists until the JobSet
    is gone. Some seconds pass until the garbage collector wins."""
    job = world.submit(own_job(world, "sleep 60"))
    counted(job, active=1, ready=1)
    assert job.delete(propagationPolicy="Foreground").code == 200
    eventually(lambda: job.is_gone() and not job.pods(), job.pod_names)
    assert len(made_pods(world)) >= 2


def made_pods(world: World) -> list[str]:
    return [event.message for event in world.events() if event.reason == "SuccessfulCreate"]


# ---- runtimes


def test_runtimes_that_come_with_the_trainer(world: World) -> None:
    """Without those of torchtune, which are installed separately."""
    listed = world.api.call("GET", world.api.path(TRAINER, "ClusterTrainingRuntime"))
    assert {item["metadata"]["name"] for item in listed.object["items"]} == {
        "deepspeed-distributed",
        "jax-distributed",
        "mlx-distributed",
        "torch-distributed",
        "xgboost-distributed",
    }


_JAX = (
    "test $JAX_NUM_PROCESSES = 2 && test $JAX_PROCESS_ID = $JOB_COMPLETION_INDEX &&"
    ' test -n "$JAX_COORDINATOR_ADDRESS"'
)
_XGBOOST = (
    "test $DMLC_NUM_WORKER = 2 && test $DMLC_TASK_ID = $JOB_COMPLETION_INDEX &&"
    ' test -n "$DMLC_TRACKER_URI" && test -n "$DMLC_TRACKER_PORT"'
)


@pytest.mark.parametrize(
    ("name", "script"),
    [
        pytest.param("jax-distributed", _JAX, id="jax"),
        pytest.param("xgboost-distributed", _XGBOOST, id="xgboost"),
    ],
)
def test_nodes_of_other_frameworks_know_their_places(world: World, name: str, script: str) -> None:
    job = world.submit(train_job(script, 2, runtime=name))
    job.succeeds()
    assert len(job.pods()) == 2


@pytest.mark.parametrize("name", ["deepspeed-distributed", "mlx-distributed"])
def test_a_runtime_with_mpi_has_a_launcher_that_counts_as_a_node(world: World, name: str) -> None:
    """The launcher decides. It starts when the nodes are ready, and they end with it."""
    script = (
        "sleep 1; test $(grep -c slots=1 $OMPI_MCA_orte_default_hostfile) = 3 &&"
        ' test "$OMPI_MCA_plm_rsh_args" = "-o ConnectionAttempts=10"'
    )
    job = world.submit(train_job(script, 3, runtime=name))
    job.succeeds()
    (launcher,) = pods_of(job, "launcher")
    assert launcher.now()["spec"]["containers"][0]["name"] == "node"
    assert re.fullmatch(r"job-launcher-0-0-[a-z0-9]{5}", launcher.name)
    assert world.find("ConfigMap", "job-mpi-hostfile")["data"]["hostfile"] == (
        "job-node-0-0.job slots=1\njob-node-0-1.job slots=1\njob-launcher-0-0.job slots=1\n"
    )
    assert world.find("Secret", "job-mpi-ssh-auth")["type"] == "kubernetes.io/ssh-auth"
    counted(job, "launcher", succeeded=1)
    eventually(lambda: not pods_of(job, "node"), job.pod_names)


def test_a_runtime_without_a_framework_gives_no_variables(world: World) -> None:
    script = 'test -z "$PET_NNODES$JAX_NUM_PROCESSES" && test $A = 1'
    trainer = {"env": [{"name": "A", "value": "1"}]}
    plain = runtime(policy={})
    job = world.submit(own_job(world, script, 2, runtime=plain, trainer=trainer))
    job.succeeds()
    assert len(job.pods()) == 2


def test_a_job_without_a_trainer_gets_no_variables(world: World) -> None:
    """Not even those of its runtime's framework."""
    manifest = own_job(world)
    del manifest["spec"]["trainer"]
    job = world.submit(manifest)
    job.succeeds()
    assert set(node_of(job).env()) == {_INDEX_VARIABLE}


def test_what_the_author_says_goes_before_what_the_runtime_says(world: World) -> None:
    mine = step("node", "node", "trainer")
    main = mine["template"]["spec"]["template"]["spec"]["containers"][0]
    main |= {"env": [{"name": "A", "value": "runtime"}, {"name": "B", "value": "runtime"}]}
    trainer = {"image": "mine", "args": ["x"], "env": [{"name": "A", "value": "author"}]}
    job = world.submit(own_job(world, "sleep 30", runtime=runtime(mine), trainer=trainer))
    pod = node_of(job)
    (main,) = pod.now()["spec"]["containers"]
    assert (main["image"], main["args"]) == ("mine", ["x"])
    assert (pod.env()["A"], pod.env()["B"]) == ("author", "runtime")


def test_a_runtime_may_be_deleted_while_the_job_runs_which_then_cannot_be_changed(
    world: World,
) -> None:
    """It can be neither suspended nor labelled: the webhook reads the runtime at each change."""
    job = world.submit(own_job(world, "sleep 2"))
    counted(job, active=1, ready=1)
    path = world.path("TrainingRuntime", "own", TRAINER)
    assert world.api.call("DELETE", path).code == 200
    eventually(lambda: not world.find("TrainingRuntime", "own", TRAINER))
    for change in ({"spec": {"suspend": True}}, {"metadata": {"labels": {"a": "1"}}}):
        refused = world.api.call("PATCH", job.path, change, content_type=MERGE)
        denied(refused, 'TrainingRuntime.trainer.kubeflow.org "own" not found')
    job.succeeds()
    assert job.delete(propagationPolicy="Background").code == 200


def test_a_runtime_that_is_changed_later_does_not_change_the_job(world: World) -> None:
    mine = step("node", "node", "trainer", pod={"priority": 0})
    manifest = own_job(world, "true", suspend=True, runtime=runtime(mine))
    job = world.submit(manifest)
    job.becomes("Suspended")
    later = {"spec": {"mlPolicy": {"numNodes": 5}, "template": {"spec": {"suspend": True}}}}
    path = world.path("TrainingRuntime", "own", TRAINER)
    world.api.call("PATCH", path, later, content_type=MERGE).required("a change")
    job.patch({"spec": {"suspend": False}})
    job.succeeds()


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        pytest.param(
            {"name": "no-such"},
            'ClusterTrainingRuntime.trainer.kubeflow.org "no-such" not found: specified'
            " clusterTrainingRuntime must be created before the TrainJob is created",
            id="of-the-cluster",
        ),
        pytest.param(
            {"name": "no-such", "kind": "TrainingRuntime"},
            'TrainingRuntime.trainer.kubeflow.org "no-such" not found: specified trainingRuntime'
            " must be created before the TrainJob is created",
            id="of-the-namespace",
        ),
        pytest.param(
            {"name": "job", "kind": "CronJob"},
            "unsupported runtime: CronJob.trainer.kubeflow.org",
            id="of-no-known-kind",
        ),
    ],
)
def test_a_runtime_that_is_not_there_is_refused(
    world: World, reference: Manifest, words: str
) -> None:
    denied(world.try_create(train_job(runtimeRef=reference)), words)


# ---- initializers


def _with_initializers(dataset: str = "true") -> Manifest:
    volume = {"name": "initializer", "emptyDir": {}}
    steps = []
    for name in ("dataset-initializer", "model-initializer"):
        made = step(name, name, name, pod={"volumes": [volume]})
        main = made["template"]["spec"]["template"]["spec"]["containers"][0]
        main["volumeMounts"] = [{"name": "initializer", "mountPath": "/workspace"}]
        main["command"] = shell(dataset if name == "dataset-initializer" else "true")
        steps.append(made)
    after = [{"name": found["name"], "status": "Complete"} for found in steps]
    return runtime(*steps, step("node", "node", "trainer", dependsOn=after))


_DATA = {"dataset": {"storageUri": "hf://data"}, "model": {"storageUri": "s3://model"}}


def test_initializers_end_before_the_nodes_start(world: World) -> None:
    job = world.submit(
        own_job(world, "sleep 1", runtime=_with_initializers("sleep 1"), initializer=_DATA)
    )
    (dataset,) = eventually(lambda: pods_of(job, "dataset-initializer"), job.now)
    dataset.phase("Running")
    # There are not even counts of later steps.
    assert not pods_of(job)
    assert not world.find(*NODE_JOB)
    job.succeeds()
    assert dataset.env()["STORAGE_URI"] == "hf://data"
    (model,) = pods_of(job, "model-initializer")
    assert model.env()["STORAGE_URI"] == "s3://model"
    ended = dataset.status["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    started = node_of(job).status["containerStatuses"][0]["state"]["terminated"]["startedAt"]
    assert ended <= started
    for name in ("dataset-initializer", "model-initializer", "node"):
        counted(job, name, succeeded=1)
    assert "PET_NNODES" not in dataset.env()


def test_an_initializer_that_fails_fails_the_job_without_nodes(world: World) -> None:
    job = world.submit(
        own_job(world, "true", runtime=_with_initializers("exit 3"), initializer=_DATA)
    )
    end = job.fails()
    assert end["reason"] == "FailedJobs"
    assert "(first failed job: job-dataset-initializer-0)" in end["message"]
    assert not pods_of(job)


@pytest.mark.parametrize("what", ["dataset", "model"])
def test_an_initializer_that_the_runtime_does_not_have_is_refused(world: World, what: str) -> None:
    refused = world.try_create(train_job(initializer={what: {"storageUri": "hf://data"}}))
    words = f"must have {what}-initializer job when trainJob is configured with input {what}Config"
    denied(refused, words)


def test_an_initializer_without_the_volume_is_refused(world: World) -> None:
    name = "dataset-initializer"
    without = runtime(step(name, name, name), step("node", "node", "trainer"))
    manifest = own_job(world, runtime=without, initializer={"dataset": _DATA["dataset"]})
    words = f"must have volumeMount with name - initializer in container {name} of the {name} job"
    denied(world.try_create(manifest), words)


# ---- fields of the job


@pytest.mark.parametrize(
    ("trainer", "value"),
    [
        pytest.param({}, "1", id="nothing"),
        pytest.param({"numProcPerNode": 2}, "2", id="number"),
        pytest.param({"numProcPerNode": 0}, "0", id="zero"),
        pytest.param({"numProcPerNode": -1}, "-1", id="negative"),
        pytest.param({"resourcesPerNode": {"limits": {"cpu": "3"}}}, "3", id="cpus"),
        # A value that torchrun knows, and no other program.
        pytest.param({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}, "auto", id="gpus"),
    ],
)
def test_processes_per_node(world: World, trainer: Manifest, value: str) -> None:
    job = world.submit(train_job("true", trainer=trainer))
    job.succeeds()
    assert node_of(job).env()["PET_NPROC_PER_NODE"] == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        pytest.param("auto", "string", id="word"),
        pytest.param("2", "string", id="number-in-quotes"),
        pytest.param(1.5, "number 1.5", id="fraction"),
    ],
)
def test_processes_per_node_that_are_no_number_are_a_bad_request_without_a_reason(
    world: World, value: object, kind: str
) -> None:
    refused = world.try_create(train_job(trainer={"numProcPerNode": value}))
    assert (refused.code, refused.reason) == (400, None)
    assert refused.message == (
        'admission webhook "defaulter.trainjob.trainer.kubeflow.org" denied the request: json:'
        f" cannot unmarshal {kind} into Go struct field Trainer.spec.trainer.numProcPerNode of"
        " type int32"
    )


def test_a_job_of_no_nodes_is_complete_without_a_pod(world: World) -> None:
    job = world.submit(train_job(nodes=0))
    assert job.succeeds()["reason"] == "AllJobsCompleted"
    counted(job, succeeded=1)
    assert not made_pods(world)


_NOT_MADE = 'job "job-node-0" creation failed with error: Job.batch "job-node-0" is invalid: '
_NO_IMAGE = "spec.template.spec.{}[0].image: Required value"
_NEW = [{"name": "new"}]


@pytest.mark.parametrize(
    ("spec", "about", "reason", "words"),
    [
        pytest.param(
            {"nodes": -1},
            "JobSet/job",
            "JobCreationFailed",
            f"{_NOT_MADE}[spec.parallelism: Invalid value: -1: must be greater than or equal to 0,"
            " spec.completions: Invalid value: -1: must be greater than or equal to 0]",
            id="negative-nodes",
        ),
        pytest.param(
            {"runtimePatches": [patch(containers=_NEW)]},
            "JobSet/job",
            "JobCreationFailed",
            _NOT_MADE + _NO_IMAGE.format("containers"),
            id="unknown-container",
        ),
        pytest.param(
            {"runtimePatches": [patch(initContainers=_NEW)]},
            "JobSet/job",
            "JobCreationFailed",
            _NOT_MADE + _NO_IMAGE.format("initContainers"),
            id="unknown-init-container",
        ),
        pytest.param(
            {"runtimePatches": [patch_of("new", {})]},
            "TrainJob/job",
            "TrainJobResourcesCreationFailed",
            'TrainJob resources reconciliation failed: JobSet.jobset.x-k8s.io "job" is invalid:',
            id="unknown-replicated-job",
        ),
        pytest.param(
            {"name": "j" * 49},
            f"TrainJob/{'j' * 49}",
            "TrainJobResourcesCreationFailed",
            'TrainJob resources reconciliation failed: admission webhook "vjobset.kb.io" denied'
            f' the request: JobSet.jobset.x-k8s.io "{"j" * 49}" is invalid:'
            f' spec.replicatedJobs[0].name: Invalid value: "{"j" * 49}-node-0": JobSet name is too'
            " long, pod names generated for this JobSet will exceed 63 characters",
            id="long-name",
        ),
    ],
)
def test_a_bad_job_may_be_accepted_and_fail_by_an_event_only(
    world: World, spec: dict[str, Any], about: str, reason: str, words: str
) -> None:
    """Its status stays empty for ever, and no pod is created."""
    job = world.submit(train_job(**spec))
    event = world.told(reason, about)
    assert event.type == "Warning"
    assert event.message.startswith(words)
    assert job.status == {}
    assert job.pods() == []


def test_the_longest_name_that_works(world: World) -> None:
    name = "j" * 48
    job = world.submit(train_job(name=name))
    job.succeeds()
    assert re.fullmatch(rf"{name}-node-0-0-[a-z0-9]{{5}}", node_of(job).name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("j" * 64, "must be no more than 63 characters", id="long"),
        pytest.param("1-job", "must match RFC 1035 DNS label format", id="digit-first"),
        pytest.param("my.job", "must match RFC 1035 DNS label format", id="dot"),
    ],
)
def test_a_bad_name_is_invalid(world: World, name: str, words: str) -> None:
    refused = world.try_create(train_job(name=name))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message.endswith(f"<nil>: Invalid value: metadata.name {words}")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            {"managedBy": "nobody"},
            'spec.managedBy: Invalid value: "nobody": ManagedBy must be'
            " trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
            id="manager",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 0},
            "spec.activeDeadlineSeconds: Invalid value: 0: spec.activeDeadlineSeconds in body"
            " should be greater than or equal to 1",
            id="deadline",
        ),
        pytest.param(
            {"initializer": {"dataset": {"storageUri": "data"}}},
            'spec.initializer.dataset.storageUri: Invalid value: "data": storageUri may be empty,'
            " or it must be a valid URI (scheme://...)",
            id="storage-uri",
        ),
    ],
)
def test_what_the_schema_refuses_is_invalid(world: World, spec: Manifest, words: str) -> None:
    refused = world.try_create(train_job(**spec))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message == f'TrainJob.trainer.kubeflow.org "job" is invalid: {words}'


@pytest.mark.parametrize(
    ("runtime_name", "name"),
    [
        pytest.param("torch-distributed", "PET_NNODES", id="torch"),
        pytest.param("deepspeed-distributed", "OMPI_MCA_orte_default_hostfile", id="mpi"),
    ],
)
def test_a_reserved_variable_is_refused(world: World, runtime_name: str, name: str) -> None:
    trainer = {"env": [{"name": name, "value": "1"}]}
    refused = world.try_create(train_job(runtime=runtime_name, trainer=trainer))
    words = f'spec.trainer.env: Invalid value: [{{"name":"{name}","value":"1"}}]: must not have'
    denied(refused, f"{words} reserved envs, invalid envs configured: [{name}]")


def test_a_reserved_variable_of_xgboost_is_refused_in_other_words(world: World) -> None:
    trainer = {"env": [{"name": "DMLC_NUM_WORKER", "value": "1"}]}
    refused = world.try_create(train_job(runtime="xgboost-distributed", trainer=trainer))
    words = "spec.trainer.env[0]: Forbidden: DMLC_NUM_WORKER is reserved for the XGBoost runtime"
    denied(refused, words)


def test_variables_of_another_framework_and_of_jax_are_not_reserved(world: World) -> None:
    """For JAX the author's value wins."""
    env = [{"name": "PET_NNODES", "value": "7"}, {"name": "JAX_NUM_PROCESSES", "value": "7"}]
    script = "test $PET_NNODES = 7 && test $JAX_NUM_PROCESSES = 7"
    job = world.submit(train_job(script, runtime="jax-distributed", trainer={"env": env}))
    job.succeeds()


def test_a_job_of_another_manager_is_left_alone(world: World) -> None:
    """A second job, created later, shows that its turn has passed."""
    job = world.start(train_job(managedBy="kueue.x-k8s.io/multikueue"))
    world.start(train_job(name="other")).becomes("Complete")
    assert job.status == {}
    assert not world.find(*JOB_SET)


@pytest.mark.parametrize("field", ["backoffLimit", "runPolicy", "ttlSecondsAfterFinished"])
def test_a_job_has_no_policies_of_its_own(world: World, field: str) -> None:
    manifest = train_job()
    manifest["spec"][field] = 1
    refused = world.try_create(manifest, fieldValidation="Strict")
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert f'unknown field "spec.{field}"' in refused.message


# ---- patches of the runtime


def test_a_patch_reaches_the_pods(world: World) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}
    world.create(account)
    metadata = {"labels": {"mine": "1"}, "annotations": {"note": "2"}}
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    pod = {
        "serviceAccountName": "mine",
        "tolerations": [{"key": "mine", "operator": "Exists"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "node", "volumeMounts": mounts}],
    }
    template = {"spec": {"template": {"metadata": metadata, "spec": pod}}}
    job = world.submit(
        train_job("touch /scratch/file", runtimePatches=[patch_of("node", template)])
    )
    job.succeeds()
    made = node_of(job).now()
    assert made["metadata"]["labels"]["mine"] == "1"
    assert made["metadata"]["annotations"]["note"] == "2"
    assert made["spec"]["serviceAccountName"] == "mine"
    assert "mine" in [item.get("key") for item in made["spec"]["tolerations"]]
    (written,) = job.now()["spec"]["runtimePatches"]
    # The webhook adds the time.
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", written["time"])


_ENV = [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        pytest.param(
            patch_of("node", {}, "mine"),
            'spec.runtimePatches.manager: Invalid value: "mine": must be a domain-prefixed path'
            ' (such as "acme.io/foo")',
            id="manager",
        ),
        pytest.param(
            patch(containers=[{"name": "node", "env": _ENV}]),
            "must not have envs for the dataset-initializer, model-initializer, node containers",
            id="env",
        ),
    ],
)
def test_a_bad_patch_is_refused(world: World, bad: Manifest, words: str) -> None:
    denied(world.try_create(train_job(runtimePatches=[bad])), words)


_PATCH = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        pytest.param(
            patch(restartPolicy="Never"), f"{_PATCH}.template.spec.restartPolicy", id="pod"
        ),
        pytest.param(
            patch_of("node", {"spec": {"backoffLimit": 0}}), f"{_PATCH}.backoffLimit", id="job"
        ),
        pytest.param(
            patch(containers=[{"name": "node", "image": "mine"}]),
            f"{_PATCH}.template.spec.containers[0].image",
            id="container",
        ),
    ],
)
def test_a_patch_knows_few_fields(world: World, bad: Manifest, field: str) -> None:
    """No restart policy: only a runtime can set it."""
    refused = world.try_create(train_job(runtimePatches=[bad]), fieldValidation="Strict")
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert f'unknown field "{field}"' in refused.message


# ---- changes while the job lives


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"runtimeRef": {"name": "jax-distributed"}}, "runtimeRef", id="runtime"),
        pytest.param({"trainer": {"numNodes": 2}}, "trainer", id="trainer"),
        pytest.param({"activeDeadlineSeconds": 9}, "activeDeadlineSeconds", id="deadline"),
        pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy", id="manager"),
    ],
)
def test_most_fields_cannot_be_changed(world: World, change: Manifest, field: str) -> None:
    """Not even in a suspended job."""
    world.create(train_job(suspend=True, activeDeadlineSeconds=60))
    path = world.path("TrainJob", "job", TRAINER)
    refused = world.api.call("PATCH", path, {"spec": change}, content_type=MERGE)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert f"spec.{field}" in refused.message
    assert "field is immutable" in refused.message


def test_patches_of_the_runtime_can_be_changed_while_the_job_is_suspended_only(
    world: World,
) -> None:
    windows, linux = ({"kubernetes.io/os": name} for name in ("windows", "linux"))
    before = patch(nodeSelector=windows)
    job = world.submit(train_job("true", suspend=True, runtimePatches=[before]))
    job.becomes("Suspended")
    job.patch({"spec": {"runtimePatches": [patch(nodeSelector=linux)]}})
    job.patch({"spec": {"suspend": False}})
    job.succeeds()
    change = {"spec": {"runtimePatches": [before]}}
    refused = world.api.call("PATCH", job.path, change, content_type=MERGE)
    denied(
        refused,
        "spec.runtimePatches: Forbidden: RuntimePatches can only be modified when the TrainJob is"
        " suspended before or after the update",
    )


def test_a_node_selector_of_a_suspended_job_cannot_be_taken_back(world: World) -> None:
    """JobSet adds the new one to the old one."""
    job = world.submit(train_job("true", suspend=True, runtimePatches=[patch(**NOWHERE)]))
    job.becomes("Suspended")
    linux = {"kubernetes.io/os": "linux"}
    job.patch({"spec": {"runtimePatches": [patch(nodeSelector=linux)]}})
    job.patch({"spec": {"suspend": False}})
    spec = node_of(job).now()["spec"]
    assert spec["nodeSelector"] == {**NOWHERE["nodeSelector"], **linux}
