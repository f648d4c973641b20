"""The messages of ranks can be read, and show which rank failed first."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.function_payload import rank
from airflow_kftrain.function_payload.message import read_raised, read_returned
from airflow_kftrain.monitoring.failures import find_cause
from airflow_kftrain.monitoring.pods import ContainerEnd, PodState

_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)
_NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


@given(value=_JSON)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    text = rank.returned(value)
    found = read_returned(text)
    assert found is not None
    assert found.value == value or found.problem.startswith("it is too large")
    assert len(text.encode()) <= rank.LIMIT
    assert read_raised(text) is None


@given(value=st.lists(_JSON | st.binary() | st.sets(st.integers()) | st.floats()))
def test_what_is_no_json_is_refused_by_the_path_to_it(value: list[Any]) -> None:
    found = read_returned(rank.returned(value))
    assert found is not None
    assert found.value == value or "result[" in found.problem or "too large" in found.problem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KFTRAIN",
        "KFTRAIN ",
        "KFTRAIN {",
        "KFTRAIN []",
        'KFTRAIN {"packed": "###"}',
        'KFTRAIN {"packed": "AAAA"}',
        'KFTRAIN {"packed": 1}',
        "KFTRAIN " + "[" * 5000,
        '{"loss": 0.5}',
        "Traceback (most recent call last):",
    ],
)
def test_what_a_program_wrote_itself_is_none_of_ours(text: str) -> None:
    assert read_returned(text) is None
    assert read_raised(text) is None


@pytest.mark.parametrize("moment", ["soon", None, 1e300, True, -1e300])
def test_a_time_that_makes_no_sense_is_no_time(moment: Any) -> None:
    raised = read_raised(f"KFTRAIN {json.dumps({'time': moment, 'type': 'E'})}\ntext")
    assert raised is not None
    assert (raised.headline, raised.text, raised.fatal) == ("E", "text", False)


def test_the_earliest_exception_is_the_cause_within_one_second() -> None:
    def pod(index: int, message: str, ended: timedelta) -> PodState:
        end = ContainerEnd("pytorch", "main", 1, message=message, finished=_NOW + ended)
        return PodState(f"worker-{index}", "worker", index, phase="Failed", ends=(end,))

    def raised(rank: int, after: float, *, fatal: bool = False) -> str:
        header = {"type": "E", "text": "x", "rank": str(rank), "fatal": fatal}
        header["time"] = (_NOW + timedelta(seconds=after)).timestamp()
        return f"KFTRAIN {json.dumps(header)}\ntraceback of {rank}"

    pods = [
        pod(0, raised(0, 0.7), timedelta(seconds=1)),
        pod(1, raised(1, 0.2, fatal=True), timedelta(seconds=3)),
        pod(2, "no exception", timedelta(seconds=2)),
    ]
    cause = find_cause(pods)
    assert cause is not None
    assert (cause.what, cause.message, cause.fatal) == ("E: x, in rank 1", "traceback of 1", True)


def test_memory_counts_for_more_than_what_a_function_raised() -> None:
    end = ContainerEnd("pytorch", "main", 137, reason="OOMKilled", message='KFTRAIN {"time": 1}')
    cause = find_cause([PodState("worker-0", "worker", 0, phase="Failed", ends=(end,))])
    assert cause is not None
    assert cause.reason == "OOMKilled"
