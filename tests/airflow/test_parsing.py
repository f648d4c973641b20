"""Parameters that have passed are not checked again; others are, however alike they look."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG
from kubernetes.client import V1ResourceRequirements

from airflow_kftrain import InvalidSpec, Pod, PyTorchJobOperator, Resources
from airflow_kftrain.operators import parsing


@pytest.fixture(autouse=True)
def _nothing_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_passed", {})


def make(task_id: str = "t", **given: Any) -> PyTorchJobOperator:
    return PyTorchJobOperator(**{"task_id": task_id, "image": "i", "workers": 2, **given})


def test_tasks_with_the_same_parameters_are_checked_once() -> None:
    with DAG("d"):
        for number in range(3):
            make(f"t{number}", env={"RUN": "{{ run_id }}"}, container_resources=Resources(cpu=1))
    assert len(parsing._passed) == 1


def test_what_passed_is_remembered_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_MOST", 5)
    for number in range(12):
        make(image=f"i:{number}")
    assert 0 < len(parsing._passed) <= 5


def test_each_task_is_warned() -> None:
    for _ in range(2):
        with pytest.warns(UserWarning, match="RANK"):
            make(env={"RANK": "0"})


def test_what_did_not_pass_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(InvalidSpec, match="workers"):
            make(workers=-1)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"workers": 1}, {"workers": True}),
        ({"env": {"A": "1"}}, {"env": {1: "1"}}),
        ({"env": {"A": "1"}}, {"env": (("A", "1"),)}),
        ({"pod": Pod(labels={"a": "b"})}, {"pod": (None,) * len(Pod._fields)}),
        ({"deferrable": True}, {"deferrable": 1}),
    ],
)
def test_parameters_that_only_look_alike_are_checked(
    right: dict[str, Any], wrong: dict[str, Any]
) -> None:
    make(**right)
    with pytest.raises(InvalidSpec):
        make(**wrong)


def test_an_object_whose_content_has_changed_is_checked() -> None:
    model, labels = V1ResourceRequirements(limits={"cpu": "1"}), {"a": "b"}
    make(container_resources=model, pod=Pod(labels=labels))
    model.limits["cpu"] = "much"
    with pytest.raises(InvalidSpec, match="cpu"):
        make(container_resources=model)
    labels["a"] = "no label!"
    with pytest.raises(InvalidSpec, match="no label!"):
        make(pod=Pod(labels=labels))
