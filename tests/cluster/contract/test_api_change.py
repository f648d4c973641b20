"""API: changing objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import (
    NO_UID,
    Collection,
    Make,
    causes,
    of_either_kind,
    one_job,
    refusal,
    secret,
    still_job,
)
from tests.cluster.world import World
from tests.control_plane.api import JSON, JSON_PATCH, MERGE, STRATEGIC_MERGE, Manifest

_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def _version(thing: Manifest) -> str:
    return str(thing["metadata"]["resourceVersion"])


def _labels(*labels: str, **metadata: Any) -> Manifest:
    return {"metadata": {"labels": dict.fromkeys(labels, "1"), **metadata}}


# ----- versions and generations


def test_the_generation_counts_changes_of_the_spec_only(world: World) -> None:
    jobs = one_job(world)
    first = jobs.get("job")
    assert first["metadata"]["generation"] == 1
    labelled = jobs.patch("job", _labels("a")).object
    assert labelled["metadata"]["generation"] == 1
    assert int(_version(labelled)) > int(_version(first))
    changed = jobs.patch("job", {"spec": {"runPolicy": {"backoffLimit": 1}}}).object
    assert changed["metadata"]["generation"] == 2


@pytest.mark.parametrize("body", [{}, _labels("a")], ids=["empty", "same"])
@of_either_kind
def test_a_patch_that_changes_nothing_makes_no_version(
    world: World, make: Make, body: Manifest
) -> None:
    things = Collection(world, make)
    things.create("job")
    before = things.patch("job", _labels("a")).object
    assert things.patch("job", body).object == before
    assert things.get("job") == before


# ----- merge patches


def test_a_merge_patch_merges_and_null_removes(world: World) -> None:
    things = Collection(world, secret)
    things.create("s", labels={"a": "1", "b": "1"})
    patched = things.patch("s", {"metadata": {"labels": {"a": None, "c": "1"}}})
    assert patched.code == 200
    assert patched.object["metadata"]["labels"] == {"b": "1", "c": "1"}
    nothing = things.patch("s", {"metadata": {"labels": None}}).object
    assert "labels" not in nothing["metadata"]


def test_a_merge_patch_replaces_lists(world: World) -> None:
    jobs = one_job(world)
    container = {"name": "pytorch", "image": "y"}
    spec = {"template": {"spec": {"containers": [container]}}}
    patched = jobs.patch("job", {"spec": {"pytorchReplicaSpecs": {"Master": spec}}})
    master = patched.object["spec"]["pytorchReplicaSpecs"]["Master"]
    assert master["template"]["spec"]["containers"] == [container]
    assert master["replicas"] == 1


@of_either_kind
def test_a_merge_patch_with_a_stale_version_is_a_conflict(world: World, make: Make) -> None:
    things = Collection(world, make)
    stale = _version(things.create("job"))
    fresh = _version(things.patch("job", _labels("a", resourceVersion=stale)).object)
    refused = things.patch("job", _labels("b", resourceVersion=stale))
    assert refusal(refused) == (409, "Conflict")
    resource = "secrets" if make is secret else "pytorchjobs.kubeflow.org"
    assert refused.message == (f'Operation cannot be fulfilled on {resource} "job": {_MODIFIED}')
    assert things.get("job")["metadata"]["labels"] == {"a": "1"}
    assert things.patch("job", _labels("b", resourceVersion=fresh)).code == 200


@of_either_kind
def test_a_merge_patch_of_another_uid_is_invalid(world: World, make: Make) -> None:
    """It is not a conflict: a patch cannot be bound to a uid, only to a version."""
    things = Collection(world, make)
    things.create("one")
    refused = things.patch("one", _labels("a", uid=NO_UID))
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {"metadata.uid": "FieldValueInvalid"}


def test_a_patch_of_the_name_is_a_bad_request(world: World) -> None:
    things = Collection(world, still_job)
    things.create("one")
    refused = things.patch("one", {"metadata": {"name": "two"}})
    assert refusal(refused) == (400, "BadRequest")
    assert refused.message == (
        "the name of the object (two) does not match the name on the URL (one)"
    )


@of_either_kind
def test_a_patch_of_what_is_not_there_creates_nothing(world: World, make: Make) -> None:
    things = Collection(world, make)
    assert refusal(things.patch("one", _labels("a"))) == (404, "NotFound")
    assert not things.has("one")


def test_a_patch_is_checked_by_the_schema(world: World) -> None:
    jobs = one_job(world)
    refused = jobs.patch("job", {"spec": {"runPolicy": {"suspend": "yes"}}})
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused)["spec.runPolicy.suspend"] == "FieldValueTypeInvalid"


def test_an_unknown_field_in_a_strict_patch_is_invalid_where_a_create_is_a_bad_request(
    world: World,
) -> None:
    jobs = one_job(world)
    refused = jobs.patch("job", {"spec": {"runPolices": {}}}, fieldValidation="Strict")
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {"patch": "FieldValueInvalid"}
    assert refused.message.endswith('strict decoding error: unknown field "spec.runPolices"')


def test_a_dry_run_of_a_patch_changes_nothing(world: World) -> None:
    jobs = one_job(world)
    answer = jobs.patch("job", _labels("a"), dryRun="All")
    assert answer.object["metadata"]["labels"] == {"a": "1"}
    assert "labels" not in jobs.get("job")["metadata"]


# ----- other patches


def test_a_json_patch_goes_step_by_step(world: World) -> None:
    jobs = one_job(world)
    steps = [
        {"op": "test", "path": "/spec/runPolicy/suspend", "value": True},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "1", "b": "1"}},
        {"op": "remove", "path": "/metadata/labels/b"},
        {"op": "add", "path": "/spec/runPolicy/backoffLimit", "value": 1},
        {"op": "replace", "path": "/spec/runPolicy/backoffLimit", "value": 2},
    ]
    patched = jobs.patch("job", steps, JSON_PATCH)
    assert patched.code == 200
    assert patched.object["metadata"]["labels"] == {"a": "1"}
    assert patched.object["spec"]["runPolicy"] == {"suspend": True, "backoffLimit": 2}


@pytest.mark.parametrize(
    "step",
    [
        {"op": "test", "path": "/spec/runPolicy/suspend", "value": False},
        {"op": "remove", "path": "/spec/no/such"},
        {"op": "no-such", "path": "/spec"},
    ],
    ids=["test", "path", "operation"],
)
def test_a_json_patch_that_fails_is_invalid_without_a_word_why(
    world: World, step: Manifest
) -> None:
    jobs = one_job(world)
    before = jobs.get("job")
    label = {"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}
    refused = jobs.patch("job", [label, step], JSON_PATCH)
    assert refusal(refused) == (422, "Invalid")
    assert refused.message == "the server rejected our request due to an error in our request"
    assert refused.object["details"] == {}
    assert jobs.get("job") == before


@pytest.mark.parametrize(
    ("body", "content_type"),
    [({"a": 1}, JSON_PATCH), ([1], MERGE), (b"{", MERGE)],
    ids=["object-for-json-patch", "list-for-merge", "broken"],
)
def test_a_patch_that_cannot_be_read_is_a_bad_request(
    world: World, body: Any, content_type: str
) -> None:
    jobs = one_job(world)
    refused = jobs.patch("job", body, content_type)
    assert refusal(refused) == (400, "BadRequest")


@pytest.mark.parametrize("content_type", [STRATEGIC_MERGE, JSON], ids=["strategic", "json"])
def test_a_custom_resource_takes_no_strategic_and_no_plain_patch(
    world: World, content_type: str
) -> None:
    jobs = one_job(world)
    refused = jobs.patch("job", _labels("a"), content_type)
    assert refusal(refused) == (415, "UnsupportedMediaType")
    assert refused.message.endswith(
        "accepted media types include: application/json-patch+json, application/merge-patch+json,"
        " application/apply-patch+yaml"
    )


def test_a_strategic_patch_of_a_built_in_kind_merges_lists_by_their_keys(world: World) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "nodeSelector": {"no": "such"},
            "containers": [{"name": name, "image": "x"} for name in ("one", "two")],
        },
    }
    world.create(pod)
    body = {"spec": {"containers": [{"name": "two", "image": "y"}]}}
    path = world.path("Pod", "p")
    patched = world.api.call("PATCH", path, body, content_type=STRATEGIC_MERGE)
    assert [c["image"] for c in patched.object["spec"]["containers"]] == ["x", "y"]


# ----- replacing


def test_a_replacement_needs_the_version_that_it_replaces(world: World) -> None:
    jobs = one_job(world)
    old = jobs.get("job")
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "1"}}}
    replaced = jobs.call("PUT", "job", new)
    assert replaced.code == 200
    assert replaced.object["metadata"]["labels"] == {"a": "1"}
    stale = jobs.call("PUT", "job", old)
    assert refusal(stale) == (409, "Conflict")
    assert stale.message == (
        f'Operation cannot be fulfilled on pytorchjobs.kubeflow.org "job": {_MODIFIED}'
    )
    del new["metadata"]["resourceVersion"]
    without = jobs.call("PUT", "job", new)
    assert refusal(without) == (422, "Invalid")
    assert causes(without) == {"metadata.resourceVersion": "FieldValueInvalid"}
    assert "must be specified for an update" in without.message


def test_a_secret_can_be_replaced_without_a_version(world: World) -> None:
    things = Collection(world, secret)
    things.create("s", labels={"a": "1"})
    replaced = things.call("PUT", "s", secret("s"))
    assert replaced.code == 200
    assert "labels" not in replaced.object["metadata"]


def test_a_replacement_has_to_be_of_that_object(world: World) -> None:
    jobs = one_job(world)
    old = jobs.get("job")
    renamed = {**old, "metadata": {**old["metadata"], "name": "other"}}
    assert refusal(jobs.call("PUT", "job", renamed)) == (400, "BadRequest")
    another = {**old, "metadata": {**old["metadata"], "uid": NO_UID}}
    refused = jobs.call("PUT", "job", another)
    assert refusal(refused) == (409, "Conflict")
    assert f"UID in precondition: {NO_UID}" in refused.message


@of_either_kind
def test_a_replacement_of_what_is_not_there_creates_nothing(world: World, make: Make) -> None:
    things = Collection(world, make)
    assert refusal(things.call("PUT", "one", make("one"))) == (404, "NotFound")
    assert not things.has("one")


# ----- status


def test_the_status_is_not_changed_beside_the_spec(world: World) -> None:
    jobs = one_job(world)
    before = jobs.get("job")
    status = {"startTime": "2020-01-01T00:00:00Z"}
    patched = jobs.patch("job", {"status": status, **_labels("a")})
    assert patched.object["metadata"]["labels"] == {"a": "1"}
    assert patched.object["status"] == before["status"]
    replaced = jobs.call("PUT", "job", {**patched.object, "status": status})
    assert replaced.code == 200
    assert replaced.object["status"] == before["status"]
    assert _version(replaced.object) == _version(patched.object)


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_the_spec_is_not_changed_beside_the_status(world: World, method: str) -> None:
    jobs = one_job(world)
    before = jobs.get("job")
    after = {
        **before,
        "metadata": {**before["metadata"], "labels": {"a": "1"}},
        "spec": {**before["spec"], "runPolicy": {"suspend": True, "backoffLimit": 5}},
        "status": {**before["status"], "startTime": "2020-01-01T00:00:00Z"},
    }
    content_type = MERGE if method == "PATCH" else JSON
    answer = jobs.call(method, "job/status", after, content_type=content_type)
    assert answer.code == 200
    assert answer.object["status"]["startTime"] == "2020-01-01T00:00:00Z"
    assert answer.object["spec"] == before["spec"]
    assert "labels" not in answer.object["metadata"]
    assert answer.object["metadata"]["generation"] == 1
    assert int(_version(answer.object)) > int(_version(before))
    assert jobs.call("GET", "job/status").object == answer.object


def test_a_pod_keeps_its_spec_but_for_a_few_fields(world: World) -> None:
    pod = world.pod("p", "true", nodeSelector={"no": "such"})
    body = {"spec": {"restartPolicy": "Always"}}
    refused = world.api.call("PATCH", pod.path, body, content_type=MERGE)
    assert refusal(refused) == (422, "Invalid")
    assert "pod updates may not change fields other than `spec.containers[*].image`" in (
        refused.message
    )
    image = {"spec": {"containers": [{"name": "main", "image": "y"}]}}
    changed = world.api.call("PATCH", pod.path, image, content_type=STRATEGIC_MERGE)
    assert changed.code == 200
    assert changed.object["metadata"]["generation"] == 2
    phase = {"status": {"phase": "Failed"}}
    assert world.api.call("PATCH", pod.path, phase, content_type=MERGE).code == 200
    assert pod.status["phase"] == "Pending"
