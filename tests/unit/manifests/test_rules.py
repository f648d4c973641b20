"""Rules of single kinds: those of the operators, and those that keep a job from hanging."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from airflow_kftrain import (
    Elastic,
    InvalidSpec,
    Owner,
    Pod,
    PyTorchJob,
    RawManifest,
    Replica,
    TFJob,
    TrainJob,
    build_manifest,
)

from .mistakes import container
from .reading import groups, main

OWNER = Owner("here", "d" * 250, "t" * 250, "r", "id")


def raw(version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return build_manifest(RawManifest({"apiVersion": version, "kind": kind, "spec": spec}))


def group(name: str, **more: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [container(name)]}}, **more}


def refused(spec: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as found:
        build_manifest(spec)
    return found.value


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_an_mpi_worker_without_a_count_is_one(version: str) -> None:
    replicas = {"Launcher": group("mpi"), "Worker": group("mpi")}
    manifest = raw(f"kubeflow.org/{version}", "MPIJob", mpiReplicaSpecs=replicas)
    assert groups(manifest)["Worker"]["replicas"] == 1


def test_an_mpi_launcher_may_be_all_there_is() -> None:
    manifest = raw(
        "kubeflow.org/v2beta1",
        "MPIJob",
        runLauncherAsWorker=True,
        mpiReplicaSpecs={"Launcher": group("mpi")},
    )
    assert list(groups(manifest)) == ["Launcher"]


def test_a_paddle_job_may_have_several_masters() -> None:
    replicas = {"Master": group("paddle", replicas=2), "Worker": group("paddle")}
    manifest = raw("kubeflow.org/v1", "PaddleJob", paddleReplicaSpecs=replicas)
    assert groups(manifest)["Master"]["replicas"] == 2


def test_the_range_of_an_elastic_paddle_job_is_that_of_its_workers() -> None:
    roles = {"Master": group("paddle"), "Worker": group("paddle", replicas=2)}
    policy = {"minReplicas": 2, "maxReplicas": 4}
    made = raw("kubeflow.org/v1", "PaddleJob", paddleReplicaSpecs=roles, elasticPolicy=policy)
    assert made["spec"]["elasticPolicy"] == policy


def test_the_older_place_of_an_mpi_jobs_clean_up_is_respected() -> None:
    manifest = raw(
        "kubeflow.org/v1",
        "MPIJob",
        cleanPodPolicy="None",
        mpiReplicaSpecs={"Launcher": group("mpi"), "Worker": group("mpi")},
    )
    assert manifest["spec"]["runPolicy"]["cleanPodPolicy"] == "None"


def test_a_limit_for_each_index_leaves_the_limit_of_all_open() -> None:
    manifest = raw(
        "batch/v1", "Job", completionMode="Indexed", backoffLimitPerIndex=2, **group("a")
    )
    assert "backoffLimit" not in manifest["spec"]


def test_the_name_of_an_indexed_job_leaves_room_for_its_index() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": 100, **group("a")}}
    name = build_manifest(RawManifest(job), owner=OWNER)["metadata"]["name"]
    assert len(f"{name}-99") <= 63


def test_the_queue_label_does_not_get_onto_a_train_jobs_pods() -> None:
    job = TrainJob(runtime="torch", pod=Pod(labels={"kueue.x-k8s.io/queue-name": "q"}))
    error = refused(job)
    assert error.field == "pod.labels['kueue.x-k8s.io/queue-name']"
    assert "queue_name" in str(error)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (["python"], ["-m", "torch.distributed.run", "t.py"]),
        (["python", "-m"], ["torch.distributed.run", "t.py"]),
        (["python", "-u", "-mtorch.distributed.run", "t.py"], None),
        (["python", "/opt/conda/bin/torchrun", "t.py"], None),
        (["python3", "-m", "accelerate.commands.launch", "t.py"], None),
    ],
)
def test_torchrun_is_not_put_under_torchrun(command: list[str], args: list[str] | None) -> None:
    job = PyTorchJob(
        image="img", command=command, args=args, elastic=Elastic(nodes=2, nproc_per_node=4)
    )
    assert main(build_manifest(job))["command"] == command


@pytest.mark.parametrize("args", [None, ["train.py"], ["-m", "package.train"]])
def test_a_program_given_by_its_arguments_is(args: list[str] | None) -> None:
    job = PyTorchJob(image="img", command=["python", "-u"], args=args, elastic=Elastic(nodes=2))
    assert main(build_manifest(job))["command"] == ["torchrun", "--no_python", "python", "-u"]


@pytest.mark.parametrize("role", ["ps", "evaluator"])
def test_a_tf_job_has_somebody_who_can_succeed(role: str) -> None:
    error = refused(TFJob(image="img", **{role: Replica(count=1)}))
    assert error.field == f"{role}.count"
    assert "Worker" in str(error)


@pytest.mark.parametrize(
    ("policy", "count", "filled"),
    [
        ({"minReplicas": 2, "maxReplicas": 4}, None, 4),
        ({"minReplicas": 2}, None, 2),
        ({}, None, 1),
        ({"minReplicas": 2, "maxReplicas": 4}, 3, 3),
    ],
)
def test_an_elastic_job_starts_with_as_many_as_it_may_have(
    policy: dict[str, int], count: int | None, filled: int
) -> None:
    worker = group("pytorch") if count is None else group("pytorch", replicas=count)
    manifest = raw(
        "kubeflow.org/v1",
        "PyTorchJob",
        elasticPolicy=policy,
        pytorchReplicaSpecs={"Worker": worker},
    )
    assert groups(manifest)["Worker"]["replicas"] == filled


@pytest.mark.parametrize("count", [1, 9])
def test_an_elastic_job_has_no_more_nor_fewer_than_it_says(count: int) -> None:
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {
            "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4},
            "pytorchReplicaSpecs": {"Worker": group("pytorch", replicas=count)},
        },
    }
    error = refused(RawManifest(job))
    assert error.field == "spec.pytorchReplicaSpecs.Worker.replicas"


@pytest.mark.parametrize("count", [0, 2])
def test_there_is_one_master(count: int) -> None:
    with pytest.raises(InvalidSpec) as found:
        PyTorchJob(image="img", master=Replica(count=count), worker=Replica(count=2))
    assert found.value.field == "master.count"


def test_the_order_of_the_rendezvous_settings_makes_no_other_job() -> None:
    built = [
        build_manifest(PyTorchJob(image="img", elastic=Elastic(nodes=2, rdzv_conf=dict(settings))))[
            "spec"
        ]["elasticPolicy"]
        for settings in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    ]
    assert built[0] == built[1]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_says_the_same_in_another_process(again: Any) -> None:
    for error in (
        InvalidSpec("image", "is required"),
        InvalidSpec("a", "b", value=1, advice="c"),
    ):
        assert str(again(error)) == str(error)


def test_a_value_that_holds_itself_can_be_shown() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    assert "..." in str(InvalidSpec("a", "b", value=endless))
