"""Names and label values: valid, stable, and different for different inputs."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.kinds import BATCH_JOB, KINDS, MPI_JOB_V2, PYTORCH_JOB, TRAIN_JOB, JobKind
from airflow_kftrain.manifests.naming import (
    LONGEST,
    job_name,
    label_safe,
    longest_suffix,
    short_hash,
    slug,
)

DNS_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")

ids = st.text(max_size=300)
kinds = st.sampled_from(KINDS)
legal_labels = st.text(string.ascii_letters + string.digits + "-_.", max_size=63).filter(
    LABEL.fullmatch
)
settle = settings(deadline=None, max_examples=80)


@st.composite
def replica_specs(draw: st.DrawFn) -> tuple[JobKind, dict[str, Any]]:
    """A kind, and the replicas of a job of that kind."""
    kind = draw(kinds)
    if not kind.replicas_key:
        return kind, {}
    groups = {
        role.name: {"replicas": 1 if role.single else draw(st.integers(1, 10**5))}
        for role in kind.roles
    }
    return kind, {kind.replicas_key: groups}


def names_of_pods(kind: JobKind, spec: dict[str, Any], job: str) -> list[str]:
    groups = spec.get(kind.replicas_key, {})
    return [
        role.pod.format(
            job=job,
            role=role.name.lower(),
            index=groups.get(role.name, {"replicas": 1})["replicas"] - 1,
        )
        for role in kind.roles
    ]


@settle
@given(replica_specs(), st.lists(ids, min_size=1, max_size=3), ids)
def test_a_name_is_legal_and_leaves_room_for_what_is_made_from_it(
    kind_and_spec: tuple[JobKind, dict[str, Any]], parts: list[str], unique: str
) -> None:
    kind, spec = kind_and_spec
    name = job_name(kind, spec, tuple(parts), unique)
    assert DNS_1035.fullmatch(name)
    assert [pod for pod in names_of_pods(kind, spec, name) if len(pod) > LONGEST] == []


@settle
@given(kinds, ids, ids, ids)
def test_a_name_is_the_same_for_the_same_try_and_another_for_another(
    kind: JobKind, task: str, one: str, other: str
) -> None:
    name = job_name(kind, {}, (task,), one)
    assert job_name(kind, {}, (task,), one) == name
    assert (job_name(kind, {}, (task,), other) == name) == (one == other)


@pytest.mark.parametrize(
    ("parts", "room", "name"),
    [
        (("nightly", "train"), 40, "nightly-train"),
        (("Nightly_Run.v2", "TRAIN"), 40, "nightly-run-v2-train"),
        (("a-very-long-dag-id", "train"), 12, "a-very-train"),
        (("dag", "a-very-long-task-id"), 10, "a-very-lon"),
        (("3d", "1st"), 40, "j-3d-1st"),
        (("日本", "train"), 40, "train"),
        (("", ""), 40, "job"),
        (("日本",), 40, "job"),
        (("dag", "--"), 40, "dag"),
        (("dag", "train"), 6, "train"),
    ],
)
def test_a_name_stays_readable(parts: tuple[str, ...], room: int, name: str) -> None:
    assert slug(parts, room) == name


@pytest.mark.parametrize(
    ("kind", "spec", "suffix"),
    [
        (PYTORCH_JOB, {"pytorchReplicaSpecs": {"Worker": {"replicas": 12}}}, "-worker-11"),
        (PYTORCH_JOB, {"pytorchReplicaSpecs": {"Master": {}, "Worker": {}}}, "-worker-0"),
        (
            PYTORCH_JOB,
            {
                "pytorchReplicaSpecs": {"Worker": {"replicas": 1}},
                "elasticPolicy": {"maxReplicas": 200},
            },
            "-worker-199",
        ),
        (MPI_JOB_V2, {"mpiReplicaSpecs": {"Launcher": {}}}, "-launcher"),
        (TRAIN_JOB, {}, "-dataset-initializer-0-999-xxxxx"),
        (BATCH_JOB, {}, "-0"),
        (BATCH_JOB, {"completions": 100}, "-99"),
    ],
)
def test_the_longest_name_that_is_made_from_a_jobs(
    kind: JobKind, spec: dict[str, Any], suffix: str
) -> None:
    assert longest_suffix(kind, spec) == len(suffix)


@settle
@given(ids)
def test_a_label_value_is_legal(text: str) -> None:
    assert LABEL.fullmatch(label_safe(text))


@settle
@given(legal_labels)
def test_a_legal_label_value_is_kept(text: str) -> None:
    assert label_safe(text) == text


@settle
@given(st.lists(ids, unique=True, max_size=20))
def test_different_texts_keep_different_label_values(texts: list[str]) -> None:
    assert len({label_safe(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("scheduled__2026-11-20T00:00:00+00:00", "scheduled__2026-11-20T00-00-00-00-00-"),
        ("https://airflow.example.com", "https-airflow.example.com-"),
        ("x" * 64, "x" * 52 + "-"),
        ("日本", ""),
    ],
)
def test_a_label_value_stays_readable(text: str, start: str) -> None:
    value = label_safe(text)
    assert value.startswith(start)
    assert value.removeprefix(start) == short_hash(text, 10)
