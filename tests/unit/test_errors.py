"""What an error shows, and what it never shows."""

from __future__ import annotations

import pickle
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec, KfTrainError, Replica, UnknownKind
from airflow_kftrain.errors import (
    BadConnection,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    NotServed,
    OtherCluster,
    Refused,
    Unauthorized,
    Unreachable,
    shown,
)

DOING = "create PyTorchJob ml/train-1"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidSpec("image", "is required"), "image: is required."),
        (InvalidSpec("workers", "must be text", value=3), "workers: must be text, got 3."),
        (InvalidSpec("ttl", "too long", value=None), "ttl: too long, got None."),
        (
            InvalidSpec("args", "wrong", value="x", advice="Write y."),
            "args: wrong, got 'x'. Write y.",
        ),
        (InvalidSpec("", "is empty"), "is empty."),
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


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            Unreachable(DOING, "nobody answers at 10.0.0.1:6443"),
            "cannot create PyTorchJob ml/train-1: nobody answers at 10.0.0.1:6443.",
        ),
        (
            Forbidden(DOING, "a right is missing.", advice="Grant it.", code=403),
            "cannot create PyTorchJob ml/train-1: a right is missing. Grant it.",
        ),
        (ClusterError(DOING, "etcd is slow...", code=500), f"cannot {DOING}: etcd is slow."),
    ],
)
def test_an_error_of_a_call_says_what_was_tried_why_not_and_what_to_do(
    error: ClusterError, text: str
) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        (ClusterError, True),
        (Unreachable, True),
        (Unauthorized, True),
        (Forbidden, False),
        (Refused, False),
        (NotFound, False),
        (NotServed, False),
        (Conflict, False),
        (Expired, False),
    ],
)
def test_it_says_whether_the_same_call_may_succeed_later(
    kind: type[ClusterError], retryable: bool
) -> None:
    assert kind(DOING, "no").retryable is retryable


def test_what_the_server_did_not_say_is_empty() -> None:
    error = ClusterError(DOING, "no")
    assert (error.code, error.reason, error.advice, error.retry_after) == (0, "", "", None)


@pytest.mark.parametrize(
    "error",
    [
        Conflict(DOING, "it is there", advice="Wait.", code=409, reason="AlreadyExists"),
        UnknownKind("kind", "not a kind", value="Pod", advice="Known are ..."),
        InvalidSpec("image", "is required"),
    ],
)
def test_an_error_passes_from_one_process_to_another(error: KfTrainError) -> None:
    """Airflow runs tasks in processes of their own."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_all_errors_are_of_one_tree() -> None:
    assert issubclass(UnknownKind, InvalidSpec)
    assert issubclass(InvalidSpec, KfTrainError)
    assert issubclass(ClusterError, KfTrainError)
    of_calls = {Unreachable, Unauthorized, Forbidden, Refused, NotFound, NotServed, Conflict}
    assert set(ClusterError.__subclasses__()) == of_calls | {BadConnection, Expired, OtherCluster}


def test_a_long_list_in_a_list_is_not_shown_to_the_bottom() -> None:
    assert shown([[[[1]]]]) == "[[[[...]]]]"
