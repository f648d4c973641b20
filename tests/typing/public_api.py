"""What authors write, as a type checker sees it. Never run: `mypy --strict` reads it.

Lines that must be errors are marked with their error code; mypy reports a mark that is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import airflow_kftrain
from airflow_kftrain import (
    Elastic,
    FromConfigMap,
    FromField,
    FromSecret,
    Horovod,
    HorovodJob,
    HorovodJobOperator,
    Initializer,
    InvalidSpec,
    KfTrainError,
    Lifecycle,
    Links,
    Logs,
    MPIJob,
    MPIJobOperator,
    Owner,
    Placement,
    Pod,
    PyTorchJob,
    PyTorchJobOperator,
    RawManifest,
    Replica,
    Resources,
    RunPolicy,
    Runtime,
    SchedulingPolicy,
    Source,
    TFJob,
    TFJobOperator,
    Timeouts,
    TrainingJobOperator,
    TrainingJobSensor,
    TrainJob,
    TrainJobOperator,
    UnknownKind,
    build_manifest,
)

if TYPE_CHECKING:
    from typing_extensions import assert_type


def jobs() -> None:
    assert_type(PyTorchJob(image="img", workers=4), PyTorchJob)
    PyTorchJob(image="img", workers="{{ params.workers }}", command=["python", "train.py"])
    PyTorchJob(image="img", command=("python", "train.py", "--epochs", 3, "--rate", 0.1))
    PyTorchJob(
        image="img",
        args=["--day", "{{ ds }}"],
        env={"EPOCHS": 3, "TOKEN": FromSecret("wandb", "token"), "POD": FromField("metadata.name")},
        container_resources=Resources(cpu=8, memory="32Gi", gpu=1),
        pod=Pod(labels={"team": "vision"}),
        run_policy=RunPolicy(backoff_limit=2, active_deadline=timedelta(hours=6)),
        queue_name="team-a",
        queue_priority="urgent",
        master=Replica(container_resources=Resources(cpu=2)),
        worker=Replica(count=4),
    )
    PyTorchJob(image="img", elastic=Elastic(nodes="2:4", nproc_per_node="gpu"))
    TFJob(
        image="img",
        chief=Replica(),
        worker=Replica(count=2),
        ps=Replica(count="{{ n }}"),
        evaluator=None,
        success_policy="AllWorkers",
        dynamic_workers=True,
    )
    MPIJob(image="img", workers=2, slots_per_worker=8, implementation="Intel", version="v2beta1")
    MPIJob(launcher=Replica(command=["mpirun"]), worker=Replica(count=2))
    assert_type(HorovodJob(workers=2, horovod=Horovod(min_np=1)), HorovodJob)
    TrainJob(runtime="torch-distributed", num_nodes=2, num_proc_per_node="{{ n }}")
    TrainJob(
        runtime=Runtime("own", kind="TrainingRuntime"),
        initializer=Initializer(
            dataset=Source("hf://squad", env={"A": "b"}, secret="hf"), model=Source("s3://b/m")
        ),
        runtime_patches=[{"manager": "example.com/team"}],
    )
    RawManifest({"apiVersion": "batch/v1", "kind": "Job"})
    RawManifest("job.yaml")


def nouns(model_object: Any) -> None:
    Resources(cpu=(1, 2), memory=("1Gi", None), gpu=1, ephemeral_storage=0.5)
    Resources(extended={"amd.com/gpu": 1, "rdma/hca": "2"})
    Placement(
        node_selector={"pool": "gpu"},
        tolerations=[model_object, {"key": "gpu"}],
        affinity=model_object,
        priority_class="high",
        scheduler_name="volcano",
        safe_to_evict=False,
    )
    Pod(
        volumes=[model_object, {"name": "data"}],
        volume_mounts=(model_object,),
        shared_memory="2Gi",
        placement=Placement(),
        image_pull_secrets=["registry", model_object],
        sidecars=[{"name": "side"}],
        template_file="/templates/pod.yaml",
        patch={"spec": {"hostNetwork": True}},
    )
    RunPolicy(
        clean_pods="All",
        ttl=timedelta(0),
        backoff_limit="{{ n }}",
        suspend=True,
        scheduling=SchedulingPolicy(min_available=2, min_resources={"cpu": 1, "memory": "1Gi"}),
    )
    Elastic(min_nodes=1, max_nodes="4", rdzv_conf={"last_call_timeout": 30})
    Timeouts(startup=timedelta(minutes=5), image_pull=None)
    Replica(env=[model_object], container_resources=model_object)
    Replica(env={"URL": FromConfigMap("settings", "url", optional=True)}, args=["--rate", 0.1])
    assert_type(Replica(count=2)._replace(count=3), Replica)
    assert_type(Elastic().join_timeout, timedelta)
    assert_type(Timeouts().startup, "timedelta | None")
    assert_type(Replica().count, "int | str | None")


def variables_that_are_made_before() -> None:
    env = {"EPOCHS": 3}
    amounts = {"amd.com/gpu": 1}
    labels: Mapping[str, str] = {"team": "vision"}
    command = ["python", "train.py"]
    PyTorchJob(env=env, command=command, workers=1, pod=Pod(labels=labels))
    Resources(extended=amounts)


def building() -> None:
    owner = Owner("airflow", "dag", "task", "run", "ti", map_index=3, try_number=2, clears=1)
    assert_type(owner.identity, str)
    assert_type(build_manifest(PyTorchJob(workers=1)), dict[str, Any])
    assert_type(
        build_manifest(RawManifest("job.yaml"), owner=owner, namespace="ml"), dict[str, Any]
    )
    assert_type(airflow_kftrain.__version__, str)
    try:
        build_manifest(TrainJob(runtime="torch"))
    except UnknownKind as error:
        assert_type(error.field, str)
    except InvalidSpec as error:
        assert_type((error.problem, error.advice, error.value), tuple[str, str, object])
    except KfTrainError:
        pass


def operators() -> None:
    train = PyTorchJobOperator(
        task_id="train",
        image="img",
        command=["python", "train.py", "--day", "{{ ds }}"],
        workers="{{ params.workers }}",
        container_resources=Resources(cpu=8, memory="32Gi", gpu=1),
        run_policy=RunPolicy(clean_pods="Running"),
        namespace="ml",
        kubernetes_conn_id=None,
        deferrable=True,
        wait_for_completion=True,
        poll_interval=timedelta(minutes=2),
        timeouts=Timeouts(startup=None),
        lifecycle=Lifecycle(on_finish="keep", skip_on_exit_code=[3], result_required=True),
        logs=Logs(deferred="leader"),
        links=Links(dashboard="https://grafana/{job}", leader_logs=""),
        retries=2,
        execution_timeout=timedelta(hours=6),
    )
    assert_type(train, PyTorchJobOperator)
    train.dry_run()
    PyTorchJobOperator(task_id="t", image="img", elastic=Elastic(nodes="2:4"))
    TFJobOperator(task_id="t", image="img", chief=Replica(), success_policy="AllWorkers")
    MPIJobOperator(task_id="t", image="img", workers=2, slots_per_worker=8, version="v1")
    HorovodJobOperator(task_id="t", image="img", workers=2, horovod=Horovod(min_np=1))
    TrainJobOperator(task_id="t", runtime=Runtime("torch"), num_nodes=2)
    TrainingJobOperator(task_id="t", manifest={"kind": "XGBoostJob"}, pool="gpus")
    TrainingJobOperator(task_id="t", manifest="jobs/train.yaml")
    TrainingJobSensor(task_id="t", kind="TFJob", name="train", timeout=60, soft_fail=True)
    PyTorchJobOperator.partial(task_id="t", image="img").expand(workers=[1, 2])


def mistakes_with_operators() -> None:
    PyTorchJobOperator("t")  # type: ignore[call-arg]
    PyTorchJobOperator(task_id="t", workers=1.5)  # type: ignore[arg-type]
    PyTorchJobOperator(task_id="t", master=Pod())  # type: ignore[arg-type]
    PyTorchJobOperator(task_id="t", elastic=4)  # type: ignore[arg-type]
    TrainJobOperator(task_id="t")  # type: ignore[call-arg]
    TrainingJobOperator(task_id="t")  # type: ignore[call-arg]
    TrainingJobSensor(task_id="t", kind="TFJob")  # type: ignore[call-arg]
    TFJobOperator(task_id="t", success_policy=True)  # type: ignore[arg-type]


def mistakes() -> None:
    assert airflow_kftrain.PytorchJob  # type: ignore[attr-defined]
    PyTorchJob("img")  # type: ignore[call-arg]
    PyTorchJob(num_workers=4)  # type: ignore[call-arg]
    PyTorchJob(workers=1.5)  # type: ignore[arg-type]
    PyTorchJob(image=1)  # type: ignore[arg-type]
    PyTorchJob(args=["--fast", None])  # type: ignore[list-item]
    PyTorchJob(env={"TOKEN": None})  # type: ignore[dict-item]
    PyTorchJob(pod={"labels": {}})  # type: ignore[arg-type]
    PyTorchJob(worker={"count": 2})  # type: ignore[arg-type]
    PyTorchJob(worker=Pod())  # type: ignore[arg-type]
    PyTorchJob(elastic=4)  # type: ignore[arg-type]
    PyTorchJob(run_policy={"ttl": 60})  # type: ignore[arg-type]
    PyTorchJob(horovod=Horovod())  # type: ignore[call-arg]
    PyTorchJob(workers=1).workers = 2  # type: ignore[misc]
    TFJob(master=Replica())  # type: ignore[call-arg]
    MPIJob(elastic=Elastic())  # type: ignore[call-arg]
    HorovodJob(horovod=None)  # type: ignore[arg-type]
    TrainJob(image="img")  # type: ignore[call-arg]
    TrainJob(runtime=None)  # type: ignore[arg-type]
    TrainJob(runtime="torch", workers=2)  # type: ignore[call-arg]
    RawManifest()  # type: ignore[call-arg]
    RawManifest([1])  # type: ignore[arg-type]
    RunPolicy(ttl=60)  # type: ignore[arg-type]
    RunPolicy(backoff_limit=2).backoff_limit = 3  # type: ignore[misc]
    Resources(cpu=[1, 2])  # type: ignore[arg-type]
    Resources(gpu=(1, 2))  # type: ignore[arg-type]
    Elastic(join_timeout=900)  # type: ignore[arg-type]
    Elastic(rdzv_conf="a=1")  # type: ignore[arg-type]
    Pod(labels={"a": 1})  # type: ignore[dict-item]
    Pod(volumes={"name": "data"})  # type: ignore[arg-type]
    Placement(node_selector=["gpu"])  # type: ignore[arg-type]
    FromSecret("wandb")  # type: ignore[call-arg]
    Initializer(dataset="hf://squad")  # type: ignore[arg-type]
    Runtime()  # type: ignore[call-arg]
    Owner("airflow", "dag")  # type: ignore[call-arg]
    build_manifest({})  # type: ignore[arg-type]
    build_manifest(PyTorchJob(workers=1), None)  # type: ignore[call-arg]
