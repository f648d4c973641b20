"""Trigger"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.triggers.training_job import TrainingJobTrigger
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.watched import order_for, start
from tests.cluster.world import World

pytestmark = pytest.mark.usefixtures("connection")


async def _events(trigger: TrainingJobTrigger) -> list[Outcome]:
    return [Outcome.from_dict(event.payload) async for event in trigger.run()]


def test_it_fires_one_event_and_ends(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch")}))
    order = order_for(world, job).to_dict()
    path, kwargs = TrainingJobTrigger(order, {"dashboard": "https://x/{job}"}).serialize()
    assert path == "airflow_kftrain.triggers.training_job.TrainingJobTrigger"
    trigger = TrainingJobTrigger(**json.loads(json.dumps(kwargs)))
    (outcome,) = asyncio.run(_events(trigger))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert [pod.pod for pod in outcome.pods] == ["job-master-0"]


def test_it_fires_not_before_the_moment_of_its_order(world: World) -> None:
    job = start(world, pytorch_job({"Master": replica("pytorch")}))
    job.succeeds()
    moment = datetime.now(timezone.utc) + timedelta(seconds=4)
    trigger = TrainingJobTrigger(order_for(world, job, not_before=moment).to_dict())
    (outcome,) = asyncio.run(_events(trigger))
    assert datetime.now(timezone.utc) >= moment
    assert outcome.finished is not None
    assert outcome.finished < moment


@pytest.mark.parametrize(
    "kwargs",
    [
        {"order": {}},
        {"order": None},
        {"order": {"version": 7, "job": ["PyTorchJob"]}, "links": 3, "colour": "blue"},
        {"order": {"job": {"kind": "Unknown", "namespace": "a", "name": "b"}}},
    ],
    ids=["empty", "null", "strange", "unknown-kind"],
)
def test_what_it_cannot_read_is_an_event(kwargs: Any) -> None:
    (outcome,) = asyncio.run(_events(TrainingJobTrigger(**kwargs)))
    assert outcome.verdict is Verdict.FAILED
    assert outcome.words
