"""API: reading objects, lists, tables and discovery."""

from __future__ import annotations

import pytest

from tests.cluster.objects import (
    Collection,
    Make,
    names,
    of_either_kind,
    one_job,
    refusal,
    secret,
    still_job,
)
from tests.cluster.world import World
from tests.control_plane.api import Answer, Manifest

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_FUTURE = 99_999_999


def test_a_missing_object_is_answered_with_a_status(world: World) -> None:
    answer = Collection(world, still_job).call("GET", "job")
    assert answer.object == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pytorchjobs.kubeflow.org "job" not found',
        "reason": "NotFound",
        "details": {"name": "job", "group": "kubeflow.org", "kind": "pytorchjobs"},
        "code": 404,
    }
    assert answer.code == 404


@of_either_kind
def test_a_list_says_what_it_is_of(world: World, make: Make) -> None:
    """Items of built-in kinds do not."""
    things = Collection(world, make)
    things.create("one")
    found = things.listed().required("the list")
    (item,) = found["items"]
    sample = make()
    assert (found["apiVersion"], found["kind"]) == (sample["apiVersion"], f"{sample['kind']}List")
    assert int(found["metadata"]["resourceVersion"]) >= int(item["metadata"]["resourceVersion"])
    assert not found["metadata"].get("continue")
    own = (sample["apiVersion"], sample["kind"]) if make is still_job else (None, None)
    assert (item.get("apiVersion"), item.get("kind")) == own


@of_either_kind
def test_an_unknown_namespace_has_an_empty_list(world: World, make: Make) -> None:
    sample = make()
    path = world.api.path(sample["apiVersion"], sample["kind"], "nowhere")
    listed = world.api.call("GET", path)
    assert (listed.code, listed.object["items"]) == (200, [])


@of_either_kind
def test_a_list_of_all_namespaces_holds_those_of_each(world: World, make: Make) -> None:
    Collection(world, make).create("one", labels={"of": world.namespace})
    sample = make()
    path = world.api.path(sample["apiVersion"], sample["kind"])
    listed = world.api.call("GET", path, query={"labelSelector": f"of={world.namespace}"})
    assert names(listed.object) == ["one"]


# ----- selectors


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("app=x", "a"),
        ("app==x", "a"),
        ("app!=x", "b c"),
        ("app in (x,y)", "a b"),
        ("app notin (x)", "b c"),
        ("app", "a b"),
        ("!app", "c"),
        ("app,tier=1", "a"),
        ("app=x,tier!=1", ""),
        ("", "a b c"),
    ],
    ids=[
        *("equal", "equals", "not-equal", "in", "notin", "exists", "not-exists"),
        *("two-of-them", "with-a-not", "empty"),
    ],
)
def test_a_label_selector_chooses(world: World, selector: str, wanted: str) -> None:
    things = Collection(world, secret)
    things.create("a", labels={"app": "x", "tier": "1"})
    things.create("b", labels={"app": "y"})
    things.create("c")
    assert things.names(labelSelector=selector) == wanted.split()


@pytest.mark.parametrize(
    "selector", ["=x", "app in (x", "a b=c"], ids=["no-key", "open", "two-keys"]
)
def test_a_label_selector_that_cannot_be_read_is_a_bad_request(world: World, selector: str) -> None:
    answer = Collection(world, still_job).listed(labelSelector=selector)
    assert refusal(answer) == (400, "BadRequest")
    assert "found" in answer.message


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name==a", "a"),
        ("metadata.name!=a", "b"),
        ("metadata.namespace={namespace}", "a b"),
        ("metadata.namespace=elsewhere", ""),
    ],
    ids=["name", "name-equals", "not-name", "namespace", "other-namespace"],
)
@of_either_kind
def test_a_field_selector_knows_names_and_namespaces(
    world: World, make: Make, selector: str, wanted: str
) -> None:
    things = Collection(world, make)
    things.create("a")
    things.create("b")
    chosen = things.names(fieldSelector=selector.format(namespace=world.namespace))
    assert chosen == wanted.split()


