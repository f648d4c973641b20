"""Trigger"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest

from airflow_kftrain.links import DashboardLink, LeaderLogsLink
from airflow_kftrain.manifests.identity import OWNER_ANNOTATION
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.ownership import TaskState
from airflow_kftrain.triggers import holding, training_job
from airflow_kftrain.triggers.training_job import TrainingJobTrigger
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.watched import OWNER, order_for, start
from tests.cluster.world import World

pytestmark = pytest.mark.usefixtures("connection")


class Task(NamedTuple):
    """Replaces the task instance that Airflow gives a trigger."""

    dag_id: str = "nightly"
    task_id: str = "train"
    run_id: str = "manual__1"
    map_index: int = -1


def _trigger_of_a_task(order: WatchOrder, links: dict[str, str] | None = None) -> Any:
    trigger: Any = TrainingJobTrigger(order.to_dict(), links)
    trigger.task_instance = Task()
    return trigger


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


def test_its_event_waits_for_the_end_of_the_worker_that_deferred(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's answer is replaced: the worker stores its links after 2 s."""
    job = start(world, pytorch_job({"Master": replica("pytorch")}))
    job.succeeds()
    asked: list[datetime] = []

    async def link_is_stored(_: object, key: str) -> bool:
        assert key == "_link_DeferralLink"
        asked.append(datetime.now(timezone.utc))
        return asked[-1] - asked[0] >= timedelta(seconds=2)

    monkeypatch.setattr(training_job, "link_is_stored", link_is_stored)
    ordered = datetime.now(timezone.utc)
    (outcome,) = asyncio.run(_events(_trigger_of_a_task(order_for(world, job, ordered=ordered))))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert datetime.now(timezone.utc) >= asked[-1] + holding.LEAST
    assert asked[-1] - asked[0] >= timedelta(seconds=2)


def test_under_dags_test_nothing_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a trigger has no task instance, and no worker has to exit."""
    job = start(world, pytorch_job({"Master": replica("pytorch")}))
    job.succeeds()
    monkeypatch.delattr(training_job, "link_is_stored")
    trigger = TrainingJobTrigger(
        order_for(world, job, ordered=datetime.now(timezone.utc)).to_dict()
    )
    trigger.task_instance = None
    (outcome,) = asyncio.run(_events(trigger))
    assert outcome.verdict is Verdict.SUCCEEDED


@pytest.mark.parametrize(("state", "lives"), [("failed", False), ("deferred", True)])
def test_a_kill_ends_the_job_unless_the_task_is_still_deferred(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str, lives: bool
) -> None:
    """Airflow's answer is replaced."""

    async def state_when_killed(*_: object) -> TaskState:
        return TaskState(exists=True, state=state)

    monkeypatch.setattr(training_job, "state_when_killed", state_when_killed)
    manifest = pytorch_job({"Master": replica("pytorch", "sleep 60")})
    manifest["metadata"]["annotations"] = {OWNER_ANNOTATION: OWNER}
    job = start(world, manifest)
    trigger = _trigger_of_a_task(order_for(world, job))
    asyncio.run(trigger.on_kill())
    assert job.is_gone() is not lives


@pytest.mark.parametrize("works", [True, False], ids=["stored", "refused"])
def test_links_are_pushed_as_soon_as_the_pods_are_known_and_at_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """Airflow's storage of XComs is replaced."""
    pushed: list[tuple[str, Any]] = []

    async def push_xcom(_: object, key: str, value: Any, *, link: bool) -> None:
        if not works:
            raise RuntimeError("no XComs today")
        pushed.append((key, value))

    monkeypatch.setattr(training_job, "push_xcom", push_xcom)
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 3")}))
    links = {
        "leader_logs": "https://logs/{pod}/{container}",
        "dashboard": "https://logs/{node}/{container_id}/{finish}",
    }
    trigger = _trigger_of_a_task(order_for(world, job), links)
    (outcome,) = asyncio.run(_events(trigger))
    assert outcome.verdict is Verdict.SUCCEEDED
    urls = [value for key, value in pushed if key == LeaderLogsLink().xcom_key]
    assert len(urls) >= 2 if works else not urls
    assert set(urls) <= {"https://logs/job-master-0/pytorch"}
    places = [value for key, value in pushed if key == DashboardLink().xcom_key]
    # While the container runs, and when its end is known.
    assert len(places) == len(set(places)) >= 2 if works else not places
    assert len({value.rpartition("/")[0] for value in places}) == works
