"""API: deleting objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.objects import (
    HOLD,
    NO_UID,
    Collection,
    Make,
    causes,
    names,
    of_either_kind,
    one_job,
    refusal,
    secret,
    still_job,
)
from tests.cluster.world import Pod, World, eventually
from tests.control_plane.api import MERGE, Manifest

# ----- answers


@of_either_kind
def test_what_is_gone_at_once_is_answered_with_a_status(world: World, make: Make) -> None:
    things = Collection(world, make)
    uid = things.create("one")["metadata"]["uid"]
    answer = things.delete("one")
    details = {"name": "one", "kind": "secrets", "uid": uid}
    if make is still_job:
        details |= {"group": "kubeflow.org", "kind": "pytorchjobs"}
    assert answer.code == 200
    assert answer.object == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    assert not things.has("one")


@of_either_kind
def test_what_is_not_there_is_not_found(world: World, make: Make) -> None:
    refused = Collection(world, make).delete("one")
    assert refusal(refused) == (404, "NotFound")


# ----- preconditions and dry run


def test_another_uid_is_a_conflict(world: World) -> None:
    jobs = Collection(world, still_job)
    uid = jobs.create("job")["metadata"]["uid"]
    refused = jobs.delete("job", {"preconditions": {"uid": NO_UID}})
    assert refusal(refused) == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on PyTorchJob.kubeflow.org "job": the UID in the'
        f" precondition ({NO_UID}) does not match the UID in record ({uid}). The object might have"
        " been deleted and then recreated"
    )
    assert jobs.has("job")


def test_another_version_is_a_conflict(world: World) -> None:
    jobs = one_job(world)
    version = jobs.get("job")["metadata"]["resourceVersion"]
    refused = jobs.delete("job", {"preconditions": {"resourceVersion": "1"}})
    assert refusal(refused) == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on PyTorchJob.kubeflow.org "job": the ResourceVersion in the'
        f" precondition (1) does not match the ResourceVersion in record ({version}). The object"
        " might have been modified"
    )
    assert jobs.has("job")


def test_the_right_uid_and_version_delete(world: World) -> None:
    jobs = one_job(world)
    metadata = jobs.get("job")["metadata"]
    wanted = {key: metadata[key] for key in ("uid", "resourceVersion")}
    assert jobs.delete("job", {"preconditions": wanted}).code == 200
    assert not jobs.has("job")


def test_a_dry_run_in_the_body_deletes_nothing(world: World) -> None:
    jobs = Collection(world, still_job)
    uid = jobs.create("job")["metadata"]["uid"]
    answer = jobs.delete("job", {"dryRun": ["All"], "preconditions": {"uid": uid}})
    assert (answer.code, answer.object["status"]) == (200, "Success")
    assert "deletionTimestamp" not in jobs.get("job")["metadata"]
    refused = jobs.delete("job", {"dryRun": ["All"], "preconditions": {"uid": NO_UID}})
    assert refusal(refused) == (409, "Conflict")


def test_a_dry_run_in_the_query_counts_without_a_body_only(world: World) -> None:
    jobs = Collection(world, still_job)
    uid = jobs.create("job")["metadata"]["uid"]
    assert jobs.delete("job", dryRun="All").code == 200
    assert jobs.has("job")
    # This call deletes the object.
    assert jobs.delete("job", {"preconditions": {"uid": uid}}, dryRun="All").code == 200
    assert not jobs.has("job")


@pytest.mark.parametrize(
    ("options", "field"),
    [({"dryRun": ["Some"]}, "dryRun"), ({"propagationPolicy": "Some"}, "propagationPolicy")],
    ids=["dry-run", "propagation"],
)
def test_options_with_other_words_are_invalid(world: World, options: Any, field: str) -> None:
    jobs = one_job(world)
    refused = jobs.delete("job", options)
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused) == {field: "FieldValueNotSupported"}
    assert jobs.has("job")


# ----- finalizers


@of_either_kind
def test_a_finalizer_holds_an_object_until_it_is_removed(world: World, make: Make) -> None:
    things = Collection(world, make)
    things.create("one", finalizers=[HOLD])
    answer = things.delete("one")
    assert (answer.code, answer.object["kind"]) == (200, make()["kind"])
    held = things.get("one")["metadata"]
    assert held["deletionTimestamp"] == answer.object["metadata"]["deletionTimestamp"]
    assert (held["deletionGracePeriodSeconds"], held["finalizers"]) == (0, [HOLD])
    # Each deletion says so again, and changes nothing.
    assert things.delete("one").code == 200
    assert things.get("one")["metadata"]["resourceVersion"] == held["resourceVersion"]
    released = things.patch("one", {"metadata": {"finalizers": None}})
    assert (released.code, released.object["kind"]) == (200, make()["kind"])
    assert not things.has("one")


def test_the_generation_counts_the_mark_of_deletion(world: World) -> None:
    jobs = Collection(world, still_job)
    jobs.create("job", finalizers=[HOLD])
    assert jobs.delete("job").object["metadata"]["generation"] == 2
    jobs.patch("job", {"metadata": {"finalizers": None}})


def test_what_is_being_deleted_takes_labels_but_no_finalizers(world: World) -> None:
    jobs = Collection(world, still_job)
    jobs.create("job", finalizers=[HOLD])
    jobs.delete("job")
    assert jobs.patch("job", {"metadata": {"labels": {"a": "1"}}}).code == 200
    refused = jobs.patch("job", {"metadata": {"finalizers": [HOLD, "example.com/two"]}})
    assert refusal(refused) == (422, "Invalid")
    assert causes(refused)["metadata.finalizers"] == "FieldValueForbidden"
    jobs.patch("job", {"metadata": {"finalizers": None}})


@of_either_kind
def test_a_name_is_taken_as_long_as_its_object_is_being_deleted(world: World, make: Make) -> None:
    things = Collection(world, make)
    uid = things.create("one", finalizers=[HOLD])["metadata"]["uid"]
    things.delete("one")
    refused = world.try_create(make("one"))
    assert refusal(refused) == (409, "AlreadyExists")
    assert refused.message.startswith("object is being deleted: ")
    assert refused.message.endswith(' "one" already exists')
    things.patch("one", {"metadata": {"finalizers": None}})
    assert things.create("one")["metadata"]["uid"] != uid


# ----- dependents


def _owned_by(owner: Manifest, **fields: Any) -> Manifest:
    """An entry of ownerReferences."""
    metadata = owner["metadata"]
    about = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**about, "name": metadata["name"], "uid": metadata["uid"], **fields}


def _owner_and_dependent(things: Collection) -> None:
    """The garbage collector knows of them: it has processed objects that were created later."""
    owner = things.create("owner")
    reference = _owned_by(owner, blockOwnerDeletion=True, controller=True)
    things.create("owned", ownerReferences=[reference], finalizers=[HOLD])
    things.create("stray", ownerReferences=[{**_owned_by(owner), "uid": NO_UID, "name": "never"}])
    things.is_gone("stray")


@of_either_kind
def test_what_names_an_owner_that_is_not_there_is_deleted(world: World, make: Make) -> None:
    things = Collection(world, make)
    owner = things.create("owner")
    reference = _owned_by(owner)
    things.create("owned", ownerReferences=[reference])
    things.create("stray", ownerReferences=[{**reference, "uid": NO_UID}])
    things.is_gone("stray")
    assert things.has("owned")


@of_either_kind
@pytest.mark.parametrize(
    "options", [None, {"propagationPolicy": "Background"}], ids=["default", "said"]
)
def test_background_is_the_default_and_takes_the_owner_first(
    world: World, make: Make, options: Any
) -> None:
    things = Collection(world, make)
    _owner_and_dependent(things)
    assert things.delete("owner", options).object["kind"] == "Status"
    assert not things.has("owner")
    eventually(lambda: "deletionTimestamp" in things.get("owned")["metadata"])
    things.patch("owned", {"metadata": {"finalizers": None}})
    things.is_gone("owned")


@of_either_kind
def test_foreground_keeps_the_owner_until_its_dependents_are_gone(world: World, make: Make) -> None:
    things = Collection(world, make)
    _owner_and_dependent(things)
    answer = things.delete("owner", {"propagationPolicy": "Foreground"})
    assert answer.object["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: "deletionTimestamp" in things.get("owned")["metadata"])
    assert "deletionTimestamp" in things.get("owner")["metadata"]
    things.patch("owned", {"metadata": {"finalizers": None}})
    assert not things.has("owned")
    things.is_gone("owner")


@of_either_kind
def test_orphans_lose_their_owner_and_stay(world: World, make: Make) -> None:
    things = Collection(world, make)
    _owner_and_dependent(things)
    answer = things.delete("owner", {"propagationPolicy": "Orphan"})
    assert answer.object["metadata"]["finalizers"] == ["orphan"]
    things.is_gone("owner")
    orphan = things.get("owned")["metadata"]
    assert "ownerReferences" not in orphan
    assert "deletionTimestamp" not in orphan
    things.patch("owned", {"metadata": {"finalizers": None}})


def test_what_has_two_owners_stays_with_the_other_one(world: World) -> None:
    things = Collection(world, secret)
    one, two = things.create("one"), things.create("two")
    things.create("owned", ownerReferences=[_owned_by(one), _owned_by(two)])
    things.delete("one")
    eventually(lambda: len(things.get("owned")["metadata"]["ownerReferences"]) == 1)
    (left,) = things.get("owned")["metadata"]["ownerReferences"]
    assert left["uid"] == two["metadata"]["uid"]
    things.delete("two")
    things.is_gone("owned")


def test_a_job_deleted_in_the_foreground_is_there_until_its_pods_have_ended(world: World) -> None:
    jobs = Collection(world, still_job)
    script = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    world.create(pytorch_job({"Master": replica("pytorch", script)}))
    pod = Pod(world, "job-master-0")
    eventually(lambda: not pod.is_gone() and pod.status.get("phase") == "Running")
    patch = {"metadata": {"finalizers": [HOLD]}}
    world.api.call("PATCH", pod.path, patch, content_type=MERGE).required("a finalizer")
    jobs.delete("job", {"propagationPolicy": "Foreground"})
    pod.phase("Succeeded", "Failed")
    assert jobs.get("job")["metadata"]["finalizers"] == ["foregroundDeletion"]
    world.api.call("PATCH", pod.path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    jobs.is_gone("job")
    assert pod.is_gone()


# ----- many at once


@of_either_kind
def test_a_selection_is_deleted_at_once(world: World, make: Make) -> None:
    things = Collection(world, make)
    things.create("a", labels={"app": "x"})
    things.create("b", labels={"app": "x"})
    things.create("c", labels={"app": "y"})
    things.create("d")
    answer = things.call("DELETE", query={"labelSelector": "app=x"})
    assert (answer.code, answer.object["kind"]) == (200, f"{make()['kind']}List")
    assert names(answer.object) == ["a", "b"]
    assert things.names() == ["c", "d"]
    things.call("DELETE", query={"fieldSelector": "metadata.name=c"})
    assert things.names() == ["d"]
    things.call("DELETE", body={"dryRun": ["All"]})
    assert things.names() == ["d"]
    things.call("DELETE")
    assert things.names() == []


def test_a_namespace_goes_with_all_that_is_in_it(world: World) -> None:
    jobs, secrets = Collection(world, still_job), Collection(world, secret)
    jobs.create("job")
    secrets.create("s")
    pod = world.pod("p", "sleep", "60", terminationGracePeriodSeconds=1)
    pod.phase("Running")
    answer = world.api.call("DELETE", f"/api/v1/namespaces/{world.namespace}")
    assert answer.object["status"]["phase"] == "Terminating"
    refused = world.try_create(secret("late"))
    assert refusal(refused) == (403, "Forbidden")
    assert refused.message == (
        'secrets "late" is forbidden: unable to create new content in namespace'
        f" {world.namespace} because it is being terminated"
    )
    assert causes(refused) == {"metadata.namespace": "NamespaceTerminating"}
    path = f"/api/v1/namespaces/{world.namespace}"
    eventually(lambda: world.api.call("GET", path).code == 404)
    assert (jobs.names(), secrets.names(), pod.is_gone()) == ([], [], True)
    assert refusal(world.try_create(secret("late"))) == (404, "NotFound")
