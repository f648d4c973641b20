"""Refusals by webhooks of the real operators; those by Kubernetes itself are in tests/cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_plane import ControlPlane
from tests.control_plane.api import Api, Manifest
from tests.control_plane.launcher import MPI_OPERATOR, TRAINING_OPERATOR

PYTORCH = "kubeflow.org/v1"
TRAINER = "trainer.kubeflow.org/v1alpha1"


def replica(container: str = "pytorch", **fields: Any) -> dict[str, Any]:
    one = {"name": container, "image": "train:1", "command": ["true"], **fields}
    return {
        "replicas": 1,
        "restartPolicy": "Never",
        "template": {"spec": {"containers": [one]}},
    }


def pytorch_job(namespace: str, **roles: Any) -> Manifest:
    return {
        "apiVersion": PYTORCH,
        "kind": "PyTorchJob",
        "metadata": {"name": "job", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": roles or {"Master": replica()}},
    }


def train_job(namespace: str, runtime: str = "torch-distributed", **trainer: Any) -> Manifest:
    return {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": namespace},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer},
    }


@pytest.fixture
def api(plane: ControlPlane) -> Api:
    return plane.api()


def test_negative_number_of_nodes_is_accepted(api: Api, namespace: str) -> None:
    assert api.create(train_job(namespace, numNodes=-1), fieldValidation="Strict").code == 201


def test_processes_per_node_in_words_are_a_bad_request_without_a_reason(
    api: Api, namespace: str
) -> None:
    refused = api.create(train_job(namespace, numProcPerNode="auto"))
    assert (refused.code, refused.reason) == (400, None)
    assert 'admission webhook "defaulter.trainjob.trainer.kubeflow.org"' in refused.message


def test_unknown_runtime_is_refused_by_the_webhook(api: Api, namespace: str) -> None:
    refused = api.create(train_job(namespace, runtime="no-such"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied' in refused.message
    assert '"no-such" not found' in refused.message


def test_restart_policy_of_a_runtime_cannot_be_patched(api: Api, namespace: str) -> None:
    job = train_job(namespace)
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}
    jobs = [{"name": "node", "template": template}]
    runtime = {"template": {"spec": {"replicatedJobs": jobs}}}
    job["spec"]["runtimePatches"] = [{"manager": "test", "trainingRuntimeSpec": runtime}]
    refused = api.create(job, fieldValidation="Strict")
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert "restartPolicy" in refused.message


@pytest.mark.parametrize("plane", [TRAINING_OPERATOR], indirect=True)
def test_training_operator_serves_mpi_jobs_as_v1_only(api: Api) -> None:
    assert api.serves("kubeflow.org/v1", "MPIJob")
    assert not api.serves("kubeflow.org/v2beta1", "MPIJob")


@pytest.mark.parametrize("plane", [MPI_OPERATOR], indirect=True)
def test_mpi_operator_serves_mpi_jobs_as_v2beta1_only(api: Api) -> None:
    assert api.serves("kubeflow.org/v2beta1", "MPIJob")
    assert not api.serves("kubeflow.org/v1", "MPIJob")
    assert api.serves("kubeflow.org/v1", "PyTorchJob")
