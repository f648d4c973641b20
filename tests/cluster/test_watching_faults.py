"""Watching while the world breaks"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_kftrain.hooks import credentials, operations
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.job_state import Phase
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.watching import evidence, feeds, streams, watcher
from kftrain_local.faults.command import Fault, FaultProxy
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.watched import Told, order_for, start, until, watched
from tests.cluster.world import Job, World

WATCHES = ("watch", "pytorchjobs")
LISTS = ("list", "pytorchjobs")
GETS = ("get", "pytorchjobs")


def waiting_job(world: World, name: str = "job") -> Job:
    """It runs until its file exists, which `let_go` creates."""
    return start(world, pytorch_job({"Master": replica("pytorch", "sleep 300")}, name=name))


def end(job: Job) -> None:
    """Ends the job successfully, like its operator."""
    status = {"conditions": [{"type": "Succeeded", "status": "True", "reason": "Done"}]}
    answer = job.world.api.call(
        "PATCH",
        f"{job.path}/status",
        {"status": status},
        content_type="application/merge-patch+json",
    )
    assert answer.ok, answer.message
    # The operator deletes the pods only when it handles the job again.


async def in_thread(work: Callable[..., Any], *given: Any) -> Any:
    return await asyncio.to_thread(work, *given)


@pytest.mark.parametrize("known", [False, True], ids=["of an older version", "of this version"])
def test_many_who_wait_share_one_watch(world: World, proxy: FaultProxy, known: bool) -> None:
    """Even if their orders name the cluster of the jobs."""
    cluster = TrainingJobHook("cluster").cluster() if known else ""
    jobs = [waiting_job(world, f"job-{number}") for number in range(5)]
    told = [Told() for _ in jobs]

    async def run() -> list[Outcome]:
        orders = [order_for(world, job, cluster=cluster) for job in jobs]
        tasks = [
            asyncio.create_task(one.watch(order)) for one, order in zip(told, orders, strict=True)
        ]
        await until(lambda: all("Running" in one.text for one in told))
        for job in jobs:
            await in_thread(end, job)
        return await asyncio.gather(*tasks)

    outcomes = asyncio.run(run())
    assert {outcome.verdict for outcome in outcomes} == {Verdict.SUCCEEDED}
    assert proxy.calls[WATCHES] == 1
    assert proxy.calls[LISTS] == 1
    assert proxy.calls["watch", "pods"] == 1
    assert proxy.calls[GETS] == 0


@pytest.mark.parametrize("fault", ["cut", "expire"])
def test_a_watch_that_breaks_goes_on(world: World, proxy: FaultProxy, fault: str) -> None:
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job)) as task:
            await until(lambda: "Running" in told.text and proxy.calls[WATCHES])
            while not await in_thread(getattr(proxy, fault)):  # noqa: ASYNC110  # not open yet
                await asyncio.sleep(0.1)
            await in_thread(end, job)
            return await asyncio.wait_for(task, 60)

    proxy.add(Fault(resource="pods", code=403))  # only the watch of jobs
    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
    assert proxy.calls[LISTS] == (1 if fault == "cut" else 2)
    assert "waiting for the cluster" not in told.text


def test_a_job_that_ended_while_the_cluster_was_away_is_found_at_its_return(
    world: World, proxy: FaultProxy
) -> None:
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job)) as task:
            await until(lambda: "Running" in told.text)
            await in_thread(proxy.away)
            await in_thread(end, job)
            await until(lambda: "waiting for the cluster" in told.text)
            await in_thread(proxy.back)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
    assert told.text.count("waiting for the cluster") == 1
    assert told.text.count("The cluster answers again.") == 1


def test_where_no_watch_is_allowed_the_jobs_are_listed_now_and_then(
    world: World, proxy: FaultProxy
) -> None:
    proxy.add(Fault(verb="watch", code=403))
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job, poll_interval=1.0)) as task:
            await until(lambda: "every 1 s" in told.text)
            await in_thread(end, job)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
    assert told.text.count("every 1 s") == 1


def test_a_right_to_watch_that_comes_back_is_told_and_new_tasks_hear_nothing_of_it(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_HELD_SECONDS", 0.5)
    fault = proxy.add(Fault(verb="watch", code=403))
    job = waiting_job(world)
    told, told_later = Told(), Told()

    async def run() -> None:
        order = order_for(world, job, poll_interval=1.0)
        async with watched(told, order):
            await until(lambda: "every 1 s" in told.text)
            await in_thread(proxy.remove, fault)
            await until(lambda: "can be watched again" in told.text)
            async with watched(told_later, order):
                await until(lambda: "Running" in told_later.text)

    asyncio.run(run())
    assert told.text.count("can be watched again") == 1
    assert "annot watch" not in told_later.text


def test_where_no_list_is_allowed_the_job_is_asked_for(world: World, proxy: FaultProxy) -> None:
    proxy.add(Fault(verb="list", code=403))
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job, poll_interval=1.0)) as task:
            await until(lambda: "Running" in told.text)
            await in_thread(end, job)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED
    assert told.text.count("every 1 s") == 1


def test_where_nothing_is_allowed_the_wait_ends_with_what_the_cluster_says(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LONGEST_FORBIDDEN", 1.0)
    monkeypatch.setattr(watcher, "_ASK_AGAIN", 0.5)
    proxy.add(Fault(resource="pytorchjobs", code=403))
    outcome = asyncio.run(Told().watch(order_for(world, waiting_job(world))))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "Refused")
    assert not outcome.retryable
    assert "the fault proxy injects this error" in outcome.words


def test_a_server_that_forbids_everything_for_a_while_is_borne(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like one that has just started and has not loaded its rules yet."""
    monkeypatch.setattr(watcher, "_ASK_AGAIN", 0.5)
    job = waiting_job(world)
    fault = proxy.add(Fault(code=403))
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job, poll_interval=1.0)) as task:
            await until(lambda: proxy.calls[GETS] >= 2)
            await in_thread(proxy.remove, fault)
            await until(lambda: "Running" in told.text)
            await in_thread(end, job)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED


