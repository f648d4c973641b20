"""Watching: the pods' logs"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from datetime import datetime, timedelta, timezone

import pytest

from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.watching import feeds, logs
from kftrain_local.faults.command import Fault, FaultProxy
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.watched import Told, order_for, start, until, watched
from tests.cluster.world import World


def shown(told: Told) -> list[str]:
    """The log lines of pods; those of slices without their times."""
    lines = [line for line in told.lines if line.startswith(("line", "["))]
    return [re.sub(r"^(\[master-0\]) \d\d\d\d-\d\d-\d\dT\S+Z ", "", line) for line in lines]


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
def test_slices_of_all_pods_are_in_the_order_of_their_times(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SLICE_SECONDS", 2.0)
    script = "for i in $(seq 1 200); do echo line $i; sleep 0.3; done"
    roles = {"Master": replica("pytorch", script), "Worker": replica("pytorch", script)}
    job = start(world, pytorch_job(roles))
    told = Told()
    slices: list[list[str]] = []

    def is_mixed() -> bool:
        """Takes the lines that were told at once, and returns whether the pods take turns there."""
        new = [line for line in told.lines if line.startswith("[")]
        told.lines.clear()
        slices.append(new)
        return len(list(itertools.groupby(line.split(" ")[0] for line in new))) > 2

    async def run() -> None:
        async with watched(told, order_for(world, job, show_logs="all")):
            await until(is_mixed)

    asyncio.run(run())
    for lines in slices:
        times = [line.split(" ")[1] for line in lines]
        assert times == sorted(times)


@pytest.mark.usefixtures("connection")
def test_what_was_shown_of_a_log_is_not_its_end_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SLICE_SECONDS", 2.0)
    script = "for i in $(seq 1 12); do echo line $i; sleep 0.5; done"
    job = start(world, pytorch_job({"Master": replica("pytorch", script)}))
    for streams in (True, False):
        told = Told()
        order = order_for(world, job, show_logs="leader")
        outcome = asyncio.run(told.watch(order, follow_logs=streams))
        end = outcome.tail.splitlines()
        assert [*shown(told), *end] == [f"line {number}" for number in range(1, 13)]


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
    assert sum("is omitted" in line for line in lines) == 1
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
    assert told.text.count("the pods' logs continue from") == 1


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("follow_logs", [True, False], ids=["stream", "slices"])
def test_of_what_draws_over_itself_the_last_is_shown_once(
    world: World, monkeypatch: pytest.MonkeyPatch, follow_logs: bool
) -> None:
    monkeypatch.setattr(logs, "SLICE_SECONDS", 1.0)
    script = r"printf 'line 1 %%\rline 2 %%\rline 3 %%\n'; sleep 6; echo line of the end; sleep 3"
    job = start(world, pytorch_job({"Master": replica("pytorch", script)}))
    told = Told()
    order = order_for(world, job, show_logs="leader")
    asyncio.run(told.watch(order, follow_logs=follow_logs))
    assert shown(told) == ["line 3 %", "line of the end"]


@pytest.mark.parametrize("follow_logs", [True, False], ids=["stream", "slices"])
def test_a_log_that_may_not_be_read_is_told_once(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, follow_logs: bool
) -> None:
    monkeypatch.setattr(logs, "SLICE_SECONDS", 1.0)
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(logs, "_STEADY_LOOK_SECONDS", 2.0)
    proxy.add(Fault(resource="pods/log", code=403))
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 8")}))
    told = Told()
    outcome = asyncio.run(
        told.watch(order_for(world, job, show_logs="leader"), follow_logs=follow_logs)
    )
    assert outcome.verdict is Verdict.SUCCEEDED
    assert told.text.count("the fault proxy injects this error") == 1
    assert proxy.calls["get", "pods/log"] <= 12
    assert proxy.calls["list", "pods"] <= 20


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("follow_logs", [True, False], ids=["stream", "slices"])
@pytest.mark.parametrize("name", ["Cursor.all_new", "LogShow._pods"])
def test_a_fault_of_ours_is_told_once_and_ends_nothing_but_the_logs(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    follow_logs: bool,
    name: str,
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("never thought of")

    monkeypatch.setattr(logs, "SLICE_SECONDS", 1.0)
    monkeypatch.setattr(f"{logs.__name__}.{name}", fail)
    job = start(world, pytorch_job({"Master": replica("pytorch", "echo hello; sleep 6")}))
    told = Told()
    order = order_for(world, job, show_logs="leader")
    outcome = asyncio.run(told.watch(order, follow_logs=follow_logs))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert told.text.count("no longer shown") == 1
    assert told.text.count("never thought of") == 1
    (record,) = [each for each in caplog.records if each.name == logs.__name__]
    assert record.exc_info


def test_logs_that_are_slow_do_not_keep_others_from_ending(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that does not answer has the logs of many."""
    monkeypatch.setattr(logs, "SLICE_SECONDS", 0.5)
    monkeypatch.setattr(feeds, "READS_AT_ONCE", 2)
    slow = [
        start(world, pytorch_job({"Master": replica("pytorch", "sleep 60")}, name=f"slow-{number}"))
        for number in range(3)
    ]
    last = start(world, pytorch_job({"Master": replica("pytorch", "sleep 300")}, name="last"))

    async def run() -> float:
        async with contextlib.AsyncExitStack() as others:
            for job in slow:
                order = order_for(world, job, show_logs="leader")
                await others.enter_async_context(watched(Told(), order))
            told = Told()
            async with watched(told, order_for(world, last)) as task:
                await until(lambda: "Running" in told.text)
                await asyncio.to_thread(proxy.add, Fault(resource="pods/log", delay=20.0, times=2))
                before = proxy.calls["get", "pods/log"]
                await until(lambda: proxy.calls["get", "pods/log"] >= before + 2)
                await asyncio.to_thread(last.delete)
                began = asyncio.get_running_loop().time()
                await asyncio.wait_for(task, 60)
                return asyncio.get_running_loop().time() - began

    assert asyncio.run(run()) < 15
