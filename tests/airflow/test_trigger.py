"""The trigger, as far as no cluster is needed."""

import asyncio
import json

import pytest

from airflow_kftrain.airflow_compat import has_trigger_on_kill
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.triggers.training_job import TrainingJobTrigger
from airflow_kftrain.watching import ending, watcher

ORDER = WatchOrder(
    JobReference("PyTorchJob", "ml", "train-1", "uid-1"), "kubeflow.org/v1", owner="ti-1"
)


def events(trigger):
    async def run():
        return [Outcome.from_dict(event.payload) async for event in trigger.run()]

    return asyncio.run(run())


def test_it_is_stored_as_names_and_ids_and_made_anew_from_them():
    links = {"dashboard": "https://board/{job}"}
    path, kwargs = TrainingJobTrigger(ORDER.to_dict(), links).serialize()
    assert path == "airflow_kftrain.triggers.training_job.TrainingJobTrigger"
    assert kwargs == {"order": ORDER.to_dict(), "links": links}
    again = TrainingJobTrigger(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (path, kwargs)


def test_arguments_of_another_version_are_passed_over():
    trigger = TrainingJobTrigger(ORDER.to_dict(), colour="blue")
    assert trigger.serialize()[1] == {"order": ORDER.to_dict(), "links": {}}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"order": {}},
        {"order": None},
        {"order": {"version": 7, "job": ["PyTorchJob"]}, "links": 3, "colour": "blue"},
        {"order": {"job": {"kind": "Unknown", "namespace": "a", "name": "b"}}},
        {"order": {"api_version": "x/v1", "job": {"kind": 1, "namespace": "a", "name": "../b"}}},
    ],
    ids=["empty", "null", "strange", "unknown-kind", "path"],
)
def test_what_it_cannot_read_is_an_event(kwargs):
    (outcome,) = events(TrainingJobTrigger(**kwargs))
    assert outcome.verdict is Verdict.FAILED
    assert outcome.fault is Fault.USER
    assert outcome.words


def test_a_connection_that_is_not_there_is_an_event(monkeypatch):
    monkeypatch.setattr(watcher, "LONGEST_FORBIDDEN", 0.0)  # it might be created
    order = ORDER._replace(connection="nowhere")
    (outcome,) = events(TrainingJobTrigger(order.to_dict()))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "BadConnection")
    assert "nowhere" in outcome.words


def test_a_fault_of_ours_is_an_event(monkeypatch):
    trigger = TrainingJobTrigger(ORDER.to_dict())
    monkeypatch.setattr(WatchOrder, "from_dict", lambda _: 1 / 0)
    (outcome,) = events(trigger)
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "TriggerFailed")
    assert "ZeroDivisionError" in outcome.words


@pytest.fixture
def ended(monkeypatch):
    """The orders whose jobs should have been ended."""
    orders = []

    async def end_job(order, look_up):
        orders.append(order)
        return True

    monkeypatch.setattr(ending, "end_job", end_job)
    return orders


class Task:
    """Replaces the task instance that Airflow gives a trigger."""

    dag_id, task_id, run_id, map_index = "nightly", "train", "manual__1", -1


def test_a_kill_before_the_event_ends_the_job(ended):
    trigger = TrainingJobTrigger(ORDER.to_dict())
    trigger.task_instance = Task()
    asyncio.run(trigger.on_kill())
    assert ended == [ORDER]


def test_a_kill_after_the_event_ends_nothing(ended):
    trigger = TrainingJobTrigger({})
    trigger.task_instance = Task()
    events(trigger)
    asyncio.run(trigger.on_kill())
    assert ended == []


def test_a_trigger_of_dag_test_belongs_to_no_task_and_ends_nothing(ended):
    trigger = TrainingJobTrigger(ORDER.to_dict())
    trigger.task_instance = None
    asyncio.run(trigger.on_kill())
    assert ended == []


def test_its_clean_up_ends_the_job_only_where_airflow_tells_of_no_kills(ended):
    trigger = TrainingJobTrigger(ORDER.to_dict())
    trigger.task_instance = Task()
    asyncio.run(trigger.cleanup())
    assert ended == ([] if has_trigger_on_kill() else [ORDER])


def test_what_airflow_logs_of_the_event_is_short():
    async def run():
        return [event async for event in TrainingJobTrigger({}).run()]

    (event,) = asyncio.run(run())
    assert repr(event) == f"failed: {event.payload['words']}"


def test_triggers_hold_once_what_their_orders_say_alike():
    said = json.dumps(ORDER._replace(instance="an-airflow").to_dict())
    one, another = (TrainingJobTrigger(json.loads(said)) for _ in range(2))
    assert one.order == json.loads(said)
    for key in ("api_version", "instance"):
        assert one.order[key] is another.order[key]
    assert one.order["job"]["kind"] is another.order["job"]["kind"]
    assert WatchOrder.from_dict(one.order).instance is one.order["instance"]


def test_triggers_share_their_logger():
    one, another = (TrainingJobTrigger(ORDER.to_dict()) for _ in range(2))
    one._tell("a line")
    assert one.log is another.log
