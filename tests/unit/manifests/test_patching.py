"""Merging parts of a pod."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.manifests.patching import merge

scalars = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b", ""]), st.booleans())
names = st.sampled_from(["a", "b", "c"])
settle = settings(deadline=None, max_examples=80)


def named(key: str, more: dict[str, Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """A list of items with names, each name once."""
    item = st.fixed_dictionaries({key: names}, optional=more)
    return st.lists(item, max_size=3, unique_by=lambda thing: thing[key])


containers = named(
    "name",
    {
        "image": scalars,
        "args": st.lists(scalars, max_size=2),
        "env": named("name", {"value": scalars, "valueFrom": st.just({"fieldRef": {}})}),
        "volumeMounts": named("mountPath", {"name": scalars, "readOnly": st.booleans()}),
    },
)
pods = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {}, optional={"labels": st.dictionaries(names, scalars, max_size=2)}
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": containers,
                "initContainers": containers,
                "volumes": named("name", {"emptyDir": st.just({}), "nfs": st.just({"path": "/"})}),
                "tolerations": st.lists(st.dictionaries(names, scalars), max_size=2),
                "hostNetwork": st.booleans(),
            },
        ),
    },
)
patches = st.one_of(pods, st.just({"spec": None}), st.just({"spec": {"containers": None}}))


@settle
@given(pods, patches)
def test_neither_argument_is_changed(base: Any, over: Any) -> None:
    before = deepcopy((base, over))
    merge(base, over)
    assert (base, over) == before


@settle
@given(pods)
def test_merging_nothing_or_the_same_changes_nothing(pod: Any) -> None:
    assert merge(pod, {}) == pod
    assert merge(pod, pod) == pod
    assert merge({}, pod) == pod


@settle
@given(pods, patches)
def test_merging_twice_is_merging_once(base: Any, over: Any) -> None:
    once = merge(base, over)
    assert merge(once, over) == once


@settle
@given(pods, pods)
def test_all_that_the_patch_says_is_so_afterwards(base: Any, over: Any) -> None:
    merged = merge(base, over)
    for key, value in over.get("metadata", {}).get("labels", {}).items():
        assert merged["metadata"]["labels"][key] == value
    found = {item["name"]: item for item in merged.get("spec", {}).get("containers", [])}
    for container in over.get("spec", {}).get("containers", []):
        assert (
            found[container["name"]].items()
            >= {
                key: item for key, item in container.items() if key in ("name", "image", "args")
            }.items()
        )


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}, id="by key"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="None removes"),
        pytest.param({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, id="None leaves no trace"),
        pytest.param({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a mapping for a value"),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
            id="lists without names are replaced",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"name": "a", "tty": True}]},
            {
                "containers": [
                    {"name": "a", "image": "1", "tty": True},
                    {"name": "b"},
                    {"name": "c"},
                ]
            },
            id="lists with names are merged by them",
        ),
        pytest.param(
            {"volumeMounts": [{"mountPath": "/a", "name": "a"}]},
            {"volumeMounts": [{"mountPath": "/a", "readOnly": True}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "a", "readOnly": True}]},
            id="mounts go by their path",
        ),
        pytest.param(
            {"ports": [{"containerPort": 80}]},
            {"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]},
            {"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]},
            id="ports go by their number",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "1"}]},
            id="a variable has one source",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
            id="a variable has one kind of source",
        ),
        pytest.param(
            {"volumes": [{"name": "a", "emptyDir": {}}]},
            {"volumes": [{"name": "a", "nfs": {"path": "/"}}]},
            {"volumes": [{"name": "a", "nfs": {"path": "/"}}]},
            id="a volume has one source",
        ),
        pytest.param(
            {"volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
            id="the source of a volume is merged",
        ),
        pytest.param(
            {"env": []},
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            id="two of one name stay, to be refused",
        ),
        pytest.param(
            {"env": [{"name": "A", "value": "0"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            id="two of one name do not become one over a third",
        ),
        pytest.param(
            {"containers": [{"image": "nameless"}]},
            {"containers": [{"image": "nameless too"}]},
            {"containers": [{"image": "nameless"}, {"image": "nameless too"}]},
            id="what has no name is nobody else",
        ),
    ],
)
def test_merging(base: Any, over: Any, merged: Any) -> None:
    assert merge(base, over) == merged
