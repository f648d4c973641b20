"""Specs that use as many fields as possible, each as its type and arguments.

Every call creates new objects, so that a test may compare them before and after.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow_kftrain import (
    Container,
    Elastic,
    FromConfigMap,
    FromField,
    FromSecret,
    Horovod,
    HorovodJob,
    Initializer,
    MPIJob,
    Mpirun,
    Placement,
    Pod,
    PyTorchJob,
    RawManifest,
    Replica,
    Resources,
    RunPolicy,
    Runtime,
    SchedulingPolicy,
    Source,
    TFJob,
    TrainJob,
)

Given = tuple[type[Any], dict[str, Any]]


def rich_specs() -> dict[str, Given]:
    """Name -> type of the spec and its arguments."""
    return {
        "pytorch": (
            PyTorchJob,
            {
                **_whole_job(),
                "master": Replica(
                    count=1,
                    image="registry/master:1",
                    command=["python", "master.py"],
                    args=["--seed", 7],
                    env=[{"name": "SEED", "value": "7"}, {"name": "LEVEL", "value": "debug"}],
                    container_resources={"requests": {"cpu": "1"}, "limits": {"cpu": 2}},
                    restart_policy="OnFailure",
                    pod=Pod(shared_memory=False, service_account="master"),
                    container=Container(working_dir="/master"),
                ),
                "worker": Replica(
                    count=3,
                    container_resources=Resources(cpu=4, gpu=2),
                    restart_policy="ExitCode",
                    pod=Pod(labels={"tier": "worker"}, placement=Placement(priority_class="low")),
                ),
            },
        ),
        "pytorch, short form": (
            PyTorchJob,
            {**_whole_job(), "workers": 4, "pod": Pod(shared_memory="2Gi")},
        ),
        "pytorch, elastic": (
            PyTorchJob,
            {
                **_whole_job(),
                "elastic": Elastic(
                    nodes="2:4",
                    nproc_per_node=2,
                    max_restarts=3,
                    rdzv_id="ours",
                    rdzv_conf={"last_call_timeout": 30},
                    join_timeout=timedelta(minutes=20),
                    read_timeout=timedelta(minutes=20),
                    metrics=[{"type": "Resource", "resource": {"name": "cpu"}}],
                ),
                "worker": Replica(env={"ROLE": "worker"}, pod=Pod(annotations={"note": "mine"})),
            },
        ),
        "pytorch, elastic between two numbers": (
            PyTorchJob,
            {
                "image": "registry/train:1",
                "command": ["python", "train.py"],
                "elastic": Elastic(min_nodes=1, max_nodes=2, nproc_per_node="gpu"),
            },
        ),
        "pytorch, single node": (
            PyTorchJob,
            {
                **_whole_job(),
                "run_policy": RunPolicy(
                    ttl=timedelta(hours=1),
                    active_deadline=timedelta(hours=2),
                    backoff_limit=1,
                    suspend=False,
                ),
                "elastic": Elastic(nodes=1, nproc_per_node=4, max_restarts=2),
                "worker": Replica(restart_policy="Never"),
            },
        ),
        "tf": (
            TFJob,
            {
                **_whole_job(),
                "chief": Replica(count=1),
                "worker": Replica(count=2, args=["--epochs", "3"]),
                "ps": Replica(count=1, image="registry/ps:1"),
                "evaluator": Replica(count=1, pod=Pod(sidecars=[], patch={"spec": {}})),
                "success_policy": "AllWorkers",
                "dynamic_workers": True,
            },
        ),
        "mpi": (
            MPIJob,
            {
                **_whole_job(),
                "run_policy": RunPolicy(backoff_limit=2, clean_pods="All"),
                "launcher": Replica(command=["mpirun", "-np", "4"], restart_policy="Never"),
                "worker": Replica(count=2, command=["/usr/sbin/sshd", "-De"]),
                "slots_per_worker": 2,
                "implementation": "Intel",
                "version": "v2beta1",
            },
        ),
        "mpi v1": (MPIJob, {**_without_queue(), "workers": 2, "version": "v1"}),
        "horovod": (
            HorovodJob,
            {
                **_whole_job(),
                "workers": 4,
                "slots_per_worker": 2,
                "run_policy": RunPolicy(suspend=True, managed_by="kueue.x-k8s.io/multikueue"),
                "horovod": Horovod(
                    min_np=2,
                    max_np=8,
                    discovery_script="/etc/mpi/discover_hosts.sh",
                    elastic_timeout=timedelta(minutes=5),
                    network_interface="eth0",
                    log_level="DEBUG",
                    verbose=True,
                ),
            },
        ),
        "train": (
            TrainJob,
            {
                **_without_queue(),
                "run_policy": RunPolicy(
                    active_deadline=timedelta(hours=3),
                    suspend=True,
                    managed_by="trainer.kubeflow.org/trainjob-controller",
                ),
                "container": Container(security_context={"runAsUser": 1000}),
                "pod": Pod(
                    volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                    volume_mounts=[{"name": "data", "mountPath": "/data"}],
                    shared_memory="4Gi",
                    placement=Placement(
                        node_selector={"pool": "gpu"},
                        tolerations=[{"key": "gpu", "operator": "Exists"}],
                        affinity={"nodeAffinity": {}},
                        safe_to_evict=False,
                    ),
                    service_account="trainer",
                    image_pull_secrets=["registry"],
                    labels={"team": "vision"},
                    annotations={"note": "nightly"},
                    patch={"spec": {"terminationGracePeriodSeconds": 60}},
                ),
                "runtime": Runtime("torch-distributed", kind="TrainingRuntime"),
                "mpirun": Mpirun(processes=4, options=["-v"]),
                "num_nodes": 2,
                "num_proc_per_node": 8,
                "initializer": Initializer(
                    dataset=Source("hf://squad", env={"HF_HOME": "/tmp"}, secret="hf-token"),
                    model=Source("s3://bucket/model"),
                ),
                "runtime_patches": [
                    {
                        "manager": "example.com/team",
                        "trainingRuntimeSpec": {
                            "template": {
                                "metadata": {"labels": {"team": "vision"}},
                                "spec": {
                                    "replicatedJobs": [
                                        {
                                            "name": "node",
                                            "template": {
                                                "spec": {
                                                    "template": {
                                                        "spec": {"nodeSelector": {"zone": "a"}}
                                                    }
                                                }
                                            },
                                        }
                                    ]
                                },
                            }
                        },
                    }
                ],
            },
        ),
        "train, little": (TrainJob, {"runtime": "torch-distributed"}),
        "raw PyTorchJob": (RawManifest, {"manifest": _raw_pytorch()}),
        "raw elastic PyTorchJob": (RawManifest, {"manifest": _raw_elastic()}),
        "raw XGBoostJob": (RawManifest, {"manifest": _raw_xgboost()}),
        "raw PaddleJob": (RawManifest, {"manifest": _raw_paddle()}),
        "raw MPIJob": (RawManifest, {"manifest": _raw_mpi()}),
        "raw TrainJob": (RawManifest, {"manifest": _raw_train_job()}),
        "raw Job": (RawManifest, {"manifest": _raw_job()}),
    }


def _without_queue() -> dict[str, Any]:
    return {name: value for name, value in _whole_job().items() if name != "queue_name"}


def _whole_job() -> dict[str, Any]:
    return {
        "image": "registry/train:1.4",
        "command": ["python", "-u", "train.py"],
        "args": ["--epochs", "3"],
        "env": {
            "EPOCHS": 3,
            "RATE": 0.1,
            "MODE": "fast",
            "TOKEN": FromSecret("wandb", "key", optional=True),
            "URL": FromConfigMap("settings", "url"),
            "POD": FromField("metadata.name"),
        },
        "container_resources": Resources(
            cpu=(2, 4),
            memory=("8Gi", None),
            gpu=1,
            ephemeral_storage="10Gi",
            extended={"rdma/hca": 1},
        ),
        "container": Container(
            env_from=[{"secretRef": {"name": "wandb", "optional": True}}],
            image_pull_policy="IfNotPresent",
            security_context={"runAsUser": 1000},
            ports=[{"containerPort": 6006}],
            liveness_probe={"exec": {"command": ["true"]}},
        ),
        "queue_name": "team-a",
        "queue_priority": "urgent",
        "run_policy": RunPolicy(
            clean_pods="Running",
            ttl=timedelta(days=2),
            active_deadline=timedelta(hours=6),
            backoff_limit=3,
            suspend=False,
            managed_by=None,
            scheduling=SchedulingPolicy(
                min_available=2,
                queue="training",
                min_resources={"cpu": 16, "memory": "64Gi"},
                priority_class="high",
                timeout=timedelta(minutes=10),
            ),
        ),
        "pod": Pod(
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "cache", "emptyDir": {}},
            ],
            volume_mounts=[
                {"name": "data", "mountPath": "/data", "readOnly": True},
                {"name": "cache", "mountPath": "/cache"},
            ],
            placement=Placement(
                node_selector={"pool": "gpu"},
                tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": []}]
                        }
                    }
                },
                priority_class="high",
                scheduler_name="volcano",
                safe_to_evict=False,
            ),
            service_account="trainer",
            image_pull_secrets=["registry", {"name": "mirror"}],
            labels={"team": "vision"},
            annotations={"note": "nightly"},
            init_containers=[
                {
                    "name": "fetch",
                    "image": "registry/fetch:1",
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            sidecars=[
                {
                    "name": "metrics",
                    "image": "registry/metrics:1",
                    "command": ["serve"],
                    "env": [{"name": "PORT", "value": "9000"}],
                    "ports": [{"containerPort": 9000, "name": "http"}],
                    "resources": {"limits": {"memory": "128Mi"}},
                }
            ],
            patch={
                "metadata": {"annotations": {"patched": "yes"}},
                "spec": {
                    "hostNetwork": True,
                    "containers": [{"name": "metrics", "workingDir": "/app"}],
                },
            },
        ),
    }


def _raw(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": "nightly",
            "namespace": "ml",
            "labels": {"team": "vision"},
            "annotations": {"note": "mine"},
        },
        "spec": spec,
    }


def _raw_template(container: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "mine"}},
        "spec": {
            "containers": [
                {
                    "name": container,
                    "image": "registry/train:1",
                    "command": ["python", "train.py"],
                    "args": ["--epochs", "3"],
                    "env": [
                        {"name": "MODE", "value": "fast"},
                        {
                            "name": "TOKEN",
                            "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}},
                        },
                    ],
                    "envFrom": [{"configMapRef": {"name": "settings"}}],
                    "resources": {
                        "requests": {"cpu": 1, "memory": "1Gi"},
                        "limits": {"memory": "2Gi", "nvidia.com/gpu": 1},
                    },
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "terminationMessagePath": "/tmp/result",
                },
                {"name": "sidecar", "image": "registry/side:1"},
            ],
            "initContainers": [{"name": "first", "image": "registry/first:1"}],
            "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}],
            "nodeSelector": {"pool": "gpu"},
            "terminationGracePeriodSeconds": 30,
        },
    }


def _raw_pytorch() -> dict[str, Any]:
    spec = {
        "nprocPerNode": "2",
        "runPolicy": {
            "cleanPodPolicy": "All",
            "ttlSecondsAfterFinished": 60,
            "activeDeadlineSeconds": 600,
            "backoffLimit": 2,
            "suspend": False,
            "schedulingPolicy": {"minAvailable": 2, "minResources": {"cpu": "2"}},
        },
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                "restartPolicy": "OnFailure",
                "template": _raw_template("pytorch"),
            },
            "Worker": {
                "replicas": 2,
                "restartPolicy": "OnFailure",
                "template": _raw_template("pytorch"),
            },
        },
    }
    return _raw("kubeflow.org/v1", "PyTorchJob", spec)


def _raw_elastic() -> dict[str, Any]:
    spec = {
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 4,
            "maxRestarts": 2,
            "rdzvBackend": "c10d",
            "rdzvConf": [{"key": "join_timeout", "value": "900"}],
        },
        "pytorchReplicaSpecs": {"Worker": {"template": _raw_template("pytorch")}},
    }
    return _raw("kubeflow.org/v1", "PyTorchJob", spec)


def _raw_xgboost() -> dict[str, Any]:
    groups = {
        "Master": {"template": _raw_template("xgboost")},
        "Worker": {"replicas": 2, "template": _raw_template("xgboost")},
    }
    return _raw("kubeflow.org/v1", "XGBoostJob", {"xgbReplicaSpecs": groups})


def _raw_paddle() -> dict[str, Any]:
    spec = {
        "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4},
        "paddleReplicaSpecs": {"Worker": {"replicas": 3, "template": _raw_template("paddle")}},
    }
    return _raw("kubeflow.org/v1", "PaddleJob", spec)


def _raw_mpi() -> dict[str, Any]:
    spec = {
        "slotsPerWorker": 2,
        "runLauncherAsWorker": False,
        "mpiImplementation": "MPICH",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"managedBy": "kubeflow.org/mpi-operator", "backoffLimit": 1},
        "mpiReplicaSpecs": {
            "Launcher": {"restartPolicy": "Never", "template": _raw_template("main")},
            "Worker": {"replicas": 2, "template": _raw_template("main")},
        },
    }
    return _raw("kubeflow.org/v2beta1", "MPIJob", spec)


def _raw_train_job() -> dict[str, Any]:
    pod = {
        "metadata": {"labels": {"team": "vision"}},
        "spec": {
            "serviceAccountName": "trainer",
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
                {"name": "proxy", "env": [{"name": "PORT", "value": "1"}]},
            ],
        },
    }
    job = {"name": "node", "template": {"spec": {"template": pod}}}
    spec = {
        "runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"},
        "activeDeadlineSeconds": 600,
        "initializer": {
            "dataset": {
                "storageUri": "hf://squad",
                "env": [{"name": "HF_HOME", "value": "/tmp"}],
                "secretRef": {"name": "hf-token"},
            }
        },
        "trainer": {
            "image": "registry/train:1",
            "command": ["torchrun", "train.py"],
            "env": [{"name": "PET_MAX_RESTARTS", "value": "1"}],
            "numNodes": 2,
            "numProcPerNode": 4,
            "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}},
        },
        "runtimePatches": [
            {
                "manager": "example.com/team",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
            }
        ],
    }
    return _raw("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)


def _raw_job() -> dict[str, Any]:
    spec = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 2,
        "ttlSecondsAfterFinished": 60,
        "template": _raw_template("main"),
    }
    return _raw("batch/v1", "Job", spec)
