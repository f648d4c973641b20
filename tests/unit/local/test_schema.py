"""Fields are checked against the schemas of the API server, in cases without a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from kftrain_local.kinds import MPI_JOB_V2, TRAIN_JOB
from kftrain_local.server.refusals import Refusal
from kftrain_local.server.resources import JOB_SETS, JOBS, PODS, RESOURCES, REVIEWS, Resource
from kftrain_local.server.schema import check

Object = dict[str, Any]

_TRAIN_JOBS = next(each for each in JOBS if each.job is TRAIN_JOB)
_MPI_JOBS = next(each for each in JOBS if each.job is MPI_JOB_V2)
_RUNTIME = {"runtimeRef": {"name": "torch-distributed"}}


def _object(resource: Resource, **fields: Any) -> Object:
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "x"}}
    return {**head, **fields}


@pytest.mark.parametrize(
    "resource",
    [each for each in RESOURCES if each != REVIEWS],
    ids=lambda each: f"{each.api_version}/{each.kind}",
)
def test_the_fields_of_each_resource_are_known(resource: Resource) -> None:
    found = _object(resource, metadata={"name": "x", "labels": {"a": "b"}, "lables": {}}, specs={})
    with pytest.raises(Refusal) as refused:
        check(resource, found, "Strict")
    assert 'unknown field "metadata.lables", unknown field "specs"' in str(refused.value)
    assert found["metadata"] == {"name": "x", "labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("resource", "spec", "says"),
    [
        pytest.param(
            _TRAIN_JOBS,
            {**_RUNTIME, "activeDeadlineSeconds": 0},
            "spec.activeDeadlineSeconds: Invalid value: 0: spec.activeDeadlineSeconds in body "
            "should be greater than or equal to 1",
            id="minimum",
        ),
        pytest.param(
            _TRAIN_JOBS,
            {"runtimeRef": {"name": ""}},
            'spec.runtimeRef.name: Invalid value: "": spec.runtimeRef.name in body should be at '
            "least 1 chars long",
            id="least-length",
        ),
        pytest.param(
            _TRAIN_JOBS,
            {**_RUNTIME, "trainer": {"image": "x" * 501}},
            "spec.trainer.image: Too long: may not be more than 500 bytes",
            id="length",
        ),
        pytest.param(
            _TRAIN_JOBS,
            {**_RUNTIME, "runtimePatches": [{"manager": f"a/{n}"} for n in range(17)]},
            "spec.runtimePatches: Too many: 17: must have at most 16 items",
            id="count",
        ),
        pytest.param(
            _TRAIN_JOBS,
            {**_RUNTIME, "runtimePatches": [{"manager": "a/b"}, {"manager": "a/b"}]},
            'spec.runtimePatches[1]: Duplicate value: {"manager": "a/b"}',
            id="twice",
        ),
        pytest.param(
            _TRAIN_JOBS,
            {**_RUNTIME, "trainer": {"resourcesPerNode": {"limits": {"cpu": "much"}}}},
            "spec.trainer.resourcesPerNode.limits.cpu in body should match '^(",
            id="pattern",
        ),
        pytest.param(
            _MPI_JOBS,
            {"mpiReplicaSpecs": {}, "mpiImplementation": "LAM"},
            'spec.mpiImplementation: Unsupported value: "LAM": supported values: "OpenMPI", '
            '"Intel", "MPICH"',
            id="word",
        ),
        pytest.param(
            JOB_SETS,
            {"replicatedJobs": [{"name": "a", "template": {"spec": {}}}]},
            "spec.replicatedJobs[0].template.spec.template: Required value",
            id="missing",
        ),
    ],
)
def test_a_custom_resource_keeps_to_the_limits_of_its_schema(
    resource: Resource, spec: Object, says: str
) -> None:
    with pytest.raises(Refusal) as refused:
        check(resource, _object(resource, spec=spec), "Warn")
    assert refused.value.code == 422
    assert says in str(refused.value)


def test_what_is_deep_in_a_pod_is_looked_at() -> None:
    terms = [{"topologyKey": "zone", "weigth": 1}]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = _object(PODS, spec={"containers": [{"name": "main"}], "affinity": affinity})
    (warning,) = check(PODS, pod, "Warn")
    field = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].weigth"
    assert warning == f'unknown field "{field}"'
    assert terms == [{"topologyKey": "zone"}]