def test_a_field_selector_of_pods_knows_phase_and_node(world: World) -> None:
    world.pod("waits", "true", nodeSelector={"no": "such"})
    running = world.pod("runs", "sleep", "60", terminationGracePeriodSeconds=1)
    running.phase("Running")
    node = running.now()["spec"]["nodeName"]
    wanted = {
        "status.phase=Running": ["runs"],
        "status.phase!=Running": ["waits"],
        "status.phase=Pending": ["waits"],
        f"spec.nodeName={node}": ["runs"],
        "spec.nodeName=": ["waits"],
        "metadata.name=runs,status.phase=Pending": [],
        "spec.restartPolicy=Never": ["runs", "waits"],
    }

    def chosen(selector: str) -> list[str]:
        query = {"fieldSelector": selector}
        return names(world.api.call("GET", world.path("Pod"), query=query).object)

    assert {selector: chosen(selector) for selector in wanted} == wanted


def test_a_field_selector_of_events_knows_what_they_are_about(world: World) -> None:
    pod = world.pod("p", "true", nodeSelector={"no": "such"})
    world.told("FailedScheduling", "Pod/p")
    uid = pod.now()["metadata"]["uid"]

    def count(selector: str) -> int:
        answer = world.api.call("GET", world.path("Event"), query={"fieldSelector": selector})
        return len(answer.object["items"])

    about = f"involvedObject.kind=Pod,involvedObject.name=p,involvedObject.uid={uid}"
    assert count(f"{about},reason=FailedScheduling,type=Warning") >= 1
    assert count("reason=FailedScheduling,type=Normal") == 0
    assert count("involvedObject.name=other") == 0


@pytest.mark.parametrize(
    ("api_version", "kind", "says"),
    [
        ("kubeflow.org/v1", "PyTorchJob", "field label not supported: spec.x"),
        ("v1", "Pod", "field label not supported: spec.x"),
        ("batch/v1", "Job", 'field label "spec.x" not supported for Job'),
        (
            "v1",
            "ConfigMap",
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
    ids=["custom", "pod", "batch-job", "config-map"],
)
def test_a_field_selector_that_is_not_supported_is_a_bad_request(
    world: World, api_version: str, kind: str, says: str
) -> None:
    path = world.path(kind, None, api_version)
    refused = world.api.call("GET", path, query={"fieldSelector": "spec.x=1"})
    assert refusal(refused) == (400, "BadRequest")
    assert refused.message == says


# ----- pages


@of_either_kind
def test_pages_are_of_the_list_as_it_was_at_the_first(world: World, make: Make) -> None:
    things = Collection(world, make)
    for name in "abcde":
        things.create(name)
    first = things.listed(limit=2).object
    things.create("d2")
    things.delete("e")
    second = things.listed(limit=2, **_next(first)).object
    last = things.listed(limit=2, **_next(second)).object
    assert [names(page) for page in (first, second, last)] == [["a", "b"], ["c", "d"], ["e"]]
    pages = [page["metadata"] for page in (first, second, last)]
    assert [page.get("remainingItemCount") for page in pages] == [3, 1, None]
    assert len({page["resourceVersion"] for page in pages}) == 1
    assert not pages[-1].get("continue")


def test_pages_of_a_selection_do_not_say_how_much_is_left(world: World) -> None:
    things = Collection(world, secret)
    for name in "abc":
        things.create(name, labels={"app": "x"})
    first = things.listed(limit=2, labelSelector="app=x").object
    assert first["metadata"]["continue"]
    assert "remainingItemCount" not in first["metadata"]
    rest = things.listed(labelSelector="app=x", **_next(first)).object
    assert names(rest) == ["c"]


def test_a_token_that_is_none_is_a_bad_request(world: World) -> None:
    refused = Collection(world, still_job).listed(limit=2, **{"continue": "no-token"})
    assert refusal(refused) == (400, "BadRequest")
    assert refused.message.startswith("invalid continue token: ")


def test_a_token_beside_a_resource_version_is_a_bad_request(world: World) -> None:
    things = Collection(world, secret)
    for name in "ab":
        things.create(name)
    first = things.listed(limit=1).object
    version = first["metadata"]["resourceVersion"]
    refused = things.listed(limit=1, resourceVersion=version, **_next(first))
    assert refusal(refused) == (400, "BadRequest")
    assert refused.message == "specifying resource version is not allowed when using continue"


def test_an_expired_token_is_answered_with_one_for_the_rest_as_it_is_now(world: World) -> None:
    """The list has to start again, or continues with objects of different moments. With events,
    since kube-apiserver keeps no old versions of them itself."""
    for name in "abc":
        _tell(world, name)
    first = _events(world, limit=1).object
    _tell(world, "d")
    world.target.forget_history()
    refused = _events(world, limit=1, **_next(first))
    assert refusal(refused) == (410, "Expired")
    assert "The provided continue parameter is too old" in refused.message
    rest = _events(world, **_next(refused.object))
    assert (rest.code, names(rest.object)) == (200, ["b", "c", "d"])


def test_a_list_as_of_a_time_that_is_forgotten_is_expired(world: World) -> None:
    _tell(world, "a")
    version = _events(world).object["metadata"]["resourceVersion"]
    _tell(world, "b")
    world.target.forget_history()
    refused = _events(world, resourceVersion=version, resourceVersionMatch="Exact")
    assert refusal(refused) == (410, "Expired")


@of_either_kind
def test_a_list_as_of_a_time_to_come_times_out(world: World, make: Make) -> None:
    refused = Collection(world, make).listed(resourceVersion=_FUTURE)
    assert refusal(refused) == (504, "Timeout")
    assert f"Too large resource version: {_FUTURE}, current: " in refused.message
    assert refused.object["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


def test_a_resource_version_that_is_no_number_is_a_bad_request(world: World) -> None:
    refused = Collection(world, still_job).listed(resourceVersion="x")
    assert refusal(refused) == (400, "BadRequest")


def _next(page: Manifest) -> dict[str, str]:
    return {"continue": page["metadata"]["continue"]}


def _tell(world: World, name: str) -> None:
    about = {"kind": "Namespace", "name": world.namespace, "namespace": world.namespace}
    world.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name},
            "involvedObject": about,
            "reason": "Test",
            "message": "test",
            "type": "Normal",
        }
    )


