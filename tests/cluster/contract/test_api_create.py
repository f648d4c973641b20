"""API: creating objects."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.objects import (
    Collection,
    Make,
    causes,
    of_either_kind,
    refusal,
    secret,
    still_job,
)
from tests.cluster.world import World
from tests.control_plane.api import Manifest

_UUID = r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"
_SECOND = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def _pod(name: str = "p", **fields: Any) -> Manifest:
    spec = {"containers": [{"name": "main", "image": "x", "command": ["true"], **fields}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


# ----- what the server adds


@of_either_kind
def test_the_server_gives_a_new_object_its_identity(world: World, make: Make) -> None:
    created = world.create(make("one"))
    metadata = created["metadata"]
    assert created["kind"] == make()["kind"]
    assert metadata["namespace"] == world.namespace
    assert re.fullmatch(_UUID, metadata["uid"])
    assert re.fullmatch(_SECOND, metadata["creationTimestamp"])
    assert metadata["resourceVersion"].isdigit()
    assert metadata.get("generation") == (None if make is secret else 1)


def test_what_only_the_server_gives_is_not_taken_from_the_client(world: World) -> None:
    given = {
        "uid": "mine",
        "generation": 7,
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "deletionTimestamp": "2020-01-01T00:00:00Z",
    }
    body = {**still_job("job", **given), "status": {"startTime": "2020-01-01T00:00:00Z"}}
    created = world.create(body)
    metadata = created["metadata"]
    assert metadata["generation"] == 1
    assert re.fullmatch(_UUID, metadata["uid"])
    assert not metadata["creationTimestamp"].startswith("2020")
    assert "deletionTimestamp" not in metadata
    assert "status" not in created


def test_a_resource_version_is_refused_with_an_error_of_the_server(world: World) -> None:
    refused = world.try_create(secret(resourceVersion="5"))
    assert refusal(refused) == (500, None)
    assert refused.message == "resourceVersion should not be set on objects to be created"


@of_either_kind
def test_a_generated_name_is_the_prefix_and_five_characters(world: World, make: Make) -> None:
    body = {**make(), "metadata": {"generateName": "made-"}}
    first, second = (world.create(body)["metadata"] for _ in range(2))
    assert first["generateName"] == "made-"
    assert re.fullmatch(r"made-[a-z0-9]{5}", first["name"])
    assert first["name"] != second["name"]


def test_a_pod_is_given_its_defaults(world: World) -> None:
    spec = world.create(_pod())["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    main = spec["containers"][0]
    assert main["imagePullPolicy"] == "Always"
    assert main["terminationMessagePath"] == "/dev/termination-log"
    assert main["terminationMessagePolicy"] == "File"


# ----- names and places


@of_either_kind
def test_a_name_that_exists_is_a_conflict(world: World, make: Make) -> None:
    things = Collection(world, make)
    uid = things.create("one")["metadata"]["uid"]
    refused = world.try_create(make("one"))
    assert refusal(refused) == (409, "AlreadyExists")
    resource = "secrets" if make is secret else "pytorchjobs.kubeflow.org"
    assert refused.message == f'{resource} "one" already exists'
    details = {"name": "one", "kind": resource.partition(".")[0]}
    if make is still_job:
        details["group"] = "kubeflow.org"
    assert refused.object["details"] == details
    assert things.get("one")["metadata"]["uid"] == uid


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"name": "UP_per"}, "FieldValueInvalid"),
        ({"name": "a" * 254}, "FieldValueInvalid"),
        ({}, "FieldValueRequired"),
    ],
    ids=["characters", "length", "none"],
)
@of_either_kind
def test_a_name_has_to_be_a_name_of_dns(
    world: World, make: Make, metadata: Manifest, cause: str
) -> None:
    refused = world.try_create({**make(), "metadata": metadata})
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused)["metadata.name"] == cause


def test_a_label_has_to_be_well_formed(world: World) -> None:
    refused = world.try_create(still_job(labels={"a b": "1"}))
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {"metadata.labels": "FieldValueInvalid"}


@of_either_kind
def test_a_namespace_that_does_not_exist_takes_nothing(world: World, make: Make) -> None:
    refused = world.api.create(make(namespace="nowhere"))
    assert refusal(refused) == (404, "NotFound")
    assert refused.message == 'namespaces "nowhere" not found'
    assert refused.object["details"] == {"name": "nowhere", "kind": "namespaces"}


# ----- bodies that do not match their path


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (
            {"metadata": {"name": "job", "namespace": "default"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ({"kind": "TFJob"}, 422, 'kind: Invalid value: "TFJob": must be PyTorchJob'),
        (
            {"apiVersion": "kubeflow.org/v2"},
            400,
            "the API version in the data (kubeflow.org/v2) does not match the expected API version"
            " (kubeflow.org/v1)",
        ),
        ({"kind": ""}, 400, "Object 'Kind' is missing"),
    ],
    ids=["namespace", "kind", "version", "no-kind"],
)
def test_a_body_for_another_place_is_refused(
    world: World, change: Manifest, code: int, says: str
) -> None:
    jobs = Collection(world, still_job)
    refused = jobs.call("POST", body={**still_job(), **change})
    assert refusal(refused) == (code, "BadRequest" if code == 400 else "Invalid")
    assert says in refused.message


@pytest.mark.parametrize("body", [b"", b'"text"', b"{"], ids=["nothing", "text", "broken"])
def test_a_body_that_is_no_object_is_a_bad_request(world: World, body: bytes) -> None:
    refused = Collection(world, still_job).call("POST", body=body)
    assert refusal(refused) == (400, "BadRequest")


def test_a_body_in_an_unknown_format_is_an_unsupported_media_type(world: World) -> None:
    jobs = Collection(world, still_job)
    refused = jobs.call("POST", body=still_job(), content_type="text/plain")
    assert refusal(refused) == (415, "UnsupportedMediaType")
    assert "accepted media types include: application/json, application/yaml" in refused.message


@pytest.mark.parametrize(
    "place",
    ["kubeflow.org/v9/pytorchjobs", "kubeflow.org/v1/nosuchjobs", "no.such/v1/jobs"],
    ids=["version", "kind", "group"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_not_served_is_answered_in_plain_text(
    world: World, place: str, method: str
) -> None:
    version, _, plural = place.rpartition("/")
    path = f"/apis/{version}/namespaces/{world.namespace}/{plural}"
    answer = world.api.call(method, path, still_job() if method == "POST" else None)
    assert (answer.code, answer.text) == (404, "404 page not found\n")


def test_an_unknown_resource_of_the_core_is_answered_with_a_status(world: World) -> None:
    answer = world.api.call("GET", f"/api/v1/namespaces/{world.namespace}/nosuch")
    assert refusal(answer) == (404, "NotFound")
    assert answer.message == "the server could not find the requested resource"


# ----- strict validation


def test_unknown_fields_are_a_bad_request_when_strict(world: World) -> None:
    job = still_job()
    job["spec"]["pytorchReplicaSpec"] = {}
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["cmd"] = []
    refused = world.try_create(job, fieldValidation="Strict")
    assert refusal(refused) == (400, "BadRequest")
    assert refused.message == (
        'PyTorchJob in version "v1" cannot be handled as a PyTorchJob: strict decoding error:'
        ' unknown field "spec.pytorchReplicaSpec", unknown field'
        ' "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].cmd"'
    )
    assert "details" not in refused.object


def test_unknown_fields_of_a_built_in_kind_are_refused_alike(world: World) -> None:
    refused = world.try_create(_pod(cmd=[]), fieldValidation="Strict")
    assert refusal(refused) == (400, "BadRequest")
    assert refused.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error:'
        ' unknown field "spec.containers[0].cmd"'
    )


@pytest.mark.parametrize("asked", [None, "Warn", "Ignore"], ids=["default", "warn", "ignore"])
def test_unknown_fields_are_dropped_when_not_strict(world: World, asked: str | None) -> None:
    job = still_job()
    job["spec"]["pytorchReplicaSpec"] = {}
    created = world.try_create(job, **({} if asked is None else {"fieldValidation": asked}))
    assert created.code == 201
    assert "pytorchReplicaSpec" not in created.object["spec"]
    warning = r'299 - "unknown field \"spec.pytorchReplicaSpec\""'
    assert created.warnings == (() if asked == "Ignore" else (warning,))


def test_another_word_for_the_validation_is_invalid(world: World) -> None:
    refused = world.try_create(secret(), fieldValidation="Hard")
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {"fieldValidation": "FieldValueNotSupported"}


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
def test_a_field_given_twice_is_refused_when_strict_and_else_the_last_one_counts(
    world: World, strict: bool
) -> None:
    text = json.dumps(still_job())
    twice = text.replace('"suspend": true', '"suspend": false, "suspend": true')
    query = {"fieldValidation": "Strict"} if strict else {}
    answer = Collection(world, still_job).call("POST", body=twice.encode(), query=query)
    if strict:
        assert refusal(answer) == (400, "BadRequest")
        assert answer.message.endswith('duplicate field "spec.runPolicy.suspend"')
    else:
        assert answer.object["spec"]["runPolicy"]["suspend"] is True
        assert answer.warnings == (r'299 - "duplicate field \"spec.runPolicy.suspend\""',)


# ----- values


def test_a_value_against_the_schema_is_invalid_and_its_field_is_named(world: World) -> None:
    job = still_job()
    job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] = "two"
    job["spec"]["runPolicy"]["cleanPodPolicy"] = 5
    refused = world.try_create(job)
    assert refusal(refused) == (422, "Invalid")
    assert refused.message.startswith('PyTorchJob.kubeflow.org "job" is invalid: [')
    field = "spec.pytorchReplicaSpecs.Master.replicas"
    text = f'Invalid value: "string": {field} in body must be of type integer: "string"'
    assert f"{field}: {text}" in refused.message
    found = refused.object["details"]
    assert (found["name"], found["group"], found["kind"]) == ("job", "kubeflow.org", "PyTorchJob")
    wanted = {"reason": "FieldValueTypeInvalid", "message": text, "field": field}
    assert wanted in found["causes"]
    assert causes(refused)["spec.runPolicy.cleanPodPolicy"] == "FieldValueTypeInvalid"


def test_a_missing_required_field_is_invalid(world: World) -> None:
    refused = world.try_create({**still_job(), "spec": {}})
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused)["spec.pytorchReplicaSpecs"] == "FieldValueRequired"


def test_a_value_of_another_type_in_a_built_in_kind_is_a_bad_request(world: World) -> None:
    refused = world.try_create(_pod(command="true"))
    assert refusal(refused) == (400, "BadRequest")
    assert "json: cannot unmarshal string into Go struct field" in refused.message


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "FieldValueNotSupported"),
        ({"containers": []}, "spec.containers", "FieldValueRequired"),
        ({"containers": [{"name": "main"}]}, "spec.containers[0].image", "FieldValueRequired"),
    ],
    ids=["restart-policy", "no-container", "no-image"],
)
def test_a_pod_with_a_wrong_value_is_invalid(
    world: World, change: Manifest, field: str, reason: str
) -> None:
    pod = _pod()
    refused = world.try_create({**pod, "spec": {**pod["spec"], **change}})
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {field: reason}


def test_a_variable_given_twice_is_invalid_in_a_job_but_not_in_a_pod(world: World) -> None:
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    refused = world.try_create(pytorch_job({"Master": replica("pytorch", env=twice)}))
    assert refusal(refused) == (422, "Invalid")
    assert "env[1]: Duplicate value" in refused.message
    assert world.try_create(_pod(env=twice), fieldValidation="Strict").code == 201


# ----- dry run


def test_a_dry_run_of_a_create_is_checked_and_leaves_nothing(world: World) -> None:
    jobs = Collection(world, still_job)
    answer = world.try_create(still_job(), dryRun="All")
    assert answer.code == 201
    assert re.fullmatch(_UUID, answer.object["metadata"]["uid"])
    assert not jobs.has("job")
    two_masters = {"Master": replica("pytorch", count=2)}
    refused = world.try_create(pytorch_job(two_masters), dryRun="All")
    assert refusal(refused) == (403, "Forbidden")
    jobs.create("job")
    assert refusal(world.try_create(still_job(), dryRun="All")) == (409, "AlreadyExists")


def test_another_word_for_a_dry_run_is_invalid(world: World) -> None:
    refused = world.try_create(secret(), dryRun="Some")
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {"dryRun": "FieldValueNotSupported"}
    assert not Collection(world, secret).has("s")
