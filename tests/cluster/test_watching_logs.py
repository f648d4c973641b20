"""Watching: the pods' logs"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

from airflow_kftrain.local.faults.command import FaultProxy
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.watching import logs
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.watched import Told, order_for, start, until, watched
from tests.cluster.world import World


def shown(told: Told) -> list[str]:
    """The lines of pods."""
    return [line for line in told.lines if line.startswith(("line", "["))]


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("script", ["", "sleep 5; "], ids=["short", "long"])
def test_the_log_of_the_leader_is_streamed_where_a_worker_waits(world: World, script: str) -> None:
    script = f"for i in 1 2 3; do echo line $i; done; {script}echo line 4"
    roles = {"Master": replica("pytorch", script), "Worker": replica("pytorch", "echo line of w")}
    job = start(world, pytorch_job(roles))
    told = Told()
    order = order_for(world, job, show_logs="leader")
    outcome = asyncio.run(told.watch(order, follow_logs=True))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert shown(told) == ["line 1", "line 2", "line 3", "line 4"]


@pytest.mark.usefixtures("connection")
def test_the_logs_of_all_pods_are_told_apart(world: World) -> None:
    roles = {
        "Master": replica("pytorch", "echo a; sleep 2"),
        "Worker": replica("pytorch", "echo b; sleep 1", 2),
    }
    job = start(world, pytorch_job(roles))
    told = Told()
    asyncio.run(told.watch(order_for(world, job, show_logs="all"), follow_logs=True))
    assert sorted(shown(told)) == ["[master-0] a", "[worker-0] b", "[worker-1] b"]


def test_a_stream_that_breaks_goes_on_without_a_line_twice(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.5)
    script = "for i in $(seq 1 40); do echo line $i; sleep 0.2; done"
    job = start(world, pytorch_job({"Master": replica("pytorch", script)}))
    told = Told()
    order = order_for(world, job, show_logs="leader")

    async def run() -> Outcome:
        async with watched(told, order, follow_logs=True) as task:
            await until(lambda: len(shown(told)) > 3)
            await asyncio.to_thread(proxy.away)
            await asyncio.to_thread(proxy.back)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
    assert shown(told) == [f"line {number}" for number in range(1, 41)]


@pytest.mark.usefixtures("connection")
def test_a_container_that_restarts_is_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.3)
    master = replica("pytorch", "echo line of a run; sleep 2; exit 1", policy="OnFailure")
    job = start(world, pytorch_job({"Master": master}, run_policy={"backoffLimit": 2}))
    told = Told()
    order = order_for(world, job, show_logs="leader")
    outcome = asyncio.run(told.watch(order, follow_logs=True))
    assert outcome.verdict is Verdict.FAILED
    assert set(shown(told)) == {"line of a run"}
    assert len(shown(told)) in (2, 3)


@pytest.mark.usefixtures("connection")
def test_slices_of_the_log_are_shown_while_a_task_is_deferred(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SLICE_SECONDS", 2.0)
    script = "for i in $(seq 1 12); do echo line $i; sleep 0.5; done"
    job = start(world, pytorch_job({"Master": replica("pytorch", script)}))
    told = Told()
    asyncio.run(told.watch(order_for(world, job, show_logs="leader")))
    lines = shown(told)
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert 3 <= len(lines) <= 12


@pytest.mark.usefixtures("connection")
def test_what_is_beyond_the_budget_is_said_to_be_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SLICE_SECONDS", 2.0)
    script = "for i in $(seq 1 500); do echo line $i; done; sleep 4; echo line of the end; sleep 3"
    job = start(world, pytorch_job({"Master": replica("pytorch", script)}))
    told = Told()
    asyncio.run(told.watch(order_for(world, job, show_logs="leader", bytes_a_minute=2048)))
    lines = shown(told)
    assert sum("left out" in line for line in lines) == 1
    assert len(lines) < 60
    assert "line of the end" in lines


@pytest.mark.usefixtures("connection")
def test_a_triggerer_that_takes_over_says_from_where_it_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SLICE_SECONDS", 1.0)
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 4")}))
    told = Told()
    ordered = datetime.now(timezone.utc) - timedelta(hours=1)
    asyncio.run(told.watch(order_for(world, job, show_logs="leader", ordered=ordered)))
    assert told.text.count("the pods' logs go on from") == 1
