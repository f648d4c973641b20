"""The defaults for everything that the author omits: with them a job neither leaks nor hangs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import (
    Elastic,
    HorovodJob,
    MPIJob,
    Pod,
    PyTorchJob,
    RawManifest,
    Replica,
    RunPolicy,
    TFJob,
    TrainJob,
    build_manifest,
)

from .reading import annotations, groups, main, pod

PYTORCH: dict[str, Any] = {"image": "img", "workers": 2}
TF: dict[str, Any] = {"image": "img", "workers": 2}
MPI: dict[str, Any] = {"image": "img", "workers": 2}
ELASTIC: dict[str, Any] = {"image": "img", "elastic": Elastic(nodes="2:4")}
SINGLE: dict[str, Any] = {"image": "img", "elastic": Elastic(nodes=1)}
DAY = 24 * 60 * 60


def policies(manifest: dict[str, Any]) -> dict[str, str]:
    return {role: group["restartPolicy"] for role, group in groups(manifest).items()}


def raw(api_version: str, kind: str, key: str, container: str, **roles: Any) -> RawManifest:
    template = {"spec": {"containers": [{"name": container, "image": "img"}]}}
    specs = {role: {"template": template, **more} for role, more in roles.items()}
    return RawManifest({"apiVersion": api_version, "kind": kind, "spec": {key: specs}})


RAW_JOBS = {
    "PyTorchJob": raw(
        "kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs", "pytorch", Master={}, Worker={}
    ),
    "TFJob": raw("kubeflow.org/v1", "TFJob", "tfReplicaSpecs", "tensorflow", Worker={}),
    "XGBoostJob": raw("kubeflow.org/v1", "XGBoostJob", "xgbReplicaSpecs", "xgboost", Master={}),
    "PaddleJob": raw("kubeflow.org/v1", "PaddleJob", "paddleReplicaSpecs", "paddle", Worker={}),
    "JAXJob": raw("kubeflow.org/v1", "JAXJob", "jaxReplicaSpecs", "jax", Worker={}),
    "MPIJob v1": raw("kubeflow.org/v1", "MPIJob", "mpiReplicaSpecs", "mpi", Launcher={}, Worker={}),
    "MPIJob v2beta1": raw(
        "kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", "main", Launcher={}, Worker={}
    ),
}


# Restart policy and backoff limit


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (PyTorchJob(**PYTORCH), "Never"),
        (PyTorchJob(**PYTORCH, run_policy=RunPolicy(backoff_limit=0)), "Never"),
        (PyTorchJob(**PYTORCH, run_policy=RunPolicy(backoff_limit=1)), "OnFailure"),
        (PyTorchJob(**PYTORCH, run_policy=RunPolicy(backoff_limit="2")), "OnFailure"),
        (PyTorchJob(**ELASTIC), "OnFailure"),
        (PyTorchJob(**ELASTIC, run_policy=RunPolicy(backoff_limit=0)), "OnFailure"),
        (TFJob(**TF), "Never"),
        (TFJob(**TF, run_policy=RunPolicy(backoff_limit=3)), "OnFailure"),
        (MPIJob(**MPI, version="v1"), "Never"),
        (MPIJob(**MPI, version="v1", run_policy=RunPolicy(backoff_limit=3)), "OnFailure"),
        # mpi-operator's limit counts pods of the launcher: its containers need not restart.
        (MPIJob(**MPI), "Never"),
        (MPIJob(**MPI, run_policy=RunPolicy(backoff_limit=3)), "Never"),
        (HorovodJob(**MPI, command=["python", "t.py"]), "Never"),
        *((job, "Never") for job in RAW_JOBS.values()),
    ],
)
def test_containers_restart_only_where_that_has_a_meaning(spec: Any, expected: str) -> None:
    assert set(policies(build_manifest(spec)).values()) == {expected}


def test_a_restart_policy_of_the_author_stays() -> None:
    job = PyTorchJob(
        image="img",
        master=Replica(restart_policy="Never"),
        worker=Replica(restart_policy="ExitCode"),
        run_policy=RunPolicy(backoff_limit=0),
    )
    assert policies(build_manifest(job)) == {"Master": "Never", "Worker": "ExitCode"}


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        (PyTorchJob(**PYTORCH), None),
        (PyTorchJob(**PYTORCH, run_policy=RunPolicy(backoff_limit=0)), 0),
        (TFJob(**TF), None),
        (MPIJob(**MPI, version="v1"), None),
        # Without a limit mpi-operator tries six times more.
        (MPIJob(**MPI), 0),
        (MPIJob(**MPI, run_policy=RunPolicy(backoff_limit=4)), 4),
        (RAW_JOBS["MPIJob v2beta1"], 0),
    ],
)
def test_a_limit_is_written_where_leaving_it_out_means_retries(spec: Any, limit: Any) -> None:
    assert build_manifest(spec)["spec"]["runPolicy"].get("backoffLimit") == limit


def test_a_single_node_is_tried_once_unless_asked_otherwise() -> None:
    assert build_manifest(PyTorchJob(**SINGLE))["spec"]["backoffLimit"] == 0
    retried = PyTorchJob(**SINGLE, run_policy=RunPolicy(backoff_limit=2))
    assert build_manifest(retried)["spec"]["backoffLimit"] == 2


# What is left at the end


@pytest.mark.parametrize("name", list(RAW_JOBS))
def test_pods_that_still_run_at_the_end_are_removed_with_their_gpus(name: str) -> None:
    policy = build_manifest(RAW_JOBS[name])["spec"]["runPolicy"]
    assert policy["cleanPodPolicy"] == "Running"


@pytest.mark.parametrize("clean_pods", ["All", "None", "Running"])
def test_a_clean_up_of_the_author_stays(clean_pods: str) -> None:
    job = PyTorchJob(**PYTORCH, run_policy=RunPolicy(clean_pods=clean_pods))
    assert build_manifest(job)["spec"]["runPolicy"]["cleanPodPolicy"] == clean_pods


def test_the_second_place_of_mpi_v1_for_a_clean_up_counts_where_it_is_the_only_one() -> None:
    job = raw("kubeflow.org/v1", "MPIJob", "mpiReplicaSpecs", "mpi", Launcher={}, Worker={})
    job.manifest["spec"]["cleanPodPolicy"] = "All"  # type: ignore[index]
    assert build_manifest(job)["spec"]["runPolicy"]["cleanPodPolicy"] == "All"


@pytest.mark.parametrize(
    ("spec", "ttl"),
    [
        *((job, DAY) for name, job in RAW_JOBS.items() if name != "MPIJob v2beta1"),
        # There a TTL deletes only the launcher.
        (RAW_JOBS["MPIJob v2beta1"], None),
        (PyTorchJob(**PYTORCH, run_policy=RunPolicy(ttl=timedelta(0))), 0),
        (PyTorchJob(**PYTORCH, run_policy=RunPolicy(ttl=timedelta(hours=1))), 3600),
        (MPIJob(**MPI, run_policy=RunPolicy(ttl=timedelta(hours=1))), 3600),
    ],
)
def test_a_finished_job_is_kept_for_a_day_where_a_ttl_removes_it(spec: Any, ttl: Any) -> None:
    assert build_manifest(spec)["spec"]["runPolicy"].get("ttlSecondsAfterFinished") == ttl


def test_a_finished_single_node_is_kept_for_a_day() -> None:
    assert build_manifest(PyTorchJob(**SINGLE))["spec"]["ttlSecondsAfterFinished"] == DAY


def test_a_train_job_gets_no_setting_that_it_does_not_have() -> None:
    assert set(build_manifest(TrainJob(runtime="torch"))["spec"]) == {
        "runtimeRef",
        "trainer",
        "runtimePatches",
    }


# Deadlines


@pytest.mark.parametrize(
    ("spec", "on_pods"),
    [
        (PyTorchJob(**PYTORCH, run_policy=RunPolicy(active_deadline=timedelta(hours=1))), 3600),
        (TFJob(**TF, run_policy=RunPolicy(active_deadline=timedelta(hours=1))), 3600),
        (MPIJob(**MPI, run_policy=RunPolicy(active_deadline=timedelta(hours=1))), None),
        (PyTorchJob(**PYTORCH), None),
    ],
)
def test_pods_end_by_themselves_where_the_operator_looks_too_late(
    spec: Any, on_pods: int | None
) -> None:
    manifest = build_manifest(spec)
    assert pod(manifest).get("activeDeadlineSeconds") == on_pods


def test_a_deadline_of_the_authors_pods_stays() -> None:
    job = PyTorchJob(
        **PYTORCH,
        run_policy=RunPolicy(active_deadline=timedelta(hours=1)),
        pod=Pod(patch={"spec": {"activeDeadlineSeconds": 60}}),
    )
    assert pod(build_manifest(job))["activeDeadlineSeconds"] == 60


# Groups


def test_a_run_policy_is_always_there_since_kubeflows_own_client_cannot_read_without() -> None:
    for spec in (PyTorchJob(**PYTORCH), TFJob(**TF), MPIJob(**MPI), MPIJob(**MPI, version="v1")):
        assert "runPolicy" in build_manifest(spec)["spec"]


@pytest.mark.parametrize(
    ("spec", "roles"),
    [
        (PyTorchJob(image="img", workers=0), ["Master"]),
        (PyTorchJob(image="img", worker=Replica(count=0)), ["Master"]),
        (TFJob(image="i", worker=Replica(), ps=Replica(count="0")), ["Worker"]),
        (TFJob(image="i", worker=Replica(), chief=Replica(count=0)), ["Worker"]),
        (
            raw(
                "kubeflow.org/v1",
                "PyTorchJob",
                "pytorchReplicaSpecs",
                "pytorch",
                Master={},
                Worker={"replicas": 0},
            ),
            ["Master"],
        ),
    ],
)
def test_a_group_of_nobody_is_left_out(spec: Any, roles: list[str]) -> None:
    assert list(groups(build_manifest(spec))) == roles


@pytest.mark.parametrize(
    ("name", "role"),
    [("PyTorchJob", "Master"), ("XGBoostJob", "Master"), ("MPIJob v2beta1", "Launcher")],
)
def test_the_count_of_the_one_that_leads_is_written(name: str, role: str) -> None:
    assert groups(build_manifest(RAW_JOBS[name]))[role]["replicas"] == 1


def test_an_elastic_manifest_starts_with_as_many_as_it_may_have() -> None:
    job = raw("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs", "pytorch", Worker={})
    job.manifest["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 5}  # type: ignore[index]
    manifest = build_manifest(job)
    assert groups(manifest)["Worker"]["replicas"] == 5
    assert policies(manifest) == {"Worker": "OnFailure"}


def test_an_elastic_policy_that_says_nothing_makes_a_job_elastic_too() -> None:
    job = raw("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs", "pytorch", Worker={})
    job.manifest["spec"]["elasticPolicy"] = {}  # type: ignore[index]
    assert policies(build_manifest(job)) == {"Worker": "OnFailure"}


# Pods


def test_the_end_of_the_log_is_kept_for_every_container() -> None:
    parts = Pod(
        init_containers=[{"name": "first", "image": "img"}],
        sidecars=[{"name": "side", "image": "img", "terminationMessagePolicy": "File"}],
    )
    spec = pod(build_manifest(PyTorchJob(**PYTORCH, pod=parts)))
    assert {
        container["name"]: container["terminationMessagePolicy"]
        for container in (*spec["containers"], *spec["initContainers"])
    } == {"pytorch": "FallbackToLogsOnError", "first": "FallbackToLogsOnError", "side": "File"}


def test_no_service_mesh_keeps_a_pod_alive() -> None:
    manifest = build_manifest(PyTorchJob(**PYTORCH))
    assert annotations(manifest)["sidecar.istio.io/inject"] == "false"


def test_a_service_mesh_that_the_author_asks_for_stays() -> None:
    wanted = Pod(annotations={"sidecar.istio.io/inject": "true"})
    manifest = build_manifest(PyTorchJob(**PYTORCH, pod=wanted))
    assert annotations(manifest)["sidecar.istio.io/inject"] == "true"


@pytest.mark.parametrize("flag", [True, False])
def test_the_autoscaler_is_told_if_it_may_move_a_pod(flag: bool) -> None:
    from airflow_kftrain import Placement

    placed = Pod(placement=Placement(safe_to_evict=flag))
    found = annotations(build_manifest(PyTorchJob(**PYTORCH, pod=placed)))
    assert found["cluster-autoscaler.kubernetes.io/safe-to-evict"] == str(flag).lower()


def test_the_autoscaler_is_told_nothing_unasked() -> None:
    found = annotations(build_manifest(PyTorchJob(**PYTORCH)))
    assert set(found) == {"sidecar.istio.io/inject"}


def test_a_manifest_is_completed_like_a_spec() -> None:
    manifest = build_manifest(RAW_JOBS["PyTorchJob"])
    assert main(manifest, "Master")["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert annotations(manifest, "Master") == {"sidecar.istio.io/inject": "false"}
