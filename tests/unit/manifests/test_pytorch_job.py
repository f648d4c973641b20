"""PyTorchJob: the elastic group under torchrun, and the single node that needs no operator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import (
    Elastic,
    FromField,
    PyTorchJob,
    Replica,
    RunPolicy,
    SchedulingPolicy,
    build_manifest,
)

from .reading import groups, main, pod, variables

TRAIN = ["python", "train.py"]


def elastic(command: Any = TRAIN, /, *, nodes: Any = 2, **settings: Any) -> dict[str, Any]:
    job = PyTorchJob(image="img", command=command, elastic=Elastic(nodes=nodes, **settings))
    return build_manifest(job)


# An elastic group


def test_an_elastic_job_has_workers_only_as_many_as_it_may_have() -> None:
    manifest = elastic(nodes="2:5")
    assert list(groups(manifest)) == ["Worker"]
    assert groups(manifest)["Worker"]["replicas"] == 5
    assert manifest["spec"]["elasticPolicy"]["minReplicas"] == 2
    assert manifest["spec"]["elasticPolicy"]["maxReplicas"] == 5


def test_what_torchrun_is_told_through_the_operator() -> None:
    manifest = elastic(
        nodes="2:4",
        nproc_per_node=8,
        max_restarts=3,
        rdzv_conf={"last_call_timeout": 30, "join_timeout": 5},
        read_timeout=timedelta(minutes=2),
        metrics=[{"type": "Resource"}],
    )
    assert manifest["spec"]["nprocPerNode"] == "8"
    assert manifest["spec"]["elasticPolicy"] == {
        "minReplicas": 2,
        "maxReplicas": 4,
        "maxRestarts": 3,
        "rdzvBackend": "c10d",
        "rdzvConf": [
            {"key": "join_timeout", "value": "5"},
            {"key": "last_call_timeout", "value": "30"},
            {"key": "read_timeout", "value": "120"},
        ],
        "metrics": [{"type": "Resource"}],
    }


def test_timeouts_of_the_rendezvous_are_passed_unasked() -> None:
    conf = elastic()["spec"]["elasticPolicy"]["rdzvConf"]
    assert conf == [
        {"key": "join_timeout", "value": "900"},
        {"key": "read_timeout", "value": "900"},
    ]


# Under torchrun


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["python3", "-u", "train.py", "--epochs", "3"],
        ["/opt/conda/bin/python3.11", "-m", "my.package"],
        ["python", "-W", "ignore", "-m", "my.package"],
        ["python", "-c", "import torch"],
        ["python", "train.py", "--strategy", "deepspeed"],
        ["python", "train.py", "-m", "accelerate"],
        ["python", "accelerate_it.py"],
        ["python"],
    ],
)
def test_a_python_program_is_put_under_torchrun(command: list[str]) -> None:
    assert main(elastic(command))["command"] == ["torchrun", "--no_python", *command]


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["python", "-u", "-m", "torch.distributed.launch", "train.py"],
        ["python", "-X", "dev", "-m", "accelerate.commands.launch", "train.py"],
        ["python", "-m", "deepspeed.launcher.runner", "train.py"],
        ["accelerate", "launch", "train.py"],
        ["sh", "-c", "python train.py"],
        ["./train"],
        [],
    ],
)
def test_what_starts_processes_itself_is_left_alone(command: list[str]) -> None:
    assert main(elastic(command))["command"] == command


def test_an_image_that_brings_its_command_is_left_alone() -> None:
    container = main(elastic(None))
    assert "command" not in container


def test_a_workers_own_command_is_the_one_that_counts() -> None:
    job = PyTorchJob(
        image="img",
        command=["sh"],
        args=["-c", "x"],
        elastic=Elastic(nodes=2),
        worker=Replica(command=["python", "own.py"], args=["--fast"]),
    )
    container = main(build_manifest(job))
    assert container["command"] == ["torchrun", "--no_python", "python", "own.py"]
    assert container["args"] == ["--fast"]


@pytest.mark.parametrize(
    ("processes", "threads"), [(1, None), ("1", None), (2, "1"), ("gpu", "1"), ("auto", "1")]
)
def test_several_processes_do_not_take_each_others_cores(
    processes: Any, threads: str | None
) -> None:
    found = variables(main(elastic(nproc_per_node=processes)))
    assert found.get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize("where", ["job", "worker"])
@pytest.mark.parametrize("value", ["4", FromField("metadata.name")])
def test_threads_that_the_author_sets_stay(where: str, value: Any) -> None:
    env = {"OMP_NUM_THREADS": value}
    job = PyTorchJob(
        image="img",
        command=TRAIN,
        elastic=Elastic(nodes=2, nproc_per_node=2),
        env=env if where == "job" else None,
        worker=Replica(env=env if where == "worker" else None),
    )
    (variable,) = main(build_manifest(job))["env"]
    assert variable.get("value") == (value if isinstance(value, str) else None)


# The single node


@pytest.mark.parametrize("nodes", [1, "1", "1:1", " 1 : 1 "])
def test_one_node_is_a_job_of_kubernetes_itself(nodes: Any) -> None:
    manifest = elastic(nodes=nodes)
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    assert (manifest["spec"]["completions"], manifest["spec"]["parallelism"]) == (1, 1)
    assert main(manifest)["name"] == "pytorch"


@pytest.mark.parametrize("nodes", [2, "2", "1:4", "1:2"])
def test_what_may_become_several_nodes_is_not(nodes: Any) -> None:
    assert elastic(nodes=nodes)["kind"] == "PyTorchJob"


def test_one_process_on_one_node_needs_no_torchrun() -> None:
    container = main(elastic(nodes=1))
    assert container["command"] == TRAIN
    assert "env" not in container


@pytest.mark.parametrize(
    ("command", "started"),
    [
        (TRAIN, ["torchrun", "--standalone", "--no_python", *TRAIN]),
        (["torchrun", "train.py"], ["torchrun", "train.py"]),
    ],
)
def test_several_processes_on_one_node_need_it(command: list[str], started: list[str]) -> None:
    container = main(elastic(command, nodes=1, nproc_per_node=4, max_restarts=2))
    assert container["command"] == started
    assert variables(container) == {
        "OMP_NUM_THREADS": "1",
        "PET_STANDALONE": "1",
        "PET_NPROC_PER_NODE": "4",
        "PET_MAX_RESTARTS": "2",
    }


def test_restarts_of_torchrun_are_its_own_unless_said() -> None:
    found = variables(main(elastic(nodes=1, nproc_per_node="gpu")))
    assert "PET_MAX_RESTARTS" not in found
    assert found["PET_NPROC_PER_NODE"] == "gpu"


def test_the_single_node_has_the_run_policy_as_far_as_it_has_a_meaning() -> None:
    policy = RunPolicy(
        clean_pods="All",
        ttl=timedelta(hours=1),
        active_deadline=timedelta(hours=2),
        backoff_limit=3,
        suspend=True,
        managed_by="kubeflow.org/training-operator",
        scheduling=SchedulingPolicy(min_available=1),
    )
    job = PyTorchJob(image="img", elastic=Elastic(nodes=1), run_policy=policy, queue_name="team-a")
    manifest = build_manifest(job)
    assert {key: item for key, item in manifest["spec"].items() if key != "template"} == {
        "completions": 1,
        "parallelism": 1,
        "ttlSecondsAfterFinished": 3600,
        "activeDeadlineSeconds": 7200,
        "backoffLimit": 3,
        "suspend": True,
    }
    assert manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}


def test_the_manager_of_a_single_node_may_be_another_cluster() -> None:
    policy = RunPolicy(managed_by="kueue.x-k8s.io/multikueue")
    job = PyTorchJob(image="img", elastic=Elastic(nodes=1), run_policy=policy)
    assert build_manifest(job)["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("given", "policy"), [(None, "Never"), ("OnFailure", "OnFailure"), ("Never", "Never")]
)
def test_the_restart_policy_of_a_single_node_is_its_pods(given: Any, policy: str) -> None:
    job = PyTorchJob(image="img", elastic=Elastic(nodes=1), worker=Replica(restart_policy=given))
    assert pod(build_manifest(job))["restartPolicy"] == policy
