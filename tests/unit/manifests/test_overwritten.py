"""Variables that an operator sets itself: a warning says so at parse."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain import Elastic, MPIJob, PyTorchJob, RawManifest, Replica, TFJob, TrainJob
from airflow_kftrain.kinds import KINDS
from airflow_kftrain.manifests import check_given

COUNTED = "Omit it: it follows from the number of replicas."


def raw(kind: str, roles: str, container: str, name: str) -> dict[str, Any]:
    main = {"name": container, "image": "i", "env": [{"name": name, "value": "hunter2"}]}
    group = {"replicas": 2, "template": {"spec": {"containers": [main]}}}
    spec = {roles: {"Worker": group}}
    return {"manifest": {"apiVersion": "kubeflow.org/v1", "kind": kind, "spec": spec}}


def without_effect(field: str, name: str, instead: str) -> str:
    return f"{field}: training-operator sets {name} itself, so this value has no effect. {instead}"


@pytest.mark.parametrize(
    ("spec", "given", "warnings"),
    [
        (
            PyTorchJob,
            {"workers": 1, "env": {"A": "1", "RANK": "hunter2"}},
            [without_effect("env", "RANK", COUNTED)],
        ),
        (
            PyTorchJob,
            {"master": Replica(), "worker": Replica(env={"PET_NPROC_PER_NODE": 4})},
            [
                without_effect(
                    "worker.env",
                    "PET_NPROC_PER_NODE",
                    "Write elastic=Elastic(nproc_per_node=...), or nprocPerNode in a manifest.",
                )
            ],
        ),
        (PyTorchJob, {"workers": 0, "env": {"RANK": 0}}, []),
        (PyTorchJob, {"workers": 1, "env": {"PET_RDZV_ID": "a", "PYTHONUNBUFFERED": 1}}, []),
        (
            PyTorchJob,
            {"elastic": Elastic(nodes=2), "env": {"PET_RDZV_ID": "a"}},
            [
                without_effect(
                    "env", "PET_RDZV_ID", "Set it in elastic, or in elasticPolicy of a manifest."
                )
            ],
        ),
        (PyTorchJob, {"elastic": Elastic(nodes=1), "env": {"RANK": 0}}, []),
        (TFJob, {"workers": 1, "env": {"TF_CONFIG": "{}"}}, []),
        (
            TFJob,
            {"workers": 2, "env": {"TF_CONFIG": "{}"}},
            [without_effect("env", "TF_CONFIG", "Omit it: it lists the replicas of the job.")],
        ),
        (MPIJob, {"workers": 2, "env": {"RANK": 0}}, []),
        (TrainJob, {"runtime": "torch", "env": {"RANK": 0}}, []),
        (PyTorchJob, {"workers": 1, "env": "{{ params.env }}"}, []),
        (
            RawManifest,
            raw("JAXJob", "jaxReplicaSpecs", "jax", "PROCESS_ID"),
            [
                without_effect(
                    "spec.jaxReplicaSpecs.Worker.template.spec.containers[0].env",
                    "PROCESS_ID",
                    COUNTED,
                )
            ],
        ),
        (RawManifest, {"manifest": "{{ params.manifest }}"}, []),
    ],
)
def test_a_value_without_effect_is_warned_of(
    spec: Any, given: dict[str, Any], warnings: list[str]
) -> None:
    image = {} if spec is RawManifest else {"image": "i"}
    assert check_given(spec, {**image, **given}) == warnings


def test_each_name_comes_with_what_to_do() -> None:
    for kind in KINDS:
        named = {**kind.overwritten_env, **kind.overwritten_elastic_env}
        assert all(text.endswith(".") for text in named.values())
        assert not kind.overwritten_elastic_env or kind.elastic_key
