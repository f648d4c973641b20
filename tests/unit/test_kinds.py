"""The table of kinds: each row must be consistent."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_kftrain.errors import InvalidSpec, UnknownKind
from airflow_kftrain.kinds import KINDS, MPI_JOB_V1, MPI_JOB_V2, PYTORCH_JOB, JobKind, find_kind

EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.version}")

RUN_POLICY_FIELDS = {
    "clean_pods",
    "ttl",
    "active_deadline",
    "backoff_limit",
    "suspend",
    "managed_by",
    "scheduling",
}


@EACH_KIND
def test_a_kind_is_found_by_what_its_manifest_says(kind: JobKind) -> None:
    assert find_kind(kind.api_version, kind.kind) is kind


def test_no_two_rows_are_one_kind() -> None:
    names = [(kind.api_version, kind.kind) for kind in KINDS]
    assert len(set(names)) == len(names) == 9


def test_both_mpi_jobs_are_told_apart_by_their_version() -> None:
    assert find_kind("kubeflow.org/v1", "MPIJob") is MPI_JOB_V1
    assert find_kind("kubeflow.org/v2beta1", "MPIJob") is MPI_JOB_V2


@pytest.mark.parametrize(
    ("api_version", "kind", "words"),
    [
        ("kubeflow.org/v2", "MPIJob", "kubeflow.org/v1 or kubeflow.org/v2beta1"),
        ("v1", "PyTorchJob", "Use kubeflow.org/v1."),
        (None, "TrainJob", "Use trainer.kubeflow.org/v1alpha1."),
        ("ray.io/v1", "RayJob", "'RayJob'. Use one of PyTorchJob, TFJob"),
        ("kubeflow.org/v1", "pytorchjob", "Use one of"),
        ("kubeflow.org/v1", None, "got None"),
        (["kubeflow.org/v1"], {"kind": "TFJob"}, "Use one of"),
    ],
)
def test_an_unknown_kind_is_told_which_there_are(api_version: Any, kind: Any, words: str) -> None:
    with pytest.raises(UnknownKind) as caught:
        find_kind(api_version, kind)
    assert words in str(caught.value)
    assert isinstance(caught.value, InvalidSpec)
    assert str(caught.value).count("MPIJob") <= 1


@EACH_KIND
def test_a_role_is_found_by_its_name(kind: JobKind) -> None:
    for role in kind.roles:
        assert kind.role(role.name) is role
    with pytest.raises(KeyError):
        kind.role("Driver")


@EACH_KIND
def test_the_names_of_pods_are_made_of_known_parts(kind: JobKind) -> None:
    for role in kind.roles:
        filled = role.pod.format(job="train", role=role.name.lower(), index=12)
        assert re.fullmatch(r"train(-[a-z0-9]+)*", filled)


@EACH_KIND
def test_selectors_name_the_job_and_nothing_else(kind: JobKind) -> None:
    assert kind.selectors.pods.format(name="train").endswith("=train")
    assert "{" not in kind.selectors.leader


@EACH_KIND
def test_the_run_policy_has_only_fields_that_an_author_knows(kind: JobKind) -> None:
    assert set(kind.run_policy) <= RUN_POLICY_FIELDS
    assert "suspend" in kind.run_policy
    assert "active_deadline" in kind.run_policy


@EACH_KIND
def test_what_is_a_default_is_a_field_that_the_kind_has(kind: JobKind) -> None:
    if kind.ttl_default:
        assert "ttl" in kind.run_policy
    if kind.backoff_default is not None:
        assert "backoff_limit" in kind.run_policy
    assert bool(kind.managers) == ("managed_by" in kind.run_policy)


@EACH_KIND
def test_the_keys_of_a_row_are_fields_of_its_spec(kind: JobKind) -> None:
    fields = {field.split(":")[0].rstrip("!") for field in kind.spec_fields.split()}
    named = {kind.replicas_key, kind.template_key, kind.trainer_key, kind.elastic_key} - {""}
    policy = {path.split(".")[0] for path in kind.run_policy.values()}
    assert named | policy <= fields
    assert len({bool(kind.replicas_key), bool(kind.template_key or kind.trainer_key)}) == 2


@EACH_KIND
def test_what_comes_before_the_training_is_a_role_of_the_kind(kind: JobKind) -> None:
    assert set(kind.status.before_training) < {role.name for role in kind.roles}


@EACH_KIND
def test_a_row_says_what_the_pods_leave_and_who_works_on_it(kind: JobKind) -> None:
    assert kind.leaves.endswith(".")
    assert kind.operator
    assert kind.plural == f"{kind.kind.lower()}s"


def test_a_row_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        PYTORCH_JOB.version = "v2"  # type: ignore[misc]
    with pytest.raises(TypeError):
        PYTORCH_JOB.run_policy["suspend"] = "suspend"  # type: ignore[index]
