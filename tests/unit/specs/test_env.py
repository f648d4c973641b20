"""Environment variables: what an author may write, and how two sets of them are merged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain import FromConfigMap, FromField, FromSecret
from airflow_kftrain.specs.env import env_list, merge_env
from airflow_kftrain.specs.later import LATER

names = st.from_regex(r"[A-Z][A-Z0-9_]{0,3}", fullmatch=True)
variables = st.dictionaries(names, st.text(max_size=3), max_size=5).map(
    lambda values: [{"name": name, "value": value} for name, value in values.items()]
)
settle = settings(deadline=None, max_examples=60)


def read(listed: list[dict[str, Any]]) -> dict[str, Any]:
    """The variables as a container would see them."""
    return {item["name"]: item["value"] for item in listed}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("fast", {"value": "fast"}),
        ("", {"value": ""}),
        (3, {"value": "3"}),
        (0.5, {"value": "0.5"}),
        (
            FromSecret("wandb", "token"),
            {"valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}},
        ),
        (
            FromSecret("wandb", "token", optional=True),
            {"valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token", "optional": True}}},
        ),
        (
            FromConfigMap("settings", "url"),
            {"valueFrom": {"configMapKeyRef": {"name": "settings", "key": "url"}}},
        ),
        (
            FromField("metadata.name"),
            {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ),
    ],
)
def test_a_variable_is_written_as_a_container_lists_it(value: Any, written: Any) -> None:
    assert env_list("env", {"A": value}) == [{"name": "A", **written}]


def test_a_list_of_dicts_is_taken_too() -> None:
    listed = [{"name": "A", "value": "1"}, {"name": "B", "value": None}]
    assert env_list("env", listed) == [{"name": "A", "value": "1"}, {"name": "B"}]


def test_two_variables_of_unknown_names_may_be_two() -> None:
    listed = [{"name": LATER, "value": "1"}, {"name": LATER, "value": "2"}, LATER]
    assert env_list("env", listed) == listed


def test_what_replaces_a_variable_takes_its_place() -> None:
    base = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert merge_env(base, [secret, {"name": "C", "value": "3"}]) == [
        secret,
        {"name": "B", "value": "2"},
        {"name": "C", "value": "3"},
    ]


@pytest.mark.parametrize("unknown", [LATER, [LATER], [{"name": "A", "value": "1"}, LATER]])
def test_joined_with_what_is_not_known_yet_nothing_is_known(unknown: Any) -> None:
    known = [{"name": "A", "value": "1"}]
    assert merge_env(known, unknown) is LATER
    assert merge_env(unknown, known) is LATER


@settle
@given(variables, variables)
def test_the_latter_wins(base: Any, over: Any) -> None:
    assert read(merge_env(base, over)) == {**read(base), **read(over)}


@settle
@given(variables, variables)
def test_joining_changes_nothing_it_was_given(base: Any, over: Any) -> None:
    before = repr((base, over))
    merge_env(base, over)
    assert repr((base, over)) == before


@settle
@given(variables)
def test_joining_with_itself_or_nothing_is_no_change(base: Any) -> None:
    assert merge_env(base, []) == base
    assert merge_env([], base) == base
    assert merge_env(base, base) == base


@settle
@given(variables, variables, variables)
def test_it_does_not_matter_which_two_are_joined_first(one: Any, two: Any, three: Any) -> None:
    assert merge_env(merge_env(one, two), three) == merge_env(one, merge_env(two, three))
