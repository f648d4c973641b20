"""Shapes: what an object may contain, and what it becomes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.shapes import SHAPES, check_of, conform, conform_fields, plain


class ModelObject:
    """Looks to this package like a model object of the Kubernetes client."""

    openapi_types = MappingProxyType({"name": "str", "mount_path": "str", "read_only": "bool"})
    attribute_map = MappingProxyType(
        {"name": "name", "mount_path": "mountPath", "read_only": "readOnly"}
    )

    def __init__(self, name: str, mount_path: Any, read_only: bool | None = None) -> None:
        self.name, self.mount_path, self.read_only = name, mount_path, read_only


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_every_shape_can_be_read(name: str) -> None:
    check_of(name)
    with pytest.raises(InvalidSpec, match="there is no such field"):
        conform({"noSuchField": 1}, name, "field")


def test_none_is_left_out() -> None:
    assert conform({"key": "gpu", "value": None}, "Toleration", "t") == {"key": "gpu"}


def test_text_becomes_what_belongs_there() -> None:
    assert conform({"suspend": "true", "backoffLimit": "2"}, "RunPolicy", "p") == {
        "suspend": True,
        "backoffLimit": 2,
    }


def test_some_numbers_may_be_negative() -> None:
    assert conform({"tolerationSeconds": "-1"}, "Toleration", "t") == {"tolerationSeconds": -1}


def test_what_comes_back_is_a_copy_to_its_depth() -> None:
    given = {"name": "data", "csi": {"driver": "x", "attributes": {"a": [1]}}}
    copied = conform(given, "Volume", "v")
    assert copied == given
    copied["csi"]["attributes"]["a"].append(2)
    assert given["csi"]["attributes"]["a"] == [1]  # type: ignore[index]


def test_model_objects_become_what_they_stand_for() -> None:
    given = [ModelObject("a", "/a", read_only=True), {"name": "b", "mountPath": "/b"}]
    assert conform(given, "[VolumeMount]", "m") == [
        {"name": "a", "mountPath": "/a", "readOnly": True},
        {"name": "b", "mountPath": "/b"},
    ]


def test_model_objects_are_found_at_any_depth() -> None:
    given = {"list": (ModelObject("a", "/a"),), "map": MappingProxyType({"x": 1})}
    assert plain(given) == {"list": [{"name": "a", "mountPath": "/a"}], "map": {"x": 1}}
    assert conform(given, "any", "x") == plain(given)


def test_an_error_within_a_model_object_has_the_name_of_the_api() -> None:
    with pytest.raises(InvalidSpec) as caught:
        conform([ModelObject("a", 5)], "[VolumeMount]", "mounts")
    assert caught.value.field == "mounts[0].mountPath"


def test_one_of_some_words_may_be_empty_which_is_the_default() -> None:
    shape = "policy:File|FallbackToLogsOnError"
    assert conform_fields({"policy": ""}, shape, "c") == {"policy": ""}
    assert conform_fields({"policy": "File"}, shape, "c") == {"policy": "File"}
    with pytest.raises(InvalidSpec, match="Use one of File, FallbackToLogsOnError"):
        conform_fields({"policy": "file"}, shape, "c")


def test_an_empty_text_may_have_a_meaning() -> None:
    mount = {"name": "a", "mountPath": "/a", "subPath": ""}
    assert conform(mount, "VolumeMount", "m") == mount


@pytest.mark.parametrize("shape", ["Toleration", "[Toleration]", "{quantity}", "any", "PodSpec"])
def test_what_is_not_known_yet_has_every_shape(shape: str) -> None:
    assert conform(LATER, shape, "field") is LATER


def test_an_unknown_name_of_a_variable_is_taken() -> None:
    assert conform({"name": LATER, "value": LATER}, "EnvVar", "e") == {
        "name": LATER,
        "value": LATER,
    }


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", [object()], {"a": {"b": object()}}])
def test_what_json_cannot_hold_is_refused_however_deep(value: Any) -> None:
    with pytest.raises(InvalidSpec, match="must be text, a number, a list or a mapping"):
        conform(value, "any", "affinity")


def test_a_key_that_is_not_text_is_refused_however_deep() -> None:
    with pytest.raises(InvalidSpec) as caught:
        conform({"a": [{1: "x"}]}, "any", "affinity")
    assert caught.value.field == "affinity.a[0]"
