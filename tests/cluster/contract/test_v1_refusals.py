"""Training-operator's kinds: what is refused, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.cluster.jobs import jax_job, paddle_job, pytorch_job, replica, tf_job, xgboost_job
from tests.cluster.v1 import FOR_EVER, each_of, not_run, operator_looks_again, pytorch
from tests.cluster.world import World
from tests.control_plane.api import MERGE, Answer, Manifest


class Kind(NamedTuple):
    make: Callable[..., Manifest]
    container: str
    role: str
    key: str

    @property
    def name(self) -> str:
        return str(self.make({})["kind"])

    def job(self, role: Manifest, **spec: Any) -> Manifest:
        return self.make({self.role: role}, **spec)

    def good(self, script: str = "true", **spec: Any) -> Manifest:
        return self.job(replica(self.container, script), **spec)

    def path(self, role: str | None = None) -> str:
        return f"spec.{self.key}[{role or self.role}]"

    def refused(self, answer: Answer, text: str) -> None:
        """By its webhook: 403, as if rights were missing."""
        assert (answer.code, answer.reason) == (403, "Forbidden")
        webhook = f"validator.{self.name.lower()}.training-operator.kubeflow.org"
        assert answer.message == f'admission webhook "{webhook}" denied the request: {text}'


_PYTORCH = Kind(pytorch_job, "pytorch", "Master", "pytorchReplicaSpecs")
_TF = Kind(tf_job, "tensorflow", "Worker", "tfReplicaSpecs")
_XGBOOST = Kind(xgboost_job, "xgboost", "Master", "xgbReplicaSpecs")
_PADDLE = Kind(paddle_job, "paddle", "Worker", "paddleReplicaSpecs")
_JAX = Kind(jax_job, "jax", "Worker", "jaxReplicaSpecs")

_EACH = {"pytorch": _PYTORCH, "tf": _TF, "xgboost": _XGBOOST, "paddle": _PADDLE, "jax": _JAX}
each_kind = each_of(_EACH)


@each_kind
def test_a_name_that_does_not_start_with_a_letter_is_refused(world: World, kind: Kind) -> None:
    refused = world.try_create(kind.good(name="1job"))
    kind.refused(
        refused,
        'metadata.name: Invalid value: "1job": should match: a DNS-1035 label must consist of '
        "lower case alphanumeric characters or '-', start with an alphabetic character, and end "
        "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
        "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    )


def test_a_name_of_more_than_63_characters_is_refused(world: World) -> None:
    refused = world.try_create(_PYTORCH.good(name="n" * 64))
    text = f'metadata.name: Invalid value: "{"n" * 64}": should match: must be no more than '
    _PYTORCH.refused(refused, f"{text}63 characters")


@each_kind
def test_a_container_of_another_name_is_refused(world: World, kind: Kind) -> None:
    refused = world.try_create(kind.job(replica("train")))
    name = f'"{kind.container}"' if kind is _PADDLE else kind.container
    kind.refused(
        refused,
        f"{kind.path()}.template.spec.containers: Required value: must have at least one "
        f"container with name {name}",
    )


@each_kind
def test_a_container_without_an_image_is_refused(world: World, kind: Kind) -> None:
    role = replica(kind.container)
    del role["template"]["spec"]["containers"][0]["image"]
    kind.refused(
        world.try_create(kind.job(role)),
        f"{kind.path()}.template.spec.containers[0].image: Required value: must be required",
    )


@each_kind
def test_a_role_without_containers_is_refused(world: World, kind: Kind) -> None:
    path = f"{kind.path()}.template.spec.containers"
    name = f'"{kind.container}"' if kind is _PADDLE else kind.container
    refused = world.try_create(kind.job({"replicas": 1, "template": {"spec": {"containers": []}}}))
    kind.refused(
        refused,
        f"[{path}: Required value: must be specified, {path}: Required value: must have at least "
        f"one container with name {name}]",
    )


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        pytest.param(_PYTORCH, '"Master", "Worker"', id="pytorch"),
        pytest.param(_PADDLE, '"Master", "Worker"', id="paddle", marks=not_run),
        pytest.param(_JAX, '"Worker"', id="jax", marks=not_run),
    ],
)
def test_an_unknown_role_is_refused(world: World, kind: Kind, known: str) -> None:
    body = kind.make({"Chief": replica(kind.container)})
    path = kind.path("Chief")
    kind.refused(
        world.try_create(body), f'{path}: Unsupported value: "Chief": supported values: {known}'
    )


@each_of({"pytorch": _PYTORCH, "xgboost": _XGBOOST})
@pytest.mark.parametrize("replicas", [0, 2, None], ids=["0", "2", "unsaid"])
def test_a_master_has_to_be_said_to_be_one(world: World, kind: Kind, replicas: int | None) -> None:
    role = replica(kind.container)
    del role["replicas"]
    if replicas is not None:
        role["replicas"] = replicas
    kind.refused(world.try_create(kind.job(role)), f"{kind.path()}.replicas: Forbidden: must be 1")


@each_kind
def test_a_null_role_is_dropped_without_a_word(world: World, kind: Kind) -> None:
    body = kind.good(run_policy={"suspend": True})
    body["spec"][kind.key]["Other"] = None
    created = world.try_create(body, fieldValidation="Strict")
    assert created.code == 201
    assert set(created.object["spec"][kind.key]) == {kind.role}


def test_no_workers_are_refused_in_a_pytorch_job(world: World) -> None:
    body = pytorch_job({"Master": pytorch(), "Worker": pytorch(count=0)})
    path = _PYTORCH.path("Worker")
    _PYTORCH.refused(world.try_create(body), f"{path}.replicas: Forbidden: must be at least 1")


def test_an_elastic_job_without_workers_is_refused(world: World) -> None:
    path = _PYTORCH.path("Worker")
    _PYTORCH.refused(
        world.try_create(_PYTORCH.good(elasticPolicy={"minReplicas": 1})),
        f"{path}: Required value: must be configured if elastic policy is used",
    )


def test_processes_per_node_in_two_places_are_refused(world: World) -> None:
    policy = {"minReplicas": 1, "nProcPerNode": 2}
    body = pytorch_job({"Worker": pytorch()}, elasticPolicy=policy, nprocPerNode="2")
    _PYTORCH.refused(
        world.try_create(body),
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",
    )


@not_run
def test_an_xgboost_job_without_a_master_is_refused(world: World) -> None:
    path = _XGBOOST.path("Master")
    _XGBOOST.refused(
        world.try_create(xgboost_job({"Worker": replica("xgboost")})),
        f"{path}: Required value: must be present",
    )


def test_a_chief_beside_a_master_is_refused(world: World) -> None:
    role = replica("tensorflow")
    _TF.refused(
        world.try_create(tf_job({"Chief": role, "Master": role})),
        "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role",
    )


@each_kind
def test_a_job_without_roles_is_invalid(world: World, kind: Kind) -> None:
    body = kind.good()
    del body["spec"][kind.key]
    refused = world.try_create(body)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert f"spec.{kind.key}: Required value" in refused.message


@each_of({"pytorch": _PYTORCH, "tf": _TF, "xgboost": _XGBOOST, "paddle": _PADDLE})
def test_an_unknown_controller_is_refused(world: World, kind: Kind) -> None:
    refused = world.try_create(kind.good(run_policy={"managedBy": "me"}))
    start = 'spec.runPolicy.managedBy: Unsupported value: "me": supported values: '
    assert refused.code == 403
    assert start in refused.message
    known = refused.message.partition("supported values: ")[2]
    assert set(known.split(", ")) == {
        '"kubeflow.org/training-operator"',
        '"kueue.x-k8s.io/multikueue"',
    }


@each_of({"tf": _TF, "xgboost": _XGBOOST, "paddle": _PADDLE})
def test_a_job_of_another_controller_is_left_alone(world: World, kind: Kind) -> None:
    job = world.submit(kind.good(run_policy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    operator_looks_again(job)
    assert job.status == {}
    assert job.pods() == []


@not_run
@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "me"], ids=["kueue", "unknown"])
def test_a_jax_job_runs_whoever_manages_it(world: World, manager: str) -> None:
    job = world.submit(_JAX.good(run_policy={"managedBy": manager}))
    job.succeeds()


@each_kind
def test_the_controller_can_be_changed_only_where_nobody_looks(world: World, kind: Kind) -> None:
    job = world.start(kind.good(FOR_EVER))
    changed = {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}}
    answer = world.api.call("PATCH", job.path, changed, content_type=MERGE)
    if kind in (_PYTORCH, _JAX):  # they do not look
        assert answer.code == 200
        return
    assert answer.code == 403
    assert (
        'spec.runPolicy.managedBy: Invalid value: "kueue.x-k8s.io/multikueue": field is immutable'
        in answer.message
    )


@pytest.mark.real_only("nothing is scheduled in gangs")
def test_the_queue_of_a_scheduling_policy_cannot_change(world: World) -> None:
    policy = {"schedulingPolicy": {"queue": "a"}}
    job = world.start(_PYTORCH.good(FOR_EVER, run_policy=policy))
    changed = {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}}
    refused = world.api.call("PATCH", job.path, changed, content_type=MERGE)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert "spec.runPolicy.schedulingPolicy.queue is immutable" in refused.message


def test_an_update_is_refused_as_a_create_is(
    world: World,
) -> None:
    job = world.start(_PYTORCH.good(FOR_EVER))
    changed = {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 2}}}}
    refused = world.api.call("PATCH", job.path, changed, content_type=MERGE)
    _PYTORCH.refused(refused, f"{_PYTORCH.path()}.replicas: Forbidden: must be 1")


def test_all_that_is_wrong_is_told_at_once(world: World) -> None:
    role = replica("train", count=2)
    path = f"{_PYTORCH.path()}"
    _PYTORCH.refused(
        world.try_create(_PYTORCH.job(role)),
        f"[{path}.template.spec.containers: Required value: must have at least one container "
        f"with name pytorch, {path}.replicas: Forbidden: must be 1]",
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("backoffLimit", -1), ("activeDeadlineSeconds", -5), ("ttlSecondsAfterFinished", -1)],
)
def test_negative_numbers_are_taken(world: World, field: str, value: int) -> None:
    suspended = {"suspend": True, field: value}
    assert world.try_create(_PYTORCH.good(run_policy=suspended)).code == 201
