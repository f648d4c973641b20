"""PyTorchJob: its pods, services and variables."""

from __future__ import annotations

import pytest

from tests.cluster.jobs import pytorch_job
from tests.cluster.v1 import FOR_EVER, pytorch, uid, variables
from tests.cluster.world import Job, World, eventually
from tests.control_plane.api import Manifest

_ELASTIC = {"minReplicas": 1, "maxReplicas": 3}
_HPA = "autoscaling/v2"
_CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def _labels(role: str, index: int, **more: str) -> dict[str, str]:
    prefix = "training.kubeflow.org/"
    found = {
        "operator-name": "pytorchjob-controller",
        "job-name": "job",
        "replica-type": role,
        "replica-index": str(index),
        **more,
    }
    return {prefix + key: value for key, value in found.items()}


def _env(job: Job, pod: str) -> list[tuple[str, str]]:
    return variables(job.pod(pod).now())


def test_names_and_labels_of_pods(world: World) -> None:
    roles = {"Master": pytorch(), "Worker": pytorch(count=2)}
    job = world.start(pytorch_job(roles))
    wanted = {
        "job-master-0": _labels("master", 0) | {"training.kubeflow.org/job-role": "master"},
        "job-worker-0": _labels("worker", 0),
        "job-worker-1": _labels("worker", 1),
    }
    found = {name: job.pod(name).now()["metadata"] for name in wanted}
    assert {name: metadata["labels"] for name, metadata in found.items()} == wanted
    assert all("generateName" not in metadata for metadata in found.values())


def test_without_a_master_worker_0_bears_the_role_of_the_master(world: World) -> None:
    job = world.start(pytorch_job({"Worker": pytorch(count=2)}))
    role = "training.kubeflow.org/job-role"
    labels = [job.pod(f"job-worker-{i}").now()["metadata"]["labels"] for i in range(2)]
    assert [found.get(role) for found in labels] == ["master", None]


def test_pods_and_services_are_owned_by_the_job(world: World) -> None:
    job = world.start(pytorch_job({"Master": pytorch()}))
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "job",
        "uid": uid(job.created),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert job.pod("job-master-0").now()["metadata"]["ownerReferences"] == [owner]
    eventually(lambda: world.names("Service"))
    (service,) = world.listed("Service")
    assert service["metadata"]["ownerReferences"] == [owner]


def test_every_pod_has_a_headless_service_of_its_name(world: World) -> None:
    job = world.start(pytorch_job({"Master": pytorch(), "Worker": pytorch()}))
    eventually(lambda: world.names("Service") == ["job-master-0", "job-worker-0"])
    service = world.listed("Service")[1]
    assert service["metadata"]["labels"] == service["spec"]["selector"] == _labels("worker", 0)
    assert service["spec"]["clusterIP"] == "None"
    port = {"name": "pytorchjob-port", "protocol": "TCP", "port": 23456, "targetPort": 23456}
    assert service["spec"]["ports"] == [port]
    assert job.pod_names() == world.names("Service")


def test_labels_and_annotations_of_the_template_reach_the_pods_and_the_jobs_do_not(
    world: World,
) -> None:
    role = pytorch()
    role["template"]["metadata"] = {
        "labels": {"team": "a", "training.kubeflow.org/job-name": "mine"},
        "annotations": {"sidecar.istio.io/inject": "true", "note": "b"},
    }
    body = pytorch_job({"Master": role})
    body["metadata"] |= {"labels": {"of": "job"}, "annotations": {"of": "job"}}
    job = world.start(body)
    metadata = job.pod("job-master-0").now()["metadata"]
    # The operator's labels win; it knows nothing about Istio.
    wanted = {"team": "a"} | _labels("master", 0) | {"training.kubeflow.org/job-role": "master"}
    assert metadata["labels"] == wanted
    annotations = metadata["annotations"]
    assert annotations["sidecar.istio.io/inject"] == "true"
    assert annotations["note"] == "b"
    assert "of" not in annotations


def test_variables_of_master_and_workers(world: World) -> None:
    job = world.start(pytorch_job({"Master": pytorch(), "Worker": pytorch(count=2)}))

    def wanted(rank: int) -> list[tuple[str, str]]:
        return [
            ("PYTHONUNBUFFERED", "1"),
            ("MASTER_PORT", "23456"),
            ("PET_MASTER_PORT", "23456"),
            ("MASTER_ADDR", "job-master-0"),
            ("PET_MASTER_ADDR", "job-master-0"),
            ("WORLD_SIZE", "3"),
            ("RANK", str(rank)),
            ("PET_NODE_RANK", str(rank)),
            ("PET_NPROC_PER_NODE", "auto"),
            ("PET_NNODES", "3"),
        ]

    for rank, name in enumerate(["job-master-0", "job-worker-0", "job-worker-1"]):
        assert _env(job, name) == wanted(rank)


def test_workers_without_a_master_are_not_told_where_to_meet(world: World) -> None:
    job = world.start(pytorch_job({"Worker": pytorch(count=2)}))
    assert _env(job, "job-worker-1") == [
        ("PYTHONUNBUFFERED", "1"),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_NNODES", "2"),
    ]


