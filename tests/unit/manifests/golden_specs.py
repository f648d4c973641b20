"""The specs whose manifests are stored under golden/, one file each, with the same names.

Read a file next to its spec to see what a spec becomes. After a change that is meant to alter
manifests, `pytest tests/unit/manifests/test_golden.py --write-golden` rewrites them, and the diff
is part of the review.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_kftrain import (
    Code,
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
    Owner,
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
from airflow_kftrain.specs.code import Function

FILES = Path(__file__).parent / "files"

OWNER = Owner(
    instance="https://airflow.example.com",
    dag_id="nightly_training",
    task_id="train",
    run_id="scheduled__2026-11-20T00:00:00+00:00",
    ti_id="0199b4a0-0000-7000-8000-000000000001",
)
MAPPED_RETRY = OWNER._replace(map_index=3, try_number=2, clears=1, ti_id="0199b4a0-0002")

PYTORCH: dict[str, Any] = {"image": "registry.example.com/train:1.4"}
TRAIN: dict[str, Any] = {**PYTORCH, "command": ["python", "train.py"]}
TORCHRUN: dict[str, Any] = {**PYTORCH, "command": ["torchrun", "train.py"]}
TF: dict[str, Any] = {
    "image": "registry.example.com/tf:2",
    "command": ["python", "/app/train.py"],
}
MPI: dict[str, Any] = {
    "image": "registry.example.com/mpi:4",
    "command": ["mpirun", "--allow-run-as-root", "python", "train.py"],
}
HOROVOD: dict[str, Any] = {**MPI, "command": ["python", "train.py"]}
GPU = Resources(cpu=8, memory="32Gi", gpu=1)


def container(name: str, image: str = "registry.example.com/app:1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **more}


def pod_template(name: str) -> dict[str, Any]:
    return {"spec": {"containers": [container(name)]}}


TRAINED = Function("train", "kftrain_dag", "def train(): pass\n", "dag.py")

SPECS: dict[str, Any] = {
    # What a job brings along
    "function-pytorch": PyTorchJob(**PYTORCH, workers=1, function=TRAINED),
    "function-elastic": PyTorchJob(
        **PYTORCH, elastic=Elastic(nodes=2, nproc_per_node=2), function=TRAINED
    ),
    "function-single-node": PyTorchJob(
        **PYTORCH, elastic=Elastic(nodes=1, nproc_per_node=2), function=TRAINED
    ),
    "function-tf": TFJob(
        **PYTORCH, chief=Replica(), worker=Replica(count=2), code=Code(), function=TRAINED
    ),
    "function-mpi": MPIJob(
        **PYTORCH, workers=2, slots_per_worker=2, env={"DATA": "/data"}, function=TRAINED
    ),
    "function-horovod": HorovodJob(**PYTORCH, workers=2, function=TRAINED),
    "function-trainjob": TrainJob(runtime="torch-distributed", num_nodes=2, function=TRAINED),
    "function-trainjob-mpi": TrainJob(
        runtime="deepspeed-distributed",
        num_nodes=2,
        num_proc_per_node=2,
        env={"DATA": "/data"},
        pod=Pod(volumes=[{"name": "data", "emptyDir": {}}]),
        mpirun=Mpirun(options=["-v"]),
        function=TRAINED,
    ),
    "trainjob-mpirun": TrainJob(
        runtime="deepspeed-distributed", command=["python", "train.py"], mpirun=Mpirun(processes=3)
    ),
    "code-of-a-command": PyTorchJob(
        **TRAIN,
        workers=0,
        pod=Pod(annotations={"team": "vision"}, volumes=[{"name": "data", "emptyDir": {}}]),
        code=Code(files=["kpo_template.yaml"], requirements=["numpy"], python="/opt/python"),
    ),
    "code-of-a-manifest": RawManifest(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {
                "template": {
                    "spec": {"containers": [{"name": "a", "image": "i", "command": ["run"]}]}
                }
            },
        },
        Code(),
    ),
    "mpi-mpirun": MPIJob(
        **{**MPI, "command": ["python", "train.py"]},
        workers=2,
        env={"DATA": "/data"},
        mpirun=Mpirun(options=["-mca", "btl", "tcp"]),
    ),
    "mpi-mpirun-intel": MPIJob(
        **{**MPI, "command": ["python", "train.py"]},
        workers=2,
        implementation="Intel",
        mpirun=Mpirun(processes=3),
    ),
    # Settings of the main container
    "pytorch-container": PyTorchJob(
        **TRAIN,
        container=Container(
            env_from=[{"secretRef": {"name": "wandb"}}],
            image_pull_policy="Always",
            security_context={"runAsNonRoot": True},
            working_dir="/workspace",
            ports=[{"containerPort": 6006, "name": "tensorboard"}],
        ),
        master=Replica(),
        worker=Replica(
            count=2,
            container=Container(
                working_dir="/worker",
                liveness_probe={"exec": {"command": ["test", "-e", "/tmp/alive"]}},
            ),
        ),
    ),
    "trainjob-container": TrainJob(
        runtime="torch-distributed",
        container=Container(security_context={"allowPrivilegeEscalation": False}),
        pod=Pod(shared_memory=True),
    ),
    # PyTorchJob: the two forms
    "pytorch-workers": PyTorchJob(**TRAIN, workers=4, container_resources=GPU),
    "pytorch-master-only": PyTorchJob(**TRAIN, workers=0),
    "pytorch-explicit": PyTorchJob(
        **TRAIN,
        container_resources=GPU,
        master=Replica(container_resources=Resources(cpu=2, memory="4Gi")),
        worker=Replica(count=4),
    ),
    "pytorch-worker-alone-gets-a-master": PyTorchJob(**TRAIN, worker=Replica(count=2)),
    "pytorch-replicas-of-their-own": PyTorchJob(
        master=Replica(
            image="registry.example.com/master:1", command=["python", "master.py"], env={"A": "1"}
        ),
        worker=Replica(
            count=2,
            image="registry.example.com/worker:1",
            args=["--shard", 3],
            restart_policy="ExitCode",
        ),
    ),
    "pytorch-numbers-from-templates": PyTorchJob(
        **TRAIN, workers="4", run_policy=RunPolicy(backoff_limit="2")
    ),
    # Run policy
    "pytorch-backoff-limit": PyTorchJob(**TRAIN, workers=1, run_policy=RunPolicy(backoff_limit=3)),
    "pytorch-zeros-arrive": PyTorchJob(
        **TRAIN, workers=1, run_policy=RunPolicy(backoff_limit=0, ttl=timedelta(0))
    ),
    "pytorch-deadline": PyTorchJob(
        **TRAIN, workers=1, run_policy=RunPolicy(active_deadline=timedelta(hours=6))
    ),
    "pytorch-run-policy": PyTorchJob(
        **TRAIN,
        workers=1,
        run_policy=RunPolicy(
            clean_pods="None",
            ttl=timedelta(days=7),
            suspend=True,
            managed_by="kueue.x-k8s.io/multikueue",
            scheduling=SchedulingPolicy(
                min_available=2,
                queue="training",
                min_resources={"cpu": 16, "memory": "64Gi"},
                priority_class="high",
                timeout=timedelta(minutes=10),
            ),
        ),
    ),
    "pytorch-queue": PyTorchJob(**TRAIN, workers=1, queue_name="team-a", queue_priority="urgent"),
    # Variables and resources
    "pytorch-env": PyTorchJob(
        **TRAIN,
        workers=1,
        env={
            "EPOCHS": 3,
            "WANDB_API_KEY": FromSecret("wandb", "key"),
            "DATA_URL": FromConfigMap("settings", "data-url", optional=True),
            "POD_NAME": FromField("metadata.name"),
        },
    ),
    "pytorch-env-of-a-replica": PyTorchJob(
        **TRAIN,
        env={"ROLE": "any", "EPOCHS": "3"},
        master=Replica(env={"ROLE": "master"}),
        worker=Replica(count=1, env=[{"name": "SHARDS", "value": "8"}]),
    ),
    "pytorch-requests-below-limits": PyTorchJob(
        **TRAIN,
        workers=1,
        container_resources=Resources(
            cpu=(0.5, 2), memory=("1Gi", None), ephemeral_storage="10Gi", gpu=0
        ),
    ),
    "pytorch-extended-resources": PyTorchJob(
        **TRAIN,
        workers=1,
        container_resources=Resources(memory="8Gi", extended={"amd.com/gpu": 2, "rdma/hca": 1}),
    ),
    # Pods
    "pytorch-pod": PyTorchJob(
        **TRAIN,
        workers=1,
        pod=Pod(
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
                {"name": "scratch", "emptyDir": {}},
            ],
            volume_mounts=[
                {"name": "data", "mountPath": "/data"},
                {"name": "scratch", "mountPath": "/scratch", "subPath": "train"},
            ],
            service_account="trainer",
            image_pull_secrets=["registry"],
            labels={"team": "vision"},
            annotations={"example.com/cost-centre": "42"},
            init_containers=[container("fetch", command=["fetch", "/scratch"])],
            sidecars=[container("metrics", ports=[{"containerPort": 9090}])],
        ),
    ),
    "pytorch-placement": PyTorchJob(
        **TRAIN,
        workers=1,
        pod=Pod(
            placement=Placement(
                node_selector={"accelerator": "a100"},
                tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
                affinity={"nodeAffinity": {}},
                priority_class="training",
                scheduler_name="volcano",
                safe_to_evict=False,
            )
        ),
    ),
    "pytorch-placement-of-a-replica": PyTorchJob(
        **TRAIN,
        pod=Pod(service_account="trainer", placement=Placement(node_selector={"pool": "spot"})),
        master=Replica(pod=Pod(placement=Placement(node_selector={"pool": "steady"}))),
        worker=Replica(count=2),
    ),
    "pytorch-template-file": PyTorchJob(
        **TRAIN,
        workers=1,
        env={"NCCL_DEBUG": "INFO"},
        pod=Pod(template_file=str(FILES / "kpo_template.yaml")),
    ),
    "pytorch-patch": PyTorchJob(
        **TRAIN,
        workers=1,
        pod=Pod(
            patch={
                "metadata": {"labels": {"patched": "yes"}},
                "spec": {
                    "hostNetwork": True,
                    "containers": [{"name": "pytorch", "imagePullPolicy": "Always"}],
                },
            }
        ),
    ),
    "pytorch-shared-memory-sized": PyTorchJob(**TRAIN, workers=0, pod=Pod(shared_memory="2Gi")),
    "pytorch-shared-memory-off": PyTorchJob(**TRAIN, workers=0, pod=Pod(shared_memory=False)),
    "pytorch-shared-memory-of-the-author": PyTorchJob(
        **TRAIN,
        workers=0,
        pod=Pod(
            volumes=[{"name": "mine", "emptyDir": {"medium": "Memory"}}],
            volume_mounts=[{"name": "mine", "mountPath": "/dev/shm"}],
        ),
    ),
    # Elastic
    "pytorch-elastic": PyTorchJob(**TORCHRUN, elastic=Elastic(nodes="2:4")),
    "pytorch-elastic-fixed-several-processes": PyTorchJob(
        **TRAIN, container_resources=GPU, elastic=Elastic(nodes=4, nproc_per_node=8)
    ),
    "pytorch-elastic-rendezvous": PyTorchJob(
        **TORCHRUN,
        elastic=Elastic(
            min_nodes=1,
            max_nodes=2,
            nproc_per_node="gpu",
            max_restarts=0,
            rdzv_id="tuesday",
            rdzv_conf={"last_call_timeout": 60},
            join_timeout=timedelta(minutes=30),
            read_timeout=timedelta(minutes=2),
        ),
        worker=Replica(restart_policy="Never"),
    ),
    "pytorch-elastic-metrics": PyTorchJob(
        **TORCHRUN,
        elastic=Elastic(
            nodes="1:4",
            metrics=[
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 80},
                    },
                }
            ],
        ),
    ),
    # One node: no operator
    "single-node": PyTorchJob(**TRAIN, elastic=Elastic(nodes="1:1"), container_resources=GPU),
    "single-node-several-processes": PyTorchJob(
        **TRAIN, elastic=Elastic(nodes=1, nproc_per_node=2, max_restarts=1)
    ),
    "single-node-torchrun-of-the-author": PyTorchJob(
        **TORCHRUN, elastic=Elastic(nodes="1", nproc_per_node="gpu")
    ),
    "single-node-run-policy": PyTorchJob(
        **TRAIN,
        elastic=Elastic(nodes=1),
        queue_name="team-a",
        run_policy=RunPolicy(
            clean_pods="All",
            backoff_limit=2,
            ttl=timedelta(hours=1),
            active_deadline=timedelta(hours=2),
            suspend=True,
            managed_by="kubeflow.org/training-operator",
            scheduling=SchedulingPolicy(queue="training"),
        ),
    ),
    # TFJob
    "tf-workers": TFJob(**TF, workers=2),
    "tf-all-roles": TFJob(
        **TF,
        container_resources=GPU,
        chief=Replica(),
        worker=Replica(count=3),
        ps=Replica(count=2, container_resources=Resources(cpu=4, memory="16Gi")),
        evaluator=Replica(container_resources=Resources(cpu=1)),
    ),
    "tf-zero-groups-are-left-out": TFJob(
        **TF, chief=Replica(count=0), worker=Replica(count=2), ps=Replica(count=0)
    ),
    "tf-success-policy": TFJob(**TF, workers=2, success_policy="AllWorkers"),
    "tf-dynamic-workers": TFJob(
        **TF, worker=Replica(count=2), ps=Replica(count=1), dynamic_workers=True
    ),
    "tf-shared-memory": TFJob(**TF, workers=1, pod=Pod(shared_memory=True)),
    # MPIJob and HorovodJob
    "mpi-v2beta1": MPIJob(**MPI, workers=2, slots_per_worker=4, container_resources=GPU),
    "mpi-v1": MPIJob(**MPI, workers=2, slots_per_worker=4, container_resources=GPU, version="v1"),
    "mpi-explicit": MPIJob(
        **MPI,
        launcher=Replica(container_resources=Resources(cpu=1, gpu=1)),
        worker=Replica(count=2, command=["/usr/sbin/sshd", "-De", "-f", "/home/mpi/.sshd_config"]),
    ),
    "mpi-intel": MPIJob(**MPI, workers=2, implementation="Intel"),
    "mpi-v2beta1-backoff-limit": MPIJob(**MPI, workers=1, run_policy=RunPolicy(backoff_limit=2)),
    "mpi-v1-backoff-limit": MPIJob(
        **MPI, workers=1, version="v1", run_policy=RunPolicy(backoff_limit=2)
    ),
    "horovod": HorovodJob(**HOROVOD, workers=2, slots_per_worker=2),
    "horovod-settings-v1": HorovodJob(
        **HOROVOD,
        worker=Replica(count=4),
        version="v1",
        horovod=Horovod(
            min_np=2,
            max_np=8,
            discovery_script="/opt/discover.sh",
            elastic_timeout=timedelta(minutes=5),
            network_interface="eth0",
            log_level="DEBUG",
            verbose=True,
        ),
    ),
    # TrainJob
    "trainjob": TrainJob(
        runtime="torch-distributed", num_nodes=2, command=["torchrun", "train.py"]
    ),
    "trainjob-everything-from-the-runtime": TrainJob(runtime="torch-distributed"),
    "trainjob-trainer": TrainJob(
        **TORCHRUN,
        runtime="torch-distributed",
        args=["--epochs", "3"],
        env={"WANDB_API_KEY": FromSecret("wandb", "key")},
        container_resources=GPU,
        num_nodes=4,
        num_proc_per_node=8,
        queue_name="team-a",
        run_policy=RunPolicy(
            active_deadline=timedelta(hours=6),
            suspend=True,
            managed_by="trainer.kubeflow.org/trainjob-controller",
        ),
    ),
    "trainjob-initializer": TrainJob(
        runtime=Runtime("torchtune", kind="TrainingRuntime"),
        initializer=Initializer(
            dataset=Source("hf://tatsu-lab/alpaca", secret="hf"),
            model=Source("s3://models/llama", env={"ENDPOINT": "https://s3.example.com"}),
        ),
    ),
    "trainjob-pod": TrainJob(
        runtime="torch-distributed",
        pod=Pod(
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            volume_mounts=[{"name": "data", "mountPath": "/data"}],
            shared_memory="8Gi",
            service_account="trainer",
            image_pull_secrets=["registry"],
            labels={"team": "vision"},
            placement=Placement(
                node_selector={"accelerator": "a100"},
                tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
                safe_to_evict=False,
            ),
            patch={"spec": {"terminationGracePeriodSeconds": 120}},
        ),
    ),
    "trainjob-runtime-patches": TrainJob(
        runtime="torch-distributed",
        runtime_patches=[
            {
                "manager": "example.com/platform",
                "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"team": "vision"}}}},
            }
        ],
    ),
    # Raw manifests
    "raw-pytorch": RawManifest(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "mine"},
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": {"template": pod_template("pytorch")},
                    "Worker": {"replicas": 2, "template": pod_template("pytorch")},
                }
            },
        }
    ),
    "raw-pytorch-elastic": RawManifest(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "spec": {
                "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3},
                "pytorchReplicaSpecs": {"Worker": {"template": pod_template("pytorch")}},
            },
        }
    ),
    "raw-xgboost-from-a-file": RawManifest(str(FILES / "xgboost_job.yaml")),
    "raw-paddle": RawManifest(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PaddleJob",
            "spec": {
                "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "maxRestarts": 3},
                "paddleReplicaSpecs": {
                    "Worker": {"replicas": 2, "template": pod_template("paddle")}
                },
            },
        }
    ),
    "raw-jax-from-text": RawManifest(
        """
        apiVersion: kubeflow.org/v1
        kind: JAXJob
        metadata: {generateName: jax-}
        spec:
          runPolicy: {cleanPodPolicy: None, backoffLimit: 1}
          jaxReplicaSpecs:
            Worker:
              replicas: 2
              restartPolicy: OnFailure
              template:
                metadata: {creationTimestamp: null}
                spec:
                  containers: [{name: jax, image: "registry.example.com/jax:1"}]
        """
    ),
    "raw-mpi-v1": RawManifest(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "MPIJob",
            "spec": {
                "mpiReplicaSpecs": {
                    "Launcher": {"template": pod_template("mpi")},
                    "Worker": {"replicas": 2, "template": pod_template("mpi")},
                }
            },
        }
    ),
    "raw-mpi-v2beta1": RawManifest(
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "spec": {
                "sshAuthMountPath": "/home/mpi/.ssh",
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runLauncherAsWorker": True,
                "mpiReplicaSpecs": {
                    "Launcher": {"template": pod_template("launcher")},
                    "Worker": {"replicas": 2, "template": pod_template("worker")},
                },
            },
        }
    ),
    "raw-trainjob": RawManifest(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "spec": {"runtimeRef": {"name": "torch-distributed"}},
        }
    ),
    "raw-job": RawManifest(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {"completions": 2, "completionMode": "Indexed", "template": pod_template("a")},
        }
    ),
    "raw-as-read-from-a-cluster": RawManifest(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {
                "name": "old",
                "namespace": "ml",
                "uid": "1",
                "resourceVersion": "2",
                "generation": 1,
                "creationTimestamp": "2026-11-20T00:00:00Z",
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {
                "runPolicy": {"suspend": False},
                "tfReplicaSpecs": {
                    "Worker": {"replicas": 1, "template": pod_template("tensorflow")}
                },
            },
            "status": {"conditions": []},
        }
    ),
}

OWNED: dict[str, tuple[Any, Owner]] = {
    "owned-pytorch": (PyTorchJob(**TRAIN, workers=1, queue_name="team-a"), OWNER),
    "owned-elastic": (PyTorchJob(**TORCHRUN, elastic=Elastic(nodes="1:4")), MAPPED_RETRY),
    "owned-containers-and-variables": (
        PyTorchJob(
            **TRAIN,
            workers=0,
            env={"KFTRAIN_ATTEMPT": "mine"},
            pod=Pod(
                init_containers=[container("fetch")],
                sidecars=[container("metrics", terminationMessagePath="/tmp/message")],
            ),
        ),
        OWNER,
    ),
    "owned-mpi": (MPIJob(**MPI, workers=2), MAPPED_RETRY),
    "owned-trainjob": (TrainJob(runtime="torch-distributed", num_nodes=2), OWNER),
    "owned-single-node": (PyTorchJob(**TRAIN, elastic=Elastic(nodes=1)), OWNER),
    "owned-raw": (SPECS["raw-pytorch"], OWNER),
}
