"""Model objects of the Kubernetes client are accepted wherever dicts are: authors have them from
KubernetesPodOperator. Both give the same manifest."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from kubernetes.client import models as k8s

from airflow_kftrain import (
    InvalidSpec,
    Owner,
    Placement,
    Pod,
    PyTorchJob,
    RawManifest,
    Replica,
    TrainJob,
    build_manifest,
)
from airflow_kftrain.manifests import check_given

OWNER = Owner("airflow", "dag", "train", "run", "ti")

VOLUME = (
    k8s.V1Volume(
        name="data",
        persistent_volume_claim=k8s.V1PersistentVolumeClaimVolumeSource(claim_name="data"),
    ),
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
)
MOUNT = (
    k8s.V1VolumeMount(name="data", mount_path="/data", read_only=True, sub_path="a"),
    {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "a"},
)
TOLERATION = (
    k8s.V1Toleration(key="gpu", operator="Exists", effect="NoSchedule", toleration_seconds=30),
    {"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 30},
)
AFFINITY = (
    k8s.V1Affinity(
        node_affinity=k8s.V1NodeAffinity(
            required_during_scheduling_ignored_during_execution=k8s.V1NodeSelector(
                node_selector_terms=[
                    k8s.V1NodeSelectorTerm(
                        match_expressions=[
                            k8s.V1NodeSelectorRequirement(
                                key="zone", operator="In", values=["a", "b"]
                            )
                        ]
                    )
                ]
            )
        )
    ),
    {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
                ]
            }
        }
    },
)
SECRET_VARIABLE = (
    k8s.V1EnvVar(
        name="TOKEN",
        value_from=k8s.V1EnvVarSource(
            secret_key_ref=k8s.V1SecretKeySelector(name="wandb", key="token", optional=False)
        ),
    ),
    {
        "name": "TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token", "optional": False}},
    },
)
PLAIN_VARIABLE = (k8s.V1EnvVar(name="MODE", value="fast"), {"name": "MODE", "value": "fast"})
RESOURCES = (
    k8s.V1ResourceRequirements(
        requests={"cpu": "1", "memory": "1Gi"}, limits={"memory": "2Gi", "nvidia.com/gpu": "1"}
    ),
    {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"},
    },
)
SIDECAR = (
    k8s.V1Container(
        name="metrics",
        image="metrics:1",
        command=["serve"],
        env=[PLAIN_VARIABLE[0]],
        env_from=[k8s.V1EnvFromSource(secret_ref=k8s.V1SecretEnvSource(name="s"))],
        ports=[k8s.V1ContainerPort(container_port=9000, name="http")],
        resources=k8s.V1ResourceRequirements(limits={"memory": "64Mi"}),
        volume_mounts=[MOUNT[0]],
        image_pull_policy="Always",
        security_context=k8s.V1SecurityContext(run_as_user=0, privileged=False),
        readiness_probe=k8s.V1Probe(
            http_get=k8s.V1HTTPGetAction(path="/", port=9000), period_seconds=5
        ),
    ),
    {
        "name": "metrics",
        "image": "metrics:1",
        "command": ["serve"],
        "env": [PLAIN_VARIABLE[1]],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "ports": [{"containerPort": 9000, "name": "http"}],
        "resources": {"limits": {"memory": "64Mi"}},
        "volumeMounts": [MOUNT[1]],
        "imagePullPolicy": "Always",
        "securityContext": {"runAsUser": 0, "privileged": False},
        "readinessProbe": {"httpGet": {"path": "/", "port": 9000}, "periodSeconds": 5},
    },
)
PULL_SECRET = (k8s.V1LocalObjectReference(name="registry"), {"name": "registry"})
PATCH = (
    k8s.V1PodTemplateSpec(
        metadata=k8s.V1ObjectMeta(annotations={"patched": "yes"}),
        spec=k8s.V1PodSpec(
            containers=[k8s.V1Container(name="pytorch", working_dir="/app")],
            host_network=True,
            security_context=k8s.V1PodSecurityContext(fs_group=1000),
        ),
    ),
    {
        "metadata": {"annotations": {"patched": "yes"}},
        "spec": {
            "containers": [{"name": "pytorch", "workingDir": "/app"}],
            "hostNetwork": True,
            "securityContext": {"fsGroup": 1000},
        },
    },
)

# What an author may write, with a place for one object of each pair.
USES: dict[str, tuple[tuple[Any, Any], Any]] = {
    "a volume": (VOLUME, lambda thing: {"pod": Pod(volumes=[thing])}),
    "a mount": (
        MOUNT,
        lambda thing: {"pod": Pod(volumes=[VOLUME[1]], volume_mounts=(thing,))},
    ),
    "a toleration": (
        TOLERATION,
        lambda thing: {"pod": Pod(placement=Placement(tolerations=[thing]))},
    ),
    "an affinity": (AFFINITY, lambda thing: {"pod": Pod(placement=Placement(affinity=thing))}),
    "a variable from a secret": (SECRET_VARIABLE, lambda thing: {"env": [thing]}),
    "a plain variable": (PLAIN_VARIABLE, lambda thing: {"env": (thing,)}),
    "a replica's variable": (PLAIN_VARIABLE, lambda thing: {"worker": Replica(env=[thing])}),
    "resources": (RESOURCES, lambda thing: {"container_resources": thing}),
    "a replica's resources": (
        RESOURCES,
        lambda thing: {"worker": Replica(container_resources=thing)},
    ),
    "a sidecar": (SIDECAR, lambda thing: {"pod": Pod(volumes=[VOLUME[1]], sidecars=[thing])}),
    "an init container": (
        SIDECAR,
        lambda thing: {"pod": Pod(volumes=[VOLUME[1]], init_containers=[thing])},
    ),
    "a pull secret": (PULL_SECRET, lambda thing: {"pod": Pod(image_pull_secrets=[thing])}),
    "a patch": (PATCH, lambda thing: {"pod": Pod(patch=thing)}),
}
every_use = pytest.mark.parametrize("use", list(USES))


def given(**more: Any) -> dict[str, Any]:
    return {"image": "img", **({} if "worker" in more else {"workers": 1}), **more}


def built(arguments: dict[str, Any]) -> dict[str, Any]:
    return build_manifest(PyTorchJob(**arguments), owner=OWNER)


@every_use
def test_a_model_object_makes_the_manifest_that_a_dict_makes(use: str) -> None:
    (model, as_dict), arguments = USES[use]
    assert built(given(**arguments(model))) == built(given(**arguments(as_dict)))


@every_use
def test_a_model_object_is_not_changed(use: str) -> None:
    (model, _), arguments = USES[use]
    before = deepcopy(model.to_dict())
    built(given(**arguments(model)))
    assert model.to_dict() == before


@every_use
def test_a_model_object_is_accepted_at_parse(use: str) -> None:
    (model, _), arguments = USES[use]
    check_given(PyTorchJob, given(**arguments(model)))


def everything(side: int) -> dict[str, Any]:
    return given(
        env=[SECRET_VARIABLE[side], PLAIN_VARIABLE[1]],
        container_resources=RESOURCES[side],
        pod=Pod(
            volumes=[VOLUME[side], {"name": "cache", "emptyDir": {}}],
            volume_mounts=[{"name": "cache", "mountPath": "/cache"}, MOUNT[side]],
            placement=Placement(
                tolerations=[TOLERATION[side], {"key": "spot", "operator": "Exists"}],
                affinity=AFFINITY[side],
            ),
            image_pull_secrets=["mirror", PULL_SECRET[side]],
            sidecars=[SIDECAR[side]],
            patch=PATCH[side],
        ),
    )


def test_both_may_be_mixed() -> None:
    assert built(everything(0)) == built(everything(1))


def test_a_dict_may_hold_model_objects() -> None:
    holder = {**SIDECAR[1], "env": [PLAIN_VARIABLE[0]], "volumeMounts": [MOUNT[0]]}
    with_models = Pod(volumes=[VOLUME[1]], sidecars=[holder])
    with_dicts = Pod(volumes=[VOLUME[1]], sidecars=[SIDECAR[1]])
    assert built(given(pod=with_models)) == built(given(pod=with_dicts))


def test_a_train_job_takes_them_too() -> None:
    def train(side: int) -> dict[str, Any]:
        job = TrainJob(
            runtime="torch",
            env=[SECRET_VARIABLE[side]],
            container_resources=RESOURCES[side],
            pod=Pod(
                volumes=[VOLUME[side]],
                volume_mounts=[MOUNT[side]],
                placement=Placement(tolerations=[TOLERATION[side]], affinity=AFFINITY[side]),
                image_pull_secrets=[PULL_SECRET[side]],
            ),
        )
        return build_manifest(job, owner=OWNER)

    assert train(0) == train(1)


def test_a_manifest_may_be_a_model_object() -> None:
    template = k8s.V1PodTemplateSpec(
        spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="main", image="img")])
    )
    job = k8s.V1Job(
        api_version="batch/v1",
        kind="Job",
        metadata=k8s.V1ObjectMeta(labels={"a": "b"}),
        spec=k8s.V1JobSpec(template=template, backoff_limit=1),
    )
    as_dict = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "backoffLimit": 1,
            "template": {"spec": {"containers": [{"name": "main", "image": "img"}]}},
        },
    }
    assert build_manifest(RawManifest(job)) == build_manifest(RawManifest(as_dict))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"pod": Pod(volumes=[k8s.V1Volume(name="My_Data")])}, "pod.volumes[0].name"),
        ({"env": [k8s.V1EnvVar(name="A=B", value="c")]}, "env[0].name"),
        (
            {"pod": Pod(placement=Placement(tolerations=k8s.V1Toleration(key="a")))},  # type: ignore[arg-type]
            "pod.placement.tolerations",
        ),
        ({"pod": Pod(sidecars=[k8s.V1Container(name="pytorch")])}, "pod.sidecars[0].image"),
        (
            {
                "container_resources": k8s.V1ResourceRequirements(
                    requests={"cpu": "2"}, limits={"cpu": "1"}
                )
            },
            "container_resources.requests['cpu']",
        ),
        ({"pod": k8s.V1Pod()}, "pod"),
    ],
)
def test_what_is_wrong_in_a_model_object_is_named_as_in_a_dict(
    arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        built(given(**arguments))
    assert caught.value.field == field


def test_an_error_does_not_show_what_a_model_object_holds() -> None:
    pod = k8s.V1Container(name="a", env=[k8s.V1EnvVar(name="TOKEN", value="hunter2")])
    with pytest.raises(InvalidSpec) as caught:
        built(given(pod=pod))
    assert "hunter2" not in str(caught.value)
    assert "got V1Container(...)" in str(caught.value)
