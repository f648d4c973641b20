"""Arguments come back from JSON unchanged, or are rejected with their path."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.function_payload.arguments import arguments_json, plain_json

_PLAIN = (
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]))
)
_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_JSON: st.SearchStrategy[Any] = st.recursive(
    _PLAIN | _FINITE,
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\u00e4{"), inner),
    max_leaves=20,
)
_ANY: st.SearchStrategy[Any] = st.recursive(
    _PLAIN | st.floats() | st.binary() | st.datetimes(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner)
    ),
    max_leaves=10,
)


@given(args=st.lists(_JSON, max_size=3), kwargs=st.dictionaries(st.text("abc", min_size=1), _JSON))
def test_json_comes_back_as_it_was(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert json.loads(arguments_json(args, kwargs)) == {"args": args, "kwargs": kwargs}


@given(value=_ANY)
def test_anything_comes_back_as_it_was_or_is_refused(value: Any) -> None:
    try:
        kept = plain_json("x", value)
    except InvalidSpec:
        return  # the tests below say why
    assert repr(json.loads(json.dumps(kept))) == repr(value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ((1, 2), "x: is of type tuple, which cannot be passed as JSON. Pass a list."),
        ({"a": [{1}]}, "x['a'][0]: is of type set"),
        (
            {1: 2},
            "x[1]: has a key of type int, which JSON turns into a string. Use strings as keys.",
        ),
        ([datetime(2026, 1, 1)], "x[0]: is of type datetime"),
        (timedelta(1), "Pass a number of seconds."),
        (float("nan"), "x: cannot be written in JSON, got nan."),
        (Path("a"), "Pass a string."),
        ("\ud800", "x: is not valid text"),
        ([10**5000], "x[0]: has 16610 bits. Pass a string."),
    ],
)
def test_what_json_would_change_is_refused_by_its_path(value: Any, told: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        arguments_json([], {"x": value})
    assert told in str(caught.value)


def test_what_is_nested_without_end_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidSpec, match="nested more than 50 levels deep"):
        plain_json("x", value)


def test_what_mapped_tasks_returned_is_a_list() -> None:
    class LazyXComSequence:
        def __iter__(self) -> Any:
            return iter([1, 2])

    assert arguments_json([LazyXComSequence()], {}) == '{"args": [[1, 2]], "kwargs": {}}'