def test_all_containers_of_a_pod_are_told_the_same(world: World) -> None:
    role = pytorch()
    sidecar = {"name": "beside", "image": "x", "command": ["true"]}
    role["template"]["spec"]["containers"].append(sidecar)
    job = world.start(pytorch_job({"Master": role}))
    pod = job.pod("job-master-0").now()
    assert variables(pod, 1) == variables(pod)


def test_a_variable_that_is_given_twice_is_the_operators(world: World) -> None:
    mine = [{"name": "MASTER_ADDR", "value": "mine"}, {"name": "OTHER", "value": "mine"}]
    script = '[ "$MASTER_ADDR" != mine ] && [ "$OTHER" = mine ]'
    job = world.submit(pytorch_job({"Master": pytorch(script, env=mine)}))
    job.succeeds()
    values = [value for name, value in _env(job, "job-master-0") if name == "MASTER_ADDR"]
    assert values == ["mine", "job-master-0"]


@pytest.mark.parametrize(
    ("given", "world_size"),
    [("auto", "2"), ("cpu", "2"), ("gpu", "2"), ("4", "8"), ("many", "2"), ("0", "0")],
    ids=["auto", "cpu", "gpu", "number", "nonsense", "zero"],
)
def test_processes_per_node_count_in_the_world_size_if_they_are_a_number(
    world: World, given: str, world_size: str
) -> None:
    roles = {"Master": pytorch(), "Worker": pytorch()}
    job = world.start(pytorch_job(roles, nprocPerNode=given))
    env = dict(_env(job, "job-master-0"))
    assert (env["PET_NPROC_PER_NODE"], env["WORLD_SIZE"]) == (given, world_size)


def test_processes_per_node_stay_auto_beside_a_limit_of_gpus(world: World) -> None:
    gpus: Manifest = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    job = world.start(pytorch_job({"Master": pytorch(**gpus)}))
    assert dict(_env(job, "job-master-0"))["PET_NPROC_PER_NODE"] == "auto"


def test_a_port_of_the_container_with_the_right_name_is_taken(world: World) -> None:
    port: Manifest = {"ports": [{"name": "pytorchjob-port", "containerPort": 4000}]}
    job = world.start(pytorch_job({"Master": pytorch(**port)}))
    assert dict(_env(job, "job-master-0"))["MASTER_PORT"] == "4000"
    eventually(lambda: world.names("Service"))
    assert world.listed("Service")[0]["spec"]["ports"][0]["port"] == 4000


def test_other_ports_are_kept_beside_the_default_one(world: World) -> None:
    port: Manifest = {"ports": [{"name": "metrics", "containerPort": 4000}]}
    job = world.start(pytorch_job({"Master": pytorch(**port)}))
    ports = job.pod("job-master-0").now()["spec"]["containers"][0]["ports"]
    found = [(item["name"], item["containerPort"]) for item in ports]
    assert found == [("metrics", 4000), ("pytorchjob-port", 23456)]
    eventually(lambda: world.names("Service"))
    names = {item["name"] for item in world.listed("Service")[0]["spec"]["ports"]}
    assert names == {"metrics", "pytorchjob-port"}


def test_variables_of_an_elastic_job(world: World) -> None:
    policy = {
        **_ELASTIC,
        "maxRestarts": 5,
        "rdzvBackend": "etcd",
        "rdzvHost": "meet.here",
        "rdzvPort": 2379,
        "rdzvId": "me",
        "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
        "standalone": True,
    }
    roles = {"Worker": pytorch(count=2)}
    job = world.start(pytorch_job(roles, elasticPolicy=policy, nprocPerNode="2"))
    assert _env(job, "job-worker-1") == [
        ("PYTHONUNBUFFERED", "1"),
        ("PET_NPROC_PER_NODE", "2"),
        ("PET_RDZV_ENDPOINT", "meet.here:2379"),
        ("PET_RDZV_BACKEND", "etcd"),
        ("PET_NNODES", "1:3"),
        ("PET_MAX_RESTARTS", "5"),
        ("PET_RDZV_ID", "me"),
        ("PET_RDZV_CONF", "a=1,b=2"),
        ("PET_STANDALONE", ""),
    ]


def test_variables_of_an_elastic_job_that_says_nothing(world: World) -> None:
    job = world.start(pytorch_job({"Worker": pytorch(count=2)}, elasticPolicy={}))
    assert _env(job, "job-worker-0") == [
        ("PYTHONUNBUFFERED", "1"),
        ("PET_NPROC_PER_NODE", "auto"),
        ("PET_RDZV_ENDPOINT", "job-worker-0:23456"),
        ("PET_RDZV_BACKEND", "c10d"),
        ("PET_NNODES", "2:2"),
    ]


