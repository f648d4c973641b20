"""TrainJob: settings for the trainer, and a patch of the runtime for everything else about its
pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import (
    Code,
    Container,
    Initializer,
    InvalidSpec,
    Mpirun,
    Owner,
    Placement,
    Pod,
    Resources,
    RunPolicy,
    Runtime,
    Source,
    TrainJob,
    build_manifest,
)
from airflow_kftrain.manifests import check_given

OWNER = Owner("here", "dag", "task", "run", "id")


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


def test_a_queued_job_has_no_runtime_patches_since_kueue_would_drop_them() -> None:
    job = TrainJob(runtime="torch", queue_name="team-a", image="img")
    manifest = build_manifest(job, owner=OWNER, grace=10)
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert "runtimePatches" not in manifest["spec"]


@pytest.mark.parametrize(
    "given",
    [
        {"pod": Pod(labels={"team": "a"})},
        {"container": Container(security_context={"runAsUser": 1000})},
        {"command": ["a"], "mpirun": Mpirun()},
        {"command": ["a"], "code": Code(files=["train.py"])},
        {"runtime_patches": [{"manager": "example.com/team", "trainingRuntimeSpec": {}}]},
    ],
    ids=lambda given: list(given)[-1],
)
def test_what_needs_a_runtime_patch_is_refused_for_a_queued_job(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as caught:
        check_given(TrainJob, {"runtime": "torch", "queue_name": "team-a", **given})
    assert caught.value.field == "queue_name"
    assert "Kueue drops them, and the job would not start" in str(caught.value)


def test_mpirun_starts_the_command_on_all_nodes_and_the_launcher_is_patched_like_them() -> None:
    spec = train(
        command=["python", "train.py"],
        args=["--fast"],
        env={"DATA": "/data"},
        mpirun=Mpirun(options=["-v"]),
        pod=Pod(labels={"team": "vision"}),
    )
    words = spec["trainer"]["command"]
    # Without a number there are as many ranks as the runtime's hosts have slots.
    assert words[:2] == ["mpirun", "--allow-run-as-root"]
    assert words[-6:] == ["DATA", "-x", "PYTHONUNBUFFERED=1", "-v", "python", "train.py"]
    assert spec["trainer"]["args"] == ["--fast"]
    (patch,) = spec["runtimePatches"]
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["node", "launcher"]
    assert jobs[0]["template"] == jobs[1]["template"]
    assert jobs[0]["template"]["spec"]["template"]["metadata"]["labels"] == {"team": "vision"}


def test_the_number_of_ranks_may_be_said() -> None:
    spec = train(command=["a"], mpirun=Mpirun(processes=3))
    assert spec["trainer"]["command"][:3] == ["mpirun", "-np", "3"]
