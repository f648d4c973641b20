"""Invalid requests are rejected, or do no harm: the cluster continues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.objects import causes, refusal, secret
from tests.cluster.world import World, eventually
from tests.control_plane.api import JSON_PATCH, MERGE, Manifest

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def _pod(name: str = "odd", metadata: Mapping[str, Any] | None = None, **main: Any) -> Manifest:
    container = {"name": "main", "image": "x", "command": ["true"], **main}
    spec = {"containers": [container], "restartPolicy": "Never"}
    named = {"name": name, **(metadata or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


def _lives(world: World) -> None:
    """Pods are still placed and run."""
    world.pod("normal", "true").phase("Succeeded")


@pytest.mark.parametrize("amount", ["abc", "", "1x", "sNaN", "1 Gi", [], True])
def test_what_is_no_quantity_is_refused(world: World, amount: Any) -> None:
    asked = {"limits": {"cpu": amount}}
    assert refusal(world.try_create(_pod(resources=asked))) == (400, "BadRequest")
    job = pytorch_job({"Master": replica("pytorch", resources=asked)})
    refused = world.try_create(job)
    assert refusal(refused) == (422, "Invalid")
    assert [*causes(refused)][0].endswith("resources.limits.cpu")
    _lives(world)


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e400"])
@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_numbers_that_json_does_not_have_are_refused(
    world: World, number: bytes, kind: str
) -> None:
    body = b'{"metadata": {"name": "l"}, "spec": {"x": %s}}' % number
    if kind.endswith("yaml"):
        body = body.replace(number, {b"NaN": b".nan", b"1e400": b"1.0e+400"}.get(number, b"-.inf"))
    path = world.path("Lease", None, "coordination.k8s.io/v1")
    assert refusal(world.api.call("POST", path, body, content_type=kind)) == (400, "BadRequest")


@pytest.mark.parametrize("missing", ["kind", "name", "uid"])
@pytest.mark.parametrize("make", [_pod, secret], ids=["pod", "secret"])
def test_an_owner_that_is_half_said_is_refused(world: World, make: Any, missing: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
    del owner[missing]
    made = make()
    made["metadata"]["ownerReferences"] = [owner]
    refused = world.try_create(made)
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {f"metadata.ownerReferences[0].{missing}": "FieldValueRequired"}
    _lives(world)


@pytest.mark.parametrize("name", ["", "?watch=true", "a/../b", "x/status"])
def test_an_owner_with_a_name_that_is_none_keeps_nobody_from_work(world: World, name: str) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u"}
    for number in range(5):
        world.create(_pod(f"p{number}", {"ownerReferences": [owner], "finalizers": ["a/b"]}))
    job = pytorch_job({"Master": replica("pytorch")}, run_policy={"suspend": True})
    world.start(job).becomes("Suspended")
    for number in range(5):
        path = world.path("Pod", f"p{number}")
        world.api.call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)


@pytest.mark.parametrize("spec", [None, {}, "x", [], {"containers": None}])
def test_a_pod_without_a_spec_is_refused(world: World, spec: Any) -> None:
    code, _ = refusal(world.try_create({**_pod(), "spec": spec}))
    assert code in (400, 422)


@pytest.mark.parametrize("spec", ["x", {"ports": "x"}, {"ports": [1]}])
def test_a_service_of_another_shape_is_refused(world: World, spec: Any) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}
    assert refusal(world.try_create(service)) == (400, "BadRequest")


@pytest.mark.parametrize("status", ["x", ["x"], 5, True])
def test_a_status_that_is_no_object_is_refused(world: World, status: Any) -> None:
    world.create(_pod(command=["sleep", "60"]))
    path = world.path("Pod", "odd")
    patch = {"status": status}
    refused = world.api.call("PATCH", f"{path}/status", patch, content_type=MERGE)
    assert refusal(refused) == (400, "BadRequest")
    _lives(world)


def test_a_status_that_makes_no_sense_can_be_looked_at(world: World) -> None:
    world.create(_pod(command=["sleep", "60"]))
    path = world.path("Pod", "odd")
    patch = {"status": {"containerStatuses": "x", "conditions": [1]}}
    world.api.call("PATCH", f"{path}/status", patch, content_type=MERGE).required("a status")
    assert world.api.call("GET", path, accept=_TABLE).ok
    _lives(world)


def test_a_node_that_offers_nothing_harms_nobody(world: World) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": world.namespace}}
    world.api.create(node).required("a node")
    try:
        world.create(_pod(resources={"limits": {"cpu": "1000"}}))
        _lives(world)
    finally:
        world.api.delete(node)


@pytest.mark.parametrize("to", [None, "x", {}, {"name": {}}, {"name": ""}])
def test_a_binding_to_nothing_is_refused(world: World, to: Any) -> None:
    pod = _pod()
    pod["spec"]["schedulingGates"] = [{"name": "wait"}]
    world.create(pod)
    path = f"{world.path('Pod', 'odd')}/binding"
    refused = world.api.call("POST", path, {"target": to})
    assert causes(refused) == {"target.name": "FieldValueRequired"}


@pytest.mark.parametrize(
    "options",
    [
        {"dryRun": 5},
        {"dryRun": [[]]},
        {"preconditions": "x"},
        {"preconditions": {"uid": []}},
        {"propagationPolicy": ["Orphan"]},
        {"gracePeriodSeconds": []},
    ],
)
def test_options_of_a_deletion_of_another_type_are_refused(world: World, options: Manifest) -> None:
    world.create(secret())
    refused = world.api.call("DELETE", world.path("Secret", "s"), options)
    assert refusal(refused) == (400, "BadRequest")


@pytest.mark.parametrize(
    "step",
    [
        1,
        {},
        {"op": "add", "path": 1, "value": 1},
        {"op": "move", "path": "/data", "from": None},
        {"op": "add", "path": "/metadata/name/x", "value": 1},
        {"op": "replace", "path": "/metadata/finalizers/x", "value": 1},
    ],
)
def test_a_step_of_a_patch_that_makes_no_sense_is_refused(world: World, step: Any) -> None:
    world.create(secret())
    path = world.path("Secret", "s")
    refused = world.api.call("PATCH", path, [step], content_type=JSON_PATCH)
    assert refusal(refused) == (422, "Invalid")


@pytest.mark.parametrize("finalizers", [5, [{}], {"a": 1}])
def test_finalizers_of_another_type_are_refused(world: World, finalizers: Any) -> None:
    world.create(secret())
    patch = {"metadata": {"finalizers": finalizers}}
    refused = world.api.call("PATCH", world.path("Secret", "s"), patch, content_type=MERGE)
    assert refusal(refused) == (400, "BadRequest")


def test_a_limit_below_nothing_is_none(world: World) -> None:
    listed = world.api.call("GET", world.path("Secret"), query={"limit": "-1"})
    assert listed.object["items"] == []


@pytest.mark.parametrize("spec", ["x", {"trainer": "x"}, {"trainer": []}, None])
def test_a_train_job_of_another_shape_is_refused(world: World, spec: Any) -> None:
    metadata = {"name": "t"}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata}
    assert refusal(world.try_create({**job, "spec": spec})) == (422, "Invalid")


@pytest.mark.parametrize("rule", [1, {}, {"action": "FailJob", "onExitCodes": True}])
def test_a_policy_for_failures_of_another_shape_is_refused(world: World, rule: Any) -> None:
    spec = {"podFailurePolicy": {"rules": [rule]}, "template": {"spec": _pod()["spec"]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    code, _ = refusal(world.try_create(job))
    assert code in (400, 422)


def test_what_cannot_be_made_is_tried_again_ever_more_rarely(world: World) -> None:
    job = pytorch_job({"Master": replica("pytorch")})
    template = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    template["metadata"] = {"labels": {"no label": "x"}}
    made = world.start(job)
    for number in range(20):
        made.patch({"metadata": {"annotations": {"number": str(number)}}})

    def tries() -> int:
        events = world.listed("Event")
        return sum(each["count"] for each in events if each["reason"] == "FailedCreatePod")

    before = tries()
    time.sleep(3)
    assert tries() - before <= 3
    template["metadata"] = None
    made.patch({"spec": job["spec"]})
    made.succeeds()


@pytest.mark.parametrize("policy", ["Foreground", "Background", "Orphan"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_circle_of_owners_can_be_deleted(world: World, policy: str, size: int) -> None:
    names = [f"s{number}" for number in range(size)]
    uids = [world.create(secret(name))["metadata"]["uid"] for name in names]
    for number, name in enumerate(names):
        owner = {"apiVersion": "v1", "kind": "Secret", "name": names[number - 1]}
        patch = {"metadata": {"ownerReferences": [{**owner, "uid": uids[number - 1]}]}}
        path = world.path("Secret", name)
        world.api.call("PATCH", path, patch, content_type=MERGE).required("a circle")
    gone = world.api.call("DELETE", world.path("Secret", "s0"), {"propagationPolicy": policy})
    gone.required("an answer")
    left = names[1:] if policy == "Orphan" else []
    eventually(lambda: world.names("Secret") == left or None)


def test_what_belongs_to_another_one_too_stays_when_one_owner_goes(world: World) -> None:
    owners = []
    for name in ("going", "staying"):
        uid = world.create(secret(name))["metadata"]["uid"]
        owners.append({"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid})
    world.create(secret("shared", ownerReferences=owners))
    path = world.path("Secret", "going")
    world.api.call("DELETE", path, {"propagationPolicy": "Foreground"}).required("an answer")
    eventually(lambda: world.names("Secret") == ["shared", "staying"] or None)
    assert world.find("Secret", "shared")["metadata"]["ownerReferences"] == owners[1:]