def test_an_elastic_job_with_a_master_is_told_both_ways_to_meet(world: World) -> None:
    roles = {"Master": pytorch(), "Worker": pytorch(count=2)}
    job = world.start(pytorch_job(roles, elasticPolicy=_ELASTIC))
    env = dict(_env(job, "job-worker-0"))
    assert (env["MASTER_ADDR"], env["RANK"]) == ("job-master-0", "1")
    assert (env["PET_RDZV_ENDPOINT"], env["PET_NNODES"]) == ("job-worker-0:23456", "1:3")


def test_processes_per_node_of_the_elastic_policy_still_count(world: World) -> None:
    policy = {**_ELASTIC, "nProcPerNode": 2}
    job = world.start(pytorch_job({"Worker": pytorch()}, elasticPolicy=policy))
    found = [item for item in _env(job, "job-worker-0") if item[0] == "PET_NPROC_PER_NODE"]
    assert found == [("PET_NPROC_PER_NODE", "2")]


@pytest.mark.parametrize("leader", ["Master", "none"])
def test_workers_wait_for_their_master_in_an_init_container(world: World, leader: str) -> None:
    roles = {"Worker": pytorch()} | ({"Master": pytorch()} if leader == "Master" else {})
    job = world.start(pytorch_job(roles))
    found = job.pod("job-worker-0").now()["spec"].get("initContainers") or []
    names = [(item["name"], item["image"]) for item in found]
    assert names == ([("init-pytorch", "alpine:3.10")] if leader == "Master" else [])
    if leader == "Master":
        assert "initContainers" not in job.pod("job-master-0").now()["spec"]


@pytest.mark.real_only("there are no autoscalers")
def test_metrics_make_an_autoscaler_that_a_suspension_takes_away(world: World) -> None:
    policy = {**_ELASTIC, "metrics": [_CPU]}
    job = world.start(pytorch_job({"Worker": pytorch(FOR_EVER)}, elasticPolicy=policy))
    eventually(lambda: world.names("HorizontalPodAutoscaler", _HPA) == ["job"])
    (found,) = world.listed("HorizontalPodAutoscaler", _HPA)
    target = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job"}
    assert found["spec"]["scaleTargetRef"] == target
    assert (found["spec"]["minReplicas"], found["spec"]["maxReplicas"]) == (1, 3)
    assert found["spec"]["metrics"] == [_CPU]
    assert found["metadata"]["ownerReferences"][0]["uid"] == uid(job.created)
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    eventually(lambda: not world.names("HorizontalPodAutoscaler", _HPA))


@pytest.mark.real_only("there are no autoscalers")
def test_an_elastic_job_without_metrics_has_no_autoscaler(world: World) -> None:
    job = world.start(pytorch_job({"Worker": pytorch("sleep 1")}, elasticPolicy=_ELASTIC))
    job.becomes("Succeeded")
    assert world.names("HorizontalPodAutoscaler", _HPA) == []


@pytest.mark.real_only("there is no scale subresource")
def test_the_scale_of_a_job_is_the_number_of_its_workers(world: World) -> None:
    job = world.start(pytorch_job({"Worker": pytorch(FOR_EVER)}, elasticPolicy=_ELASTIC))
    job.becomes("Running")
    path = f"{job.path}/scale"
    scale = world.api.call("GET", path).object
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (1, 1)
    assert set(scale["status"]["selector"].split(",")) == {
        f"{key}={value}"
        for key, value in _labels("worker", 0).items()
        if not key.endswith("replica-index")
    }
    scale["spec"]["replicas"] = 2
    assert world.api.call("PUT", path, scale).code == 200
    job.pod("job-worker-1")


def test_defaults_are_not_written_into_the_job(world: World) -> None:
    worker = pytorch()
    del worker["replicas"], worker["restartPolicy"]
    job = world.start(pytorch_job({"Worker": worker}))
    assert job.pod("job-worker-0").now()["spec"]["restartPolicy"] == "OnFailure"
    assert job.becomes("Succeeded")
    spec = job.now()["spec"]
    assert spec["runPolicy"] == {"suspend": False}
    assert set(spec) == {"pytorchReplicaSpecs", "runPolicy"}
    assert set(spec["pytorchReplicaSpecs"]["Worker"]) == {"template"}


def test_a_restart_policy_of_the_template_is_overwritten_with_a_warning(world: World) -> None:
    role = pytorch(policy="OnFailure", pod={"restartPolicy": "Always"})
    job = world.start(pytorch_job({"Master": role}))
    assert job.pod("job-master-0").now()["spec"]["restartPolicy"] == "OnFailure"
    told = world.told("SetPodTemplateRestartPolicy", "PyTorchJob/job")
    assert told.type == "Warning"
    assert told.message == (
        "Restart policy in pod template will be overwritten by restart policy in replica spec"
    )


def test_an_env_from_a_reference_is_kept_before_the_operators(world: World) -> None:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}
    mine: Manifest = {"env": [{"name": "UID_OF_POD", "valueFrom": source}]}
    job = world.start(pytorch_job({"Master": pytorch(**mine)}))
    first = job.pod("job-master-0").now()["spec"]["containers"][0]["env"][0]
    assert first == {"name": "UID_OF_POD", "valueFrom": source}
