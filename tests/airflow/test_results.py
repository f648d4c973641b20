"""What a training leaves as its result, and what Airflow can store of it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.execution_time.comms import SetXCom, _RequestFrame

from airflow_kftrain import Lifecycle
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.operators.ending import value_or_error


class _Log:
    def __init__(self) -> None:
        self.text = ""

    def warning(self, text: str, *given: object) -> None:
        self.text += f"{text % given}\n" if given else f"{text}\n"


def _returned(raw: str, log: _Log, *, required: bool = False) -> Any:
    outcome = Outcome(Verdict.SUCCEEDED, result=raw)
    return value_or_error(outcome, Lifecycle(result_required=required), log)  # type: ignore[arg-type]


def _stored(value: Any) -> None:
    """The way of an XCom to its database: worker, supervisor, API server."""
    serialized = BaseXCom.serialize_value(value)
    place: dict[str, Any] = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
    message = SetXCom(key="return_value", value=serialized, **place)
    _RequestFrame(id=1, body=message.model_dump()).as_bytes()
    httpx.Request("POST", "http://api", json=serialized)


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize(
    "raw",
    [
        '{"loss": 0.5}',
        "null",
        "[]",
        str(2**64 - 1),
        str(-(2**63)),
        '"\\u2603"',
        _nested(50),
        "true",
    ],
)
def test_what_can_be_stored_is_returned(raw: str) -> None:
    value = _returned(raw, _Log(), required=True)
    assert value == json.loads(raw)
    _stored(value)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ('{"loss": NaN}', "cannot store the result: nan is no number in JSON"),
        ("[-Infinity]", "-inf is no number in JSON"),
        ("1e400", "inf is no number in JSON"),
        (str(2**64), "more than 64 bits"),
        (f'{{"a": [{-(2**63) - 1}]}}', "more than 64 bits"),
        ('"\\ud800"', "characters that no database takes"),
        ('{"\\ud800": 1}', "characters that no database takes"),
        ('{"__classname__": "x"}', "the key __classname__ is Airflow's own"),
        (_nested(600), "nested more than 50 deep"),
        ("[" * 4000, "nested too deeply"),
    ],
)
def test_what_cannot_be_stored_is_said_and_shown_and_does_not_fail_a_success(
    raw: str, why: str
) -> None:
    with pytest.raises((ValueError, AttributeError, OverflowError, RecursionError)):
        _stored(json.loads(raw))  # else there would be no need to refuse it
    log = _Log()
    assert _returned(raw, log) is None
    assert why in log.text
    assert raw in log.text
    with pytest.raises(exceptions().AirflowFailException, match="The task asks for one"):
        _returned(raw, _Log(), required=True)


def test_a_text_that_postgresql_refuses_is_none() -> None:
    log = _Log()
    assert _returned('"\\u0000"', log) is None
    assert "characters that no database takes" in log.text
