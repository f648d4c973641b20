"""API: watching."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable

import pytest

from tests.cluster.objects import (
    HOLD,
    Collection,
    Make,
    of_either_kind,
    one_job,
    refusal,
    secret,
    still_job,
)
from tests.cluster.world import World
from tests.control_plane.api import Manifest

_FUTURE = 99_999_999


def _seen(events: Iterable[Manifest]) -> list[tuple[str, str]]:
    """Types and names."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


# ----- where it starts


@of_either_kind
def test_a_watch_from_a_version_tells_all_that_came_after_it(world: World, make: Make) -> None:
    things = Collection(world, make)
    things.create("before", labels={"app": "x"})
    version = things.version()
    things.create("one", labels={"app": "x"})
    with things.watch(resourceVersion=version, labelSelector="app=x") as watch:
        things.patch("one", {"metadata": {"annotations": {"a": "1"}}})
        things.delete("one")
        events = []
        for event in watch:
            events.append(event)
            if event["type"] == "DELETED":
                break
    assert {name for _, name in _seen(events)} == {"one"}
    # The operator of a job writes to it in between.
    first, *between, last = (event["type"] for event in events)
    assert (first, set(between), last) == ("ADDED", {"MODIFIED"}, "DELETED")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)
    deleted = events[-1]["object"]
    assert (deleted["kind"], deleted["apiVersion"]) == (make()["kind"], make()["apiVersion"])
    assert deleted["metadata"]["annotations"] == {"a": "1"}


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["none", "0"])
def test_a_watch_without_a_version_tells_first_what_is_there(
    world: World, query: dict[str, object]
) -> None:
    things = Collection(world, secret)
    things.create("one")
    things.create("two")
    with things.watch(**query) as watch:
        there = _seen(itertools.islice(watch, 2))
        things.create("three")
        assert sorted(there) == [("ADDED", "one"), ("ADDED", "two")]
        assert _seen(itertools.islice(watch, 1)) == [("ADDED", "three")]


def test_a_watch_from_a_version_to_come_tells_nothing_until_then(world: World) -> None:
    """It is not rejected, although a list is: a client that confuses its servers waits for ever."""
    things = Collection(world, secret)
    with things.watch(resourceVersion=_FUTURE, timeoutSeconds=2) as watch:
        things.create("one")
        assert watch.code == 200
        assert list(watch) == []


def test_a_version_that_is_no_number_is_an_error_of_the_server(world: World) -> None:
    query = {"watch": "true", "resourceVersion": "x"}
    answer = Collection(world, still_job).listed(**query)
    assert refusal(answer) == (500, None)
    assert answer.message.startswith('resourceVersion: Invalid value: "x"')


# ----- versions that are forgotten


def test_an_expired_version_is_told_in_the_stream(world: World) -> None:
    """The status is 200. With events, since kube-apiserver keeps no old versions of them itself."""
    path = world.path("Event")
    about = {"kind": "Namespace", "name": world.namespace, "namespace": world.namespace}
    event = {"apiVersion": "v1", "kind": "Event", "involvedObject": about}
    world.create({**event, "metadata": {"name": "one"}})
    version = world.api.call("GET", path).object["metadata"]["resourceVersion"]
    for name in ("two", "three"):
        world.create({**event, "metadata": {"name": name}})
    world.target.forget_history()
    with world.api.watch(path, resourceVersion=version, timeoutSeconds=5) as watch:
        assert watch.code == 200
        (told,) = watch
    assert told["type"] == "ERROR"
    assert told["object"]["kind"] == "Status"
    assert (told["object"]["code"], told["object"]["reason"]) == (410, "Expired")
    assert told["object"]["message"] == "The resourceVersion for the provided watch is too old."


def test_a_version_from_before_the_kind_was_served_is_expired(world: World) -> None:
    with Collection(world, still_job).watch(resourceVersion="1", timeoutSeconds=5) as watch:
        assert watch.code == 200
        (told,) = watch
    assert told["type"] == "ERROR"
    assert (told["object"]["code"], told["object"]["reason"]) == (410, "Expired")
    assert told["object"]["message"].startswith("too old resource version: 1 (")


# ----- selections


def test_what_leaves_a_selection_is_told_as_deleted_and_what_enters_as_added(world: World) -> None:
    things = Collection(world, secret)
    things.create("one", labels={"app": "x"})
    with things.watch(resourceVersion=things.version(), labelSelector="app=x") as watch:
        things.patch("one", {"metadata": {"labels": {"app": "y"}}})
        things.patch("one", {"data": {"a": "MQ=="}})
        things.patch("one", {"metadata": {"labels": {"app": "x"}}})
        things.delete("one")
        left, entered, deleted = itertools.islice(watch, 3)
    types = [event["type"] for event in (left, entered, deleted)]
    assert types == ["DELETED", "ADDED", "DELETED"]
    # As it was while it was still selected, with the version that ended that.
    assert left["object"]["metadata"]["labels"] == {"app": "x"}
    assert entered["object"]["data"] == {"a": "MQ=="}
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in (left, entered, deleted)]
    assert versions == sorted(set(versions))


