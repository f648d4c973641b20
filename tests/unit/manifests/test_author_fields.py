"""The author's names of fields of a manifest.

test_bad_input.py tests the errors that an author gets; this module has the fields that no rule
rejects.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain import Container, Elastic, Pod, PyTorchJob, Replica, RunPolicy, TrainJob
from airflow_kftrain.kinds import BATCH_JOB, PYTORCH_JOB, TRAIN_JOB
from airflow_kftrain.manifests.author_fields import author_field

WORKER = "spec.pytorchReplicaSpecs.Worker"
MAIN = f"{WORKER}.template.spec.containers[0]"
OWN = (
    "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec"
    ".template"
)


@pytest.mark.parametrize(
    ("job", "field", "written"),
    [
        (PyTorchJob(workers=1, command=["a"]), f"{MAIN}.command[0]", "command[0]"),
        (
            PyTorchJob(command=["a"], worker=Replica(command=["b"])),
            f"{MAIN}.command[0]",
            "worker.command[0]",
        ),
        (PyTorchJob(command=["a"], worker=Replica()), f"{MAIN}.command[0]", "command[0]"),
        (
            PyTorchJob(workers=1, pod=Pod(annotations={"a": "b"})),
            f"{WORKER}.template.metadata.annotations['a']",
            "pod.annotations['a']",
        ),
        (
            PyTorchJob(workers=1, run_policy=RunPolicy(suspend=True)),
            "spec.runPolicy.suspend",
            "run_policy.suspend",
        ),
        (
            PyTorchJob(worker=Replica(container=Container(ports=[]))),
            f"{MAIN}.ports[0].name",
            "worker.container.ports[0].name",
        ),
        (PyTorchJob(workers=1), "spec.nprocPerNode", "spec.nprocPerNode"),
        (PyTorchJob(workers=1), "metadata.labels['a']", "metadata.labels['a']"),
    ],
)
def test_a_field_of_a_group(job: Any, field: str, written: str) -> None:
    assert author_field(PYTORCH_JOB, job, field) == written


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("spec.template.spec.containers[0].image", "image"),
        ("spec.template.spec.restartPolicy", "worker.restart_policy"),
        ("spec.backoffLimit", "run_policy.backoff_limit"),
        ("spec.completions", "spec.completions"),
    ],
)
def test_a_field_of_a_single_node(field: str, written: str) -> None:
    job = PyTorchJob(elastic=Elastic(nodes=1), image="i", worker=Replica(restart_policy="Never"))
    assert author_field(BATCH_JOB, job, field) == written


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("spec.trainer.env[0].name", "env[0].name"),
        ("spec.trainer.resourcesPerNode.limits", "container_resources.limits"),
        (f"{OWN}.spec.volumes[0]", "pod.volumes[0]"),
        (f"{OWN}.metadata.labels['a']", "pod.labels['a']"),
        (f"{OWN}.spec.containers[0].securityContext.a", "container.security_context.a"),
        ("spec.runtimeRef.name", "spec.runtimeRef.name"),
    ],
)
def test_a_field_of_a_train_job(field: str, written: str) -> None:
    job = TrainJob(
        runtime="torch",
        pod=Pod(volumes=[], labels={"a": "b"}),
        container=Container(security_context={}),
    )
    assert author_field(TRAIN_JOB, job, field) == written
