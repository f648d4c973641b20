"""The result of a training, and what Airflow can store of it."""

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
from airflow_kftrain.operators.ending import NoValue, value_or_error


class _Log:
    def __init__(self) -> None:
        self.text = ""

    def warning(self, text: str, *given: object) -> None:
        self.text += f"{text % given}\n" if given else f"{text}\n"


def _returned(raw: str, log: _Log, *, required: bool = False) -> Any:
    outcome = Outcome(Verdict.SUCCEEDED, result=raw)
    return value_or_error(outcome, Lifecycle(result_required=required), log)  # type: ignore[arg-type]


def _stored(value: Any) -> None:
    """The way of an XCom to the database: worker, supervisor, API server."""
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
        ('{"loss": NaN}', "cannot store the result: nan is not a number in JSON"),
        ("[-Infinity]", "-inf is not a number in JSON"),
        ("1e400", "inf is not a number in JSON"),
        (str(2**64), "more than 64 bits"),
        (f'{{"a": [{-(2**63) - 1}]}}', "more than 64 bits"),
        ('"\\ud800"', "characters that databases reject"),
        ('{"\\ud800": 1}', "characters that databases reject"),
        ('{"__classname__": "x"}', "the key __classname__ is reserved by Airflow"),
        (_nested(600), "has more than 50 levels"),
        ("[" * 4000, "nested too deeply"),
    ],
)
def test_what_was_meant_as_a_value_and_cannot_be_stored_fails_for_good_and_keeps_the_job(
    raw: str, why: str
) -> None:
    with pytest.raises((ValueError, AttributeError, OverflowError, RecursionError)):
        _stored(json.loads(raw))  # otherwise it need not be rejected
    assert why in _refused(raw)


def _refused(raw: str, *, required: bool = False) -> str:
    """The error, after which there is no retry and the job is kept. The log shows the result."""
    log = _Log()
    with pytest.raises(exceptions().AirflowFailException) as caught:
        _returned(raw, log, required=required)
    assert raw in log.text
    assert isinstance(caught.value.__cause__, NoValue)
    return str(caught.value)


@pytest.mark.parametrize(
    "raw",
    ['{"loss": 0.5', "{}}", '[{"loss": 1}', "[1, 2", '"loss', ' {"a": }', '{\n "loss": x}'],
)
def test_what_looks_like_json_and_cannot_be_read_fails_for_good(raw: str) -> None:
    why = _refused(raw)
    assert "What the training wrote to $KFTRAIN_RESULT_FILE is not JSON" in why
    assert why.endswith("The job is kept.")


def test_a_value_that_is_cut_fails_for_good_and_a_text_does_not() -> None:
    """Kubernetes keeps the end."""
    assert "Kubernetes keeps 4096 bytes" in _refused(f'{"x" * 4094}"}}')
    log = _Log()
    assert _returned(f"{'x' * 4091} done", log) is None
    assert "Kubernetes keeps 4096 bytes" in log.text


@pytest.mark.parametrize(
    "raw",
    [
        "done",
        "loss: 0.5",
        "{loss: 0.5}",
        "[INFO] done",
        "[1/3] epoch",
        "[2026-11-21 10:00:00] done",
        "nan",
    ],
)
def test_plain_text_is_no_value_and_the_warning_names_the_parameter(raw: str) -> None:
    log = _Log()
    assert _returned(raw, log) is None
    assert raw in log.text
    assert "$KFTRAIN_RESULT_FILE" in log.text
    assert "Lifecycle(result_required=True)" in log.text
    assert "not JSON" in _refused(raw, required=True)


def test_no_result_is_nothing_unless_it_is_required() -> None:
    log = _Log()
    assert _returned("", log) is None
    assert log.text == ""
    with pytest.raises(exceptions().AirflowFailException, match=r"Lifecycle\.result_required"):
        _returned(" ", log, required=True)


def test_a_text_that_postgresql_refuses_is_none() -> None:
    assert "characters that databases reject" in _refused('"\\u0000"')