def test_a_watch_of_one_name_tells_of_no_other(world: World) -> None:
    jobs = one_job(world)
    query = {"fieldSelector": "metadata.name=job", "resourceVersion": jobs.version()}
    with jobs.watch(**query) as watch:
        jobs.create("other")
        jobs.delete("other")
        jobs.delete("job")
        assert _seen(itertools.islice(watch, 1)) == [("DELETED", "job")]


def test_a_pod_that_runs_is_deleted_from_the_pending_ones(world: World) -> None:
    path = world.path("Pod")
    with world.api.watch(path, fieldSelector="status.phase=Pending") as watch:
        pod = world.pod("p", "sleep", "60", terminationGracePeriodSeconds=1)
        pod.phase("Running")
        events = list(itertools.takewhile(lambda event: event["type"] != "DELETED", watch))
    assert events[0]["type"] == "ADDED"
    assert not pod.is_gone()


def test_a_field_selector_that_is_not_supported_is_a_bad_request(world: World) -> None:
    answer = Collection(world, still_job).listed(watch="true", fieldSelector="spec.x=1")
    assert refusal(answer) == (400, "BadRequest")


@pytest.mark.parametrize("namespace", ["nowhere", None], ids=["unknown", "all"])
def test_a_watch_of_other_namespaces_is_open(world: World, namespace: str | None) -> None:
    path = world.api.path("v1", "Secret", namespace)
    chosen = {"fieldSelector": f"metadata.namespace={world.namespace}"} if not namespace else {}
    things = Collection(world, secret)
    with world.api.watch(path, resourceVersion=things.version(), timeoutSeconds=1, **chosen) as it:
        assert it.code == 200
        things.create("one")
        assert _seen(it) == ([] if namespace else [("ADDED", "one")])


def test_an_object_with_a_finalizer_is_modified_before_it_is_deleted(world: World) -> None:
    things = Collection(world, secret)
    things.create("one", finalizers=[HOLD])
    with things.watch(resourceVersion=things.version()) as watch:
        things.delete("one")
        things.patch("one", {"metadata": {"finalizers": None}})
        marked, gone = itertools.islice(watch, 2)
    assert (marked["type"], gone["type"]) == ("MODIFIED", "DELETED")
    assert "deletionTimestamp" in marked["object"]["metadata"]


# ----- the stream


def test_a_watch_ends_cleanly_when_its_time_is_over(world: World) -> None:
    things = Collection(world, secret)
    things.create("one")
    start = time.monotonic()
    with things.watch(timeoutSeconds=1) as watch:
        assert _seen(watch) == [("ADDED", "one")]
    assert 0.5 < time.monotonic() - start < 60


def test_bookmarks_tell_the_version_to_go_on_from(world: World) -> None:
    """They come before the watch ends if anything has happened, and only on request."""
    things = Collection(world, secret)
    query = {"resourceVersion": things.version(), "timeoutSeconds": 3}
    with (
        things.watch(allowWatchBookmarks="true", **query) as with_bookmarks,
        things.watch(**query) as without,
    ):
        version = things.create("one")["metadata"]["resourceVersion"]
        added, *bookmarks = with_bookmarks
        assert _seen(without) == [("ADDED", "one")]
    assert added["type"] == "ADDED"
    assert {event["type"] for event in bookmarks} == {"BOOKMARK"}
    last = bookmarks[-1]["object"]
    assert (last["kind"], last["apiVersion"]) == ("Secret", "v1")
    assert list(last["metadata"]) == ["resourceVersion"]
    assert int(last["metadata"]["resourceVersion"]) >= int(version)


def test_a_bookmark_ends_what_is_there_if_asked_for(world: World) -> None:
    things = Collection(world, secret)
    things.create("one")
    query = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    with things.watch(**query) as watch:
        first, end = itertools.islice(watch, 2)
        things.create("two")
        assert _seen(itertools.islice(watch, 1)) == [("ADDED", "two")]
    assert _seen([first, end]) == [("ADDED", "one"), ("BOOKMARK", "")]
    metadata = end["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(metadata["resourceVersion"]) >= int(first["object"]["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("word", "is_a_watch"),
    [
        *(("1", True), ("true", True), ("True", True), ("yes", True), ("", True)),
        *(("0", False), ("false", False)),
    ],
    ids=["1", "true", "capital-true", "yes", "empty", "0", "false"],
)
def test_a_watch_is_asked_for_with_any_word_but_two(
    world: World, word: str, is_a_watch: bool
) -> None:
    things = Collection(world, secret)
    things.create("one")
    text = things.listed(watch=word, timeoutSeconds=1).text
    first = json.loads(text.partition("\n")[0])
    assert ("type" in first, first.get("kind")) == (
        (True, None) if is_a_watch else (False, "SecretList")
    )
