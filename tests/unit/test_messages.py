"""What is stored between worker and triggerer, even by other versions of this package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_kftrain import Timeouts, UnknownKind
from airflow_kftrain.job_state import Phase
from airflow_kftrain.kinds import KINDS, PYTORCH_JOB, JobReference
from airflow_kftrain.messages import (
    POLL_INTERVAL,
    MaskedText,
    Outcome,
    ReplicaPod,
    WatchOrder,
    shared_words,
)
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.specs.lifecycle import BYTES_A_MINUTE, SHOW_LOGS
from tests.unit.nonsense import JSON, TEXTS, spoiled

NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=timezone.utc)
JOB = JobReference("PyTorchJob", "ml", "train-1", "uid-1")

LEAST_ORDER = WatchOrder(JOB, "kubeflow.org/v1")
WHOLE_ORDER = WatchOrder(
    job=JOB,
    api_version="kubeflow.org/v1",
    connection="kubernetes_default",
    instance="airflow.example.com",
    owner="ti-1",
    looped=True,
    timeouts=Timeouts(startup=timedelta(minutes=5), operator=None, crash_loop=timedelta(0)),
    deadline=NOON + timedelta(hours=6),
    fail_fast=True,
    poll_interval=12.5,
    show_logs="all",
    bytes_a_minute=1000,
    progress=True,
    system_retries=3,
    earlier=("worker-0: Evicted (the node was low on resources)",),
    ordered=NOON,
    masked=(MaskedText(".trainer.env[URL].value", "postgres://train:***@db"),),
    cluster="https://10.0.0.1:6443#0123456789ab",
)
WHOLE_OUTCOME = Outcome(
    verdict=Verdict.FAILED,
    reason="OOMKilled",
    words="worker-1 ran out of memory.",
    report="worker-1 ran out of memory.\n  exit code 137",
    phase=Phase.FAILED,
    fault=Fault.USER,
    retryable=False,
    exit_code=137,
    result='{"loss": 0.1}',
    tail="epoch 1",
    pods=(
        ReplicaPod("worker", 1, "train-1-worker-1", "pytorch", True, "node-1", "5f0c"),
        ReplicaPod("", None, "train-1-abcde"),
    ),
    finished=NOON,
    disruption="worker-0: Evicted (the node was low on resources)",
)


def stored(message: WatchOrder | Outcome) -> Any:
    """As Airflow stores it: strict JSON, in a database that accepts UTF-8 without NUL."""
    text = json.dumps(message.to_dict(), allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text
    return json.loads(text.encode("utf-8"))


# ----- there and back

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone.utc))
DURATIONS = st.timedeltas(timedelta(0), timedelta(days=365))
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
ORDERS = st.builds(
    WatchOrder,
    job=st.builds(JobReference, WORDS, WORDS, WORDS, WORDS),
    api_version=WORDS,
    connection=st.none() | WORDS.filter(bool),
    instance=WORDS,
    owner=WORDS,
    timeouts=st.builds(Timeouts, *(st.none() | DURATIONS for _ in Timeouts._fields)),
    deadline=st.none() | MOMENTS,
    fail_fast=st.booleans(),
    poll_interval=st.floats(0.1, 1e6),
    show_logs=st.sampled_from(SHOW_LOGS),
    bytes_a_minute=st.integers(1, 2**62),
    progress=st.booleans(),
    system_retries=st.integers(0, 100),
    earlier=st.lists(WORDS, max_size=3).map(tuple),
    ordered=st.none() | MOMENTS,
    masked=st.lists(st.builds(MaskedText, WORDS, WORDS), max_size=3).map(tuple),
    cluster=WORDS,
)
INDEXES = st.none() | st.integers(0, 999)
PODS = st.builds(ReplicaPod, WORDS, INDEXES, WORDS, WORDS, st.booleans(), WORDS, WORDS)
OUTCOMES = st.builds(
    Outcome,
    verdict=st.sampled_from([verdict for verdict in Verdict if verdict is not Verdict.WAIT]),
    reason=WORDS,
    words=WORDS,
    report=WORDS.filter(bool),
    phase=st.none() | st.sampled_from(Phase),
    fault=st.none() | st.sampled_from(Fault),
    retryable=st.booleans(),
    exit_code=st.none() | st.integers(0, 255),
    result=WORDS,
    tail=WORDS,
    pods=st.lists(PODS, max_size=3).map(tuple),
    finished=st.none() | MOMENTS,
    disruption=WORDS,
)


@pytest.mark.parametrize("order", [LEAST_ORDER, WHOLE_ORDER])
def test_an_order_comes_back_as_it_was(order: WatchOrder) -> None:
    assert WatchOrder.from_dict(stored(order)) == order


@pytest.mark.parametrize("outcome", [Outcome(Verdict.SUCCEEDED), WHOLE_OUTCOME])
def test_an_outcome_comes_back_as_it_was(outcome: Outcome) -> None:
    assert Outcome.from_dict(stored(outcome)) == outcome


@given(ORDERS)
def test_so_does_any_order(order: WatchOrder) -> None:
    assert WatchOrder.from_dict(stored(order)) == order


@given(OUTCOMES)
def test_so_does_any_outcome(outcome: Outcome) -> None:
    assert Outcome.from_dict(stored(outcome)) == outcome


@pytest.mark.parametrize(
    ("whole", "least"), [(WHOLE_ORDER, LEAST_ORDER), (WHOLE_OUTCOME, Outcome(Verdict.SUCCEEDED))]
)
def test_the_samples_differ_from_the_defaults_in_every_field(whole: Any, least: Any) -> None:
    """So a field that reading or writing forgets is found by the tests above."""
    same = [name for name in whole._field_defaults if getattr(whole, name) == getattr(least, name)]
    assert same == []


def test_what_has_its_default_is_not_written() -> None:
    assert LEAST_ORDER.to_dict() == {
        "job": {"kind": "PyTorchJob", "namespace": "ml", "name": "train-1", "uid": "uid-1"},
        "api_version": "kubeflow.org/v1",
    }
    assert Outcome(Verdict.SUCCEEDED).to_dict() == {"verdict": "succeeded"}


def test_moments_are_written_in_utc() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert LEAST_ORDER._replace(deadline=there).to_dict()["deadline"] == NOON.isoformat()


def test_a_limit_that_is_switched_off_stays_off() -> None:
    order = LEAST_ORDER._replace(timeouts=Timeouts(startup=None))
    assert stored(order)["timeouts"] == {"startup": None}
    assert WatchOrder.from_dict(stored(order)).timeouts.startup is None


@pytest.mark.parametrize("text", TEXTS)
def test_whatever_a_program_wrote_can_be_stored(text: str) -> None:
    """PostgreSQL accepts no NUL in JSON: such an event would end the triggerer, not the task."""
    outcome = Outcome(Verdict.FAILED, "Error", text, text, tail=text, result=text)
    back = Outcome.from_dict(stored(outcome))
    assert len(back.tail) == len(text)
    assert back.tail.replace("\ufffd", "").replace("?", "") in text


# ----- of other versions


def test_what_the_first_version_wrote_is_still_read() -> None:
    """It also wrote its number."""
    order = {"version": 1, **stored(WHOLE_ORDER)}
    assert WatchOrder.from_dict(order) == WHOLE_ORDER
    outcome = {"version": 1, **stored(WHOLE_OUTCOME)}
    assert Outcome.from_dict(outcome) == WHOLE_OUTCOME


def test_fields_that_are_not_known_are_passed_over() -> None:
    order = {**stored(WHOLE_ORDER), "version": 9, "colour": "blue"}
    order["timeouts"] = {**order["timeouts"], "coffee": 5}
    assert WatchOrder.from_dict(order) == WHOLE_ORDER
    outcome = {**stored(WHOLE_OUTCOME), "version": 9, "mood": ["fine"]}
    assert Outcome.from_dict(outcome) == WHOLE_OUTCOME


@pytest.mark.parametrize("name", WatchOrder._field_defaults)
def test_an_order_without_a_field_has_its_default(name: str) -> None:
    said = stored(WHOLE_ORDER)
    del said[name]
    default = WatchOrder._field_defaults[name]
    assert WatchOrder.from_dict(said) == WHOLE_ORDER._replace(**{name: default})


@pytest.mark.parametrize("name", [name for name in Outcome._field_defaults if name != "report"])
def test_an_outcome_without_a_field_has_its_default(name: str) -> None:
    said = stored(WHOLE_OUTCOME)
    del said[name]
    default = Outcome._field_defaults[name]
    assert Outcome.from_dict(said) == WHOLE_OUTCOME._replace(**{name: default})


def test_without_a_report_the_words_are_all_there_is_to_tell() -> None:
    assert Outcome.from_dict({"verdict": "failed", "words": "It broke."}).report == "It broke."


@pytest.mark.parametrize(
    ("field", "said", "read"),
    [
        ("poll_interval", 0, POLL_INTERVAL),  # would read all the time
        ("poll_interval", -1, POLL_INTERVAL),
        ("poll_interval", float("inf"), POLL_INTERVAL),
        ("poll_interval", float("nan"), POLL_INTERVAL),
        ("poll_interval", 10**400, POLL_INTERVAL),
        ("poll_interval", True, POLL_INTERVAL),
        ("poll_interval", "60", POLL_INTERVAL),
        ("poll_interval", 30, 30.0),
        ("show_logs", "some", "off"),
        ("show_logs", ["all"], "off"),
        ("bytes_a_minute", 0, BYTES_A_MINUTE),
        ("bytes_a_minute", -5, BYTES_A_MINUTE),
        ("bytes_a_minute", None, BYTES_A_MINUTE),
        ("connection", "", None),
        ("fail_fast", "yes", False),
        ("deadline", "soon", None),
    ],
)
def test_a_value_that_cannot_be_right_is_the_default(field: str, said: Any, read: Any) -> None:
    order = WatchOrder.from_dict({**LEAST_ORDER.to_dict(), field: said})
    assert getattr(order, field) == read


@pytest.mark.parametrize("said", [-1, "5", [], float("nan"), 10**400, True])
def test_a_limit_that_cannot_be_right_is_the_default_too(said: Any) -> None:
    order = WatchOrder.from_dict({**LEAST_ORDER.to_dict(), "timeouts": {"startup": said}})
    assert order.timeouts == Timeouts()


@pytest.mark.parametrize(
    "said",
    [None, [], "failed", {}, {"verdict": None}, {"verdict": "wait"}, {"verdict": "aborted"}],
)
def test_an_outcome_that_cannot_be_read_is_a_failure_that_may_be_tried_again(said: Any) -> None:
    outcome = Outcome.from_dict(said)
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "UnreadableEvent")
    assert (outcome.fault, outcome.retryable, outcome.phase) == (Fault.SYSTEM, True, None)
    assert outcome.report == outcome.words != ""


def test_even_then_the_phase_is_told_if_it_can_be() -> None:
    """Whether the job is unfinished decides what happens to it."""
    assert Outcome.from_dict({"verdict": "new", "phase": "Failed"}).phase is Phase.FAILED


@example({"version": 1, "owner": "\ud800"})
@given(spoiled(stored(WHOLE_ORDER)) | JSON)
def test_any_order_can_be_read_and_written_again(said: Any) -> None:
    order = WatchOrder.from_dict(said)
    assert WatchOrder.from_dict(order.to_dict()) == WatchOrder.from_dict(said)
    assert order.poll_interval > 0
    assert order.bytes_a_minute > 0


@given(spoiled(stored(WHOLE_OUTCOME)) | JSON)
def test_any_outcome_can_be_read_and_stored_again(said: Any) -> None:
    outcome = Outcome.from_dict(said)
    again = Outcome.from_dict(stored(outcome))
    assert again.verdict is outcome.verdict is not Verdict.WAIT
    if isinstance(said, Mapping) and outcome.verdict is Verdict.SUCCEEDED:
        assert said["verdict"] == "succeeded"


# ----- the kind of an order


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_knows_its_kind_in_the_version_that_was_submitted(kind: Any) -> None:
    order = WatchOrder(JOB._replace(kind=kind.kind), kind.api_version)
    assert order.kind is kind


def test_an_order_of_a_kind_that_is_not_known_says_so() -> None:
    assert LEAST_ORDER.kind is PYTORCH_JOB
    with pytest.raises(UnknownKind):
        _ = WatchOrder.from_dict({}).kind


def test_a_name_that_is_more_than_text_is_passed_on_as_text() -> None:
    """Only plain strings can be shared."""

    class Name(str):
        __slots__ = ()

    said = WHOLE_ORDER._replace(connection=Name("prod")).to_dict()
    assert type(said["connection"]) is str
    assert shared_words({**said, "connection": Name("prod")}) == said
