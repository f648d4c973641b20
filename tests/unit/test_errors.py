"""What an error shows, and what it never shows."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec, KfTrainError, Replica, UnknownKind
from airflow_kftrain.errors import shown


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidSpec("image", "must be given"), "image: must be given."),
        (InvalidSpec("workers", "must be text", value=3), "workers: must be text, got 3."),
        (InvalidSpec("ttl", "too long", value=None), "ttl: too long, got None."),
        (
            InvalidSpec("args", "wrong", value="x", advice="Write y."),
            "args: wrong, got 'x'. Write y.",
        ),
        (InvalidSpec("", "says nothing"), "says nothing."),
    ],
)
def test_an_error_says_where_what_which_value_and_what_to_do(error: Any, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "'x'"),
        (timedelta(seconds=1), "datetime.timedelta(seconds=1)"),
        ({"env": "hunter2"}, "{'env': ...}"),
        (MappingProxyType({"env": "hunter2"}), "{'env': ...}"),
        ([1, "a", {"env": "hunter2"}], "[1, 'a', {'env': ...}]"),
        (Replica(env={"TOKEN": "hunter2"}), "Replica(...)"),
    ],
)
def test_of_what_holds_others_only_the_outline_is_shown(value: Any, text: str) -> None:
    assert shown(value) == text


def test_a_long_value_is_cut() -> None:
    assert len(shown("x" * 1000)) == 80
    assert shown("/tmp/" + "x" * 1000 + "/job.yaml").endswith("x/job.yaml'")


def test_the_same_error_can_be_told_by_another_name() -> None:
    error = UnknownKind("kind", "not a kind", value="Pod", advice="Known are ...").at("manifest")
    assert type(error) is UnknownKind
    assert str(error) == "manifest: not a kind, got 'Pod'. Known are ..."


def test_all_errors_are_of_one_tree() -> None:
    assert issubclass(UnknownKind, InvalidSpec)
    assert issubclass(InvalidSpec, KfTrainError)
