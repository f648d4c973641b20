from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kftrain_local.agent import environment
from kftrain_local.agent.environment import (
    CannotStart,
    Environment,
    Sources,
    expand,
    quantity,
)
from tests.unit.local.pods import Api, a_container, a_pod, sources


def make_environment(container: dict[str, Any], given: Sources | None = None) -> Environment:
    given = given or sources(configmaps_settings={"rate": "0.1"}, secrets_token={"key": "hush"})
    return asyncio.run(environment.make_environment(a_pod(container), container, given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$(NOT_THERE)", "$(NOT_THERE)"),
        ("$A ${A} $", "$A ${A} $"),
        ("x$(A)$(A)", "x11"),
        ("$$$(A)", "$1"),
        ("$(A", "$(A"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_a_variable_sees_those_before_it_and_not_those_after() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)$(C)"},
        {"name": "C", "value": "2"},
    ]
    container = a_container(env=env)
    assert make_environment(container).values["B"] == "1$(C)"


def test_the_last_of_two_equal_names_counts() -> None:
    container = a_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])
    assert make_environment(container).values == {"A": "2"}


def test_values_come_from_everywhere() -> None:
    def entry(name: str, **origin: object) -> dict[str, object]:
        return {"name": name, "valueFrom": origin}

    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    container = a_container(
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "settings"}}],
        env=[
            entry("NAME", fieldRef={"fieldPath": "metadata.name"}),
            entry("INDEX", fieldRef={"fieldPath": index}),
            entry("IP", fieldRef={"fieldPath": "status.podIP"}),
            entry("RATE", configMapKeyRef={"name": "settings", "key": "rate"}),
            entry("KEY", secretKeyRef={"name": "token", "key": "key"}),
            entry("CPU", resourceFieldRef={"resource": "limits.cpu"}),
            entry("MEMORY", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
            entry("GONE", secretKeyRef={"name": "absent", "key": "key", "optional": True}),
            {"name": "BOTH", "value": "$(P_rate) $(KEY)"},
        ],
        resources={"limits": {"cpu": "1500m", "memory": "1Gi"}},
    )
    made = make_environment(container)
    assert made.values == {
        "P_rate": "0.1",
        "NAME": "job-worker-0",
        "INDEX": "3",
        "IP": "127.0.0.1",
        "RATE": "0.1",
        "KEY": "hush",
        "CPU": "2",
        "MEMORY": "1024",
        "BOTH": "0.1 hush",
    }
    assert made.secret == {"KEY", "BOTH"}


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ({"secretKeyRef": {"name": "absent", "key": "key"}}, 'secret "absent" not found'),
        (
            {"configMapKeyRef": {"name": "settings", "key": "no"}},
            "couldn't find key no in ConfigMap ml/settings",
        ),
        ({"fieldRef": {"fieldPath": "spec.nothing"}}, "unsupported fieldPath: spec.nothing"),
        (
            {"resourceFieldRef": {"containerName": "no", "resource": "limits.cpu"}},
            "container no not found",
        ),
        ({"fileKeyRef": {}}, "valueFrom.fileKeyRef is not supported"),
    ],
)
def test_what_is_missing_is_named(origin: dict[str, object], text: str) -> None:
    container = a_container(env=[{"name": "A", "valueFrom": origin}])
    with pytest.raises(CannotStart, match=text):
        make_environment(container)


def test_annotations_as_a_file_are_quoted() -> None:
    found = a_pod()
    found["metadata"]["annotations"] = {"b": 'a "quoted"\nline', "a": "1"}
    written = environment.downward(found, {}, {"fieldRef": {"fieldPath": "metadata.annotations"}})
    assert written == 'a="1"\nb="a \\"quoted\\"\\nline"'


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("500m", 0.5), ("1Ki", 1024), ("2G", 2e9), ("1e3", 1000), ("1.5Gi", 1.5 * 2**30)],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "lots", "1Q", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(CannotStart):
        quantity(text)


def test_an_object_is_read_once_and_may_hold_bytes() -> None:
    api = Api({"configmaps/c": {"data": {"a": "1"}, "binaryData": {"b": "/w=="}}})
    env = [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "no", "optional": True}}]
    made = make_environment(a_container(envFrom=env * 2), Sources(api, "ml"))
    assert made.values == {"a": "1", "b": "\ufffd"}
    assert api.asked == ["configmaps/c", "secrets/no"]
