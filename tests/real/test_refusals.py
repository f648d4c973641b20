"""Refusals by webhooks of the real operators; those by Kubernetes itself are in tests/cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_plane import ControlPlane
from tests.control_plane.api import MERGE, Api, Manifest

PYTORCH = "kubeflow.org/v1"


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


@pytest.fixture
def api(plane: ControlPlane) -> Api:
    return plane.api()


def test_unknown_field_is_a_bad_request_when_strict(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace)
    job["spec"]["pytorchReplicaSpec"] = {}
    refused = api.create(job, fieldValidation="Strict")
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert 'unknown field "spec.pytorchReplicaSpec"' in refused.message


def test_unknown_field_is_dropped_without_strict(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace)
    job["spec"]["pytorchReplicaSpec"] = {}
    created = api.create(job)
    assert created.code == 201
    assert "pytorchReplicaSpec" not in created.object["spec"]


def test_refusal_by_a_webhook_looks_like_missing_rights_but_for_its_text(
    api: Api, namespace: str
) -> None:
    refused = api.create(pytorch_job(namespace, Master={**replica(), "replicas": 2}))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the'
        " request: spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"
    )


def test_wrong_name_of_the_container_is_refused_by_the_webhook(api: Api, namespace: str) -> None:
    refused = api.create(pytorch_job(namespace, Master=replica("train")))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert "must have at least one container with name pytorch" in refused.message


def test_schema_violation_is_invalid(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace)
    job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] = "two"
    refused = api.create(job)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert 'must be of type integer: "string"' in refused.message


def test_duplicate_variable_is_invalid(api: Api, namespace: str) -> None:
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    refused = api.create(pytorch_job(namespace, Master=replica(env=twice)))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert "env[1]: Duplicate value" in refused.message


def test_existing_name_is_a_conflict(api: Api, namespace: str) -> None:
    assert api.create(pytorch_job(namespace)).code == 201
    refused = api.create(pytorch_job(namespace))
    assert (refused.code, refused.reason) == (409, "AlreadyExists")


def test_kind_that_is_not_served_is_answered_in_plain_text(api: Api, namespace: str) -> None:
    answer = api.call("GET", f"/apis/kubeflow.org/v9/namespaces/{namespace}/pytorchjobs")
    assert (answer.code, answer.text.strip()) == (404, "404 page not found")


def test_missing_object_is_answered_with_a_status(api: Api, namespace: str) -> None:
    answer = api.get(pytorch_job(namespace))
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == 'pytorchjobs.kubeflow.org "job" not found'


def test_unknown_namespace_has_an_empty_list_and_takes_nothing(api: Api) -> None:
    listed = api.call("GET", api.path(PYTORCH, "PyTorchJob", "nowhere"))
    assert (listed.code, listed.object["items"]) == (200, [])
    refused = api.create(pytorch_job("nowhere"))
    assert (refused.code, refused.reason) == (404, "NotFound")
    assert refused.message == 'namespaces "nowhere" not found'


def test_null_role_is_dropped_without_a_word(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace, Master=replica(), Worker=None)
    created = api.create(job, fieldValidation="Strict")
    assert created.code == 201
    assert set(created.object["spec"]["pytorchReplicaSpecs"]) == {"Master"}


def test_stale_merge_patch_is_a_conflict(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace)
    stale = api.create(job).object["metadata"]["resourceVersion"]
    path = api.path(PYTORCH, "PyTorchJob", namespace, "job")
    changed = {"metadata": {"labels": {"a": "1"}}}
    assert api.call("PATCH", path, changed, content_type=MERGE).code == 200
    late = {"metadata": {"labels": {"a": "2"}, "resourceVersion": stale}}
    refused = api.call("PATCH", path, late, content_type=MERGE)
    assert (refused.code, refused.reason) == (409, "Conflict")


def test_delete_of_another_uid_is_a_conflict(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace)
    api.create(job)
    another = "00000000-0000-0000-0000-000000000000"
    refused = api.delete(job, {"preconditions": {"uid": another}})
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert "the UID in the precondition" in refused.message
    assert api.get(job).code == 200


def test_dry_run_of_a_delete_counts_in_the_body_only(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace)
    uid = api.create(job).object["metadata"]["uid"]
    wanted = {"preconditions": {"uid": uid}}
    assert api.delete(job, {**wanted, "dryRun": ["All"]}).code == 200
    assert "deletionTimestamp" not in api.get(job).object["metadata"]
    # Beside a body the query is ignored: this deletes.
    assert api.delete(job, wanted, dryRun="All").code == 200
    assert api.get(job).code == 404


def test_dry_run_of_a_create_is_checked_and_leaves_nothing(api: Api, namespace: str) -> None:
    job = pytorch_job(namespace)
    assert api.create(job, dryRun="All").code == 201
    assert api.get(job).code == 404
    bad = pytorch_job(namespace, Master={**replica(), "replicas": 2})
    assert api.create(bad, dryRun="All").code == 403