def _events(world: World, **query: object) -> Answer:
    return world.api.call("GET", world.path("Event"), query=query)


# ----- tables


def test_pods_as_a_table(world: World) -> None:
    pod = world.pod("p", "sleep", "60", terminationGracePeriodSeconds=1)
    pod.phase("Running")
    table = world.api.call("GET", world.path("Pod"), accept=_TABLE).object
    assert (table["apiVersion"], table["kind"]) == ("meta.k8s.io/v1", "Table")
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:4] == ["p", "1/1", "Running", "0"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "p"


def test_jobs_of_ours_as_a_table(world: World) -> None:
    """The state is the type of the last condition."""
    jobs = one_job(world)
    table = jobs.call("GET", accept=_TABLE).object
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:2] == ["job", "Suspended"]


def test_a_format_that_is_not_spoken_is_not_acceptable(world: World) -> None:
    answer = Collection(world, still_job).call("GET", accept="text/html")
    assert refusal(answer) == (406, "NotAcceptable")


# ----- discovery


def test_the_version_is_told(world: World) -> None:
    version = world.api.call("GET", "/version").object
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")


def test_groups_and_kinds_are_told(world: World) -> None:
    assert world.api.call("GET", "/api").object["versions"] == ["v1"]
    groups = world.api.call("GET", "/apis").object
    assert groups["kind"] == "APIGroupList"
    (group,) = (group for group in groups["groups"] if group["name"] == "kubeflow.org")
    version = {"groupVersion": "kubeflow.org/v1", "version": "v1"}
    assert version in group["versions"]
    alone = world.api.call("GET", "/apis/kubeflow.org").object
    assert (alone["kind"], alone["name"]) == ("APIGroup", "kubeflow.org")
    served = world.api.call("GET", "/apis/kubeflow.org/v1").object
    assert (served["kind"], served["groupVersion"]) == ("APIResourceList", "kubeflow.org/v1")
    resources = {resource["name"]: resource for resource in served["resources"]}
    jobs = resources["pytorchjobs"]
    assert (jobs["kind"], jobs["singularName"], jobs["namespaced"]) == (
        "PyTorchJob",
        "pytorchjob",
        True,
    )
    verbs = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert set(jobs["verbs"]) == verbs
    assert set(resources["pytorchjobs/status"]["verbs"]) == {"get", "patch", "update"}