def test_a_connection_that_cannot_be_used_for_a_while_is_borne(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be used when the job was created: a secrets backend is away, or a file is being
    written."""
    monkeypatch.setattr(watcher, "_ASK_AGAIN", 0.5)
    job = waiting_job(world)
    told = Told()
    file = proxy.kubeconfig
    content = file.read_bytes()
    file.write_text("{")

    async def run() -> Outcome:
        async with watched(told, order_for(world, job, poll_interval=1.0)) as task:
            await until(lambda: told.lines or task.done())
            assert not task.done(), task.result()
            await in_thread(file.write_bytes, content)
            await until(lambda: "Running" in told.text)
            await in_thread(end, job)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED


@pytest.mark.parametrize("verbs", [("list", "watch"), ("*",)], ids=["list and watch", "all"])
def test_rights_that_are_taken_away_meanwhile_end_nothing_and_hide_no_end(
    world: World, proxy: FaultProxy, verbs: tuple[str, ...]
) -> None:
    job = waiting_job(world)
    told = Told()

    def take_away() -> None:
        for verb in verbs:
            proxy.add(Fault(verb=verb, resource="pytorchjobs", code=403))
        while not proxy.cut():
            time.sleep(0.1)

    async def run() -> Outcome:
        async with watched(told, order_for(world, job, poll_interval=1.0)) as task:
            await until(lambda: "Running" in told.text and proxy.calls[WATCHES])
            await in_thread(take_away)
            await until(lambda: "every 1 s" in told.text)
            if "*" in verbs:
                await until(lambda: proxy.calls[GETS] > 2)
                await in_thread(proxy.clear)
            await in_thread(end, job)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_server_in_trouble_is_borne(world: World, proxy: FaultProxy, code: int) -> None:
    proxy.add(Fault(verb="list", code=code, times=3))
    proxy.add(Fault(verb="watch", code=code, times=3))
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job)) as task:
            await until(lambda: "Running" in told.text)
            await in_thread(end, job)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED


def test_a_connection_that_died_in_silence_is_noticed(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WATCH_SECONDS", 2.0)
    monkeypatch.setattr(credentials, "WATCH_GRACE", 1.0)
    monkeypatch.setattr(credentials, "ANSWER_SECONDS", 3.0)
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job)) as task:
            await until(lambda: "Running" in told.text)
            await in_thread(proxy.freeze)
            await in_thread(end, job)
            await until(lambda: "waiting for the cluster" in told.text)
            await in_thread(proxy.thaw)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()).verdict is Verdict.SUCCEEDED


def test_evidence_that_cannot_be_had_changes_no_verdict(world: World, proxy: FaultProxy) -> None:
    for resource in ("pods", "pods/log", "events"):
        proxy.add(Fault(resource=resource, code=403))
    job = start(world, pytorch_job({"Master": replica("pytorch", "exit 3")}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.FAILED)
    assert outcome.pods == ()


def test_the_deadline_holds_while_the_cluster_is_away(world: World, proxy: FaultProxy) -> None:
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        deadline = datetime.now(timezone.utc) + timedelta(seconds=6)
        async with watched(told, order_for(world, job, deadline=deadline)) as task:
            await until(lambda: "Running" in told.text)
            await in_thread(proxy.away)
            return await asyncio.wait_for(task, 60)

    outcome = asyncio.run(run())
    assert (outcome.verdict, outcome.reason) == (Verdict.TIMED_OUT, "ExecutionTimeout")
    assert outcome.phase is Phase.RUNNING


def test_a_cluster_that_is_away_for_very_long_is_not_waited_for(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LONGEST_AWAY", 15.0)
    monkeypatch.setattr(operations, "PATIENCE", 1.0)
    job = waiting_job(world)
    told = Told()

    async def run() -> Outcome:
        async with watched(told, order_for(world, job)) as task:
            await until(lambda: "Running" in told.text)
            await in_thread(proxy.away)
            return await asyncio.wait_for(task, 60)

    outcome = asyncio.run(run())
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "Unreachable")
    assert outcome.retryable
    assert "refuses connections" in outcome.words


def test_a_feed_is_kept_for_the_next_and_ends_when_nobody_comes(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "LINGER_SECONDS", 1.0)
    first, second = waiting_job(world, "first"), waiting_job(world, "second")

    async def run() -> None:
        for job in (first, second):
            async with watched(Told(), order_for(world, job)) as task:
                await in_thread(job.becomes, "Running")
                await in_thread(end, job)
                await asyncio.wait_for(task, 60)
        assert proxy.calls[WATCHES] == 1
        hub = feeds.hub_of("cluster")
        await until(lambda: not hub.is_busy, 10)

    asyncio.run(run())


def test_a_fault_of_ours_in_the_evidence_changes_no_verdict(
    world: World,
    connection: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read_pod(*_: object) -> None:
        raise TypeError("never thought of")

    monkeypatch.setattr(evidence, "read_pod", read_pod)
    job = start(world, pytorch_job({"Master": replica("pytorch", "exit 0")}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.phase) == (Verdict.SUCCEEDED, Phase.SUCCEEDED)
    assert "never thought of" in caplog.text


def test_pods_that_could_not_be_listed_are_listed_later(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "PATIENCE", 0.1)
    proxy.add(Fault(verb="list", resource="pods", code=503, times=4))
    job = waiting_job(world)
    told = Told()

    async def run() -> None:
        async with watched(told, order_for(world, job, poll_interval=1.0)):
            await until(lambda: told.pods, 30)

    asyncio.run(run())
