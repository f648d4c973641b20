"""TrainJob: settings for the trainer, and a patch of the runtime for what concerns its pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import (
    Initializer,
    Placement,
    Pod,
    Resources,
    RunPolicy,
    Runtime,
    Source,
    TrainJob,
    build_manifest,
)


def train(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = build_manifest(TrainJob(**{"runtime": "torch", **given}))["spec"]
    return found


def pod_patch(spec: dict[str, Any], number: int = 0) -> dict[str, Any]:
    patch = spec["runtimePatches"][number]
    assert patch["manager"] == "airflow-kftrain/provider"
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"
    found: dict[str, Any] = job["template"]["spec"]["template"]
    return found


@pytest.mark.parametrize(
    ("runtime", "kind"),
    [
        ("torch", "ClusterTrainingRuntime"),
        (Runtime("torch"), "ClusterTrainingRuntime"),
        (Runtime("torch", kind="TrainingRuntime"), "TrainingRuntime"),
    ],
)
def test_the_runtime_is_referred_to_in_full(runtime: Any, kind: str) -> None:
    assert train(runtime=runtime)["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": kind,
        "name": "torch",
    }


def test_the_trainer_is_there_even_if_all_comes_from_the_runtime() -> None:
    assert train()["trainer"] == {}


def test_what_the_trainer_is_told() -> None:
    spec = train(
        image="img",
        command=["torchrun"],
        args=["train.py"],
        env={"EPOCHS": 3, "PET_MAX_RESTARTS": 2, "OMPI_MCA_btl": "tcp,self"},
        container_resources=Resources(gpu=4),
        num_nodes="2",
        num_proc_per_node=4,
    )
    assert spec["trainer"] == {
        "image": "img",
        "command": ["torchrun"],
        "args": ["train.py"],
        "env": [
            {"name": "EPOCHS", "value": "3"},
            {"name": "PET_MAX_RESTARTS", "value": "2"},
            {"name": "OMPI_MCA_btl", "value": "tcp,self"},
        ],
        "numNodes": 2,
        "numProcPerNode": 4,
        "resourcesPerNode": {
            "requests": {"nvidia.com/gpu": "4"},
            "limits": {"nvidia.com/gpu": "4"},
        },
    }


def test_the_run_policy_is_written_where_a_train_job_has_it() -> None:
    policy = RunPolicy(
        active_deadline=timedelta(hours=1),
        suspend=False,
        managed_by="kueue.x-k8s.io/multikueue",
    )
    spec = train(run_policy=policy)
    assert (spec["activeDeadlineSeconds"], spec["suspend"], spec["managedBy"]) == (
        3600,
        False,
        "kueue.x-k8s.io/multikueue",
    )


@pytest.mark.parametrize("part", ["dataset", "model"])
def test_what_is_fetched_before(part: str) -> None:
    source = Source("hf://squad", env={"HF_HOME": "/tmp"}, secret="hf-token")
    assert train(initializer=Initializer(**{part: source}))["initializer"] == {
        part: {
            "storageUri": "hf://squad",
            "env": [{"name": "HF_HOME", "value": "/tmp"}],
            "secretRef": {"name": "hf-token"},
        }
    }


def test_what_concerns_the_pods_is_a_patch_of_the_runtime() -> None:
    spec = train(
        pod=Pod(
            volumes=[{"name": "data", "emptyDir": {}}],
            volume_mounts=[{"name": "data", "mountPath": "/data"}],
            shared_memory="2Gi",
            placement=Placement(node_selector={"pool": "gpu"}, safe_to_evict=False),
            service_account="trainer",
            image_pull_secrets=["registry"],
            labels={"team": "vision"},
            annotations={"note": "mine"},
            patch={"spec": {"terminationGracePeriodSeconds": 60}},
        )
    )
    shm = {"name": "kftrain-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    assert pod_patch(spec) == {
        "metadata": {
            "labels": {"team": "vision"},
            "annotations": {
                "sidecar.istio.io/inject": "false",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "note": "mine",
            },
        },
        "spec": {
            "volumes": [{"name": "data", "emptyDir": {}}, shm],
            "containers": [
                {
                    "name": "node",
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"},
                        {"name": "kftrain-shm", "mountPath": "/dev/shm"},
                    ],
                }
            ],
            "nodeSelector": {"pool": "gpu"},
            "serviceAccountName": "trainer",
            "imagePullSecrets": [{"name": "registry"}],
            "terminationGracePeriodSeconds": 60,
        },
    }


def test_a_volume_of_the_runtime_may_be_mounted() -> None:
    pod = Pod(volume_mounts=[{"name": "of-the-runtime", "mountPath": "/data"}])
    (container,) = pod_patch(train(pod=pod))["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "of-the-runtime", "mountPath": "/data"}]


def test_patches_of_the_author_stay_before_ours() -> None:
    theirs = {"manager": "example.com/team", "time": "2026-11-20T00:00:00Z"}
    spec = train(runtime_patches=[theirs])
    assert spec["runtimePatches"][0] == theirs
    assert pod_patch(spec, number=1)["metadata"]["annotations"] == {
        "sidecar.istio.io/inject": "false"
    }


def test_the_queue_is_on_the_resource_only() -> None:
    manifest = build_manifest(TrainJob(runtime="torch", queue_name="team-a"))
    assert manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}
    assert "labels" not in pod_patch(manifest["spec"])["metadata"]
