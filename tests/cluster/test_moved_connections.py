"""Connections that lead to another cluster from some moment on"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain import TrainingJobSensor
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.hooks import training_job_async
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import read_state
from airflow_kftrain.kinds import PYTORCH_JOB
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.ownership import TaskState
from airflow_kftrain.triggers.training_job import TrainingJobTrigger
from airflow_kftrain.watching import streams, watcher
from airflow_kftrain.watching.ending import end_job
from airflow_kftrain.watching.sweeping import Sweeper
from kftrain_local.faults.command import FaultProxy, running
from tests.cluster.jobs import pytorch_job, replica, until_a_file
from tests.cluster.operated import Instance, Operated, execute, operator, resume
from tests.cluster.targets import LocalTarget, Target
from tests.cluster.watched import until
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest


@pytest.fixture(scope="module")
def second_target() -> Iterator[Target]:
    with LocalTarget() as target:
        yield target


@pytest.fixture
def other(world: World, second_target: Target) -> Iterator[World]:
    """The same namespace of a second cluster."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}}
    second_target.api.create(namespace).required("a namespace")
    yield World(second_target, world.namespace)
    second_target.api.delete(namespace)


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


@pytest.fixture(params=["edited", "rewritten"])
def move(
    request: pytest.FixtureRequest,
    operated: Operated,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[World], None]:
    """Makes the connection lead to the cluster of a world: it is edited, or its kubeconfig is
    rewritten in place."""
    file = tmp_path / "kubeconfig"

    def edit(to: World) -> None:
        operated.connect(str(to.target.kubeconfig), monkeypatch)

    def rewrite(to: World) -> None:
        shutil.copyfile(to.target.kubeconfig, file)

    if request.param == "edited":
        return edit
    rewrite(world)
    operated.connect(str(file), monkeypatch)
    return rewrite


class Deferred:
    """A task that has submitted its job and waits for the event of its trigger."""

    def __init__(self, script: str, run: str) -> None:
        self.instance = Instance()
        self.instance.run_id = run
        self.task = operator(script, deferrable=True)
        with pytest.raises(exceptions().TaskDeferred) as caught:
            execute(self.task, self.instance)
        self.request: Any = caught.value
        self.lines: list[str] = []

    async def event(self) -> dict[str, Any]:
        """The event of the trigger, recreated from what Airflow stores of it."""
        _, arguments = self.request.trigger.serialize()
        trigger: Any = TrainingJobTrigger(**json.loads(json.dumps(arguments)))
        trigger._tell = self.lines.append
        async for event in trigger.run():
            return dict(json.loads(json.dumps(event.payload)))
        raise AssertionError("no event")

    def resume(self, event: dict[str, Any]) -> Any:
        given = {**(self.request.kwargs or {}), "event": event}
        return resume(self.task, self.instance, self.request.method_name, given)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@asynccontextmanager
async def watching(deferred: Deferred) -> AsyncIterator[asyncio.Task[dict[str, Any]]]:
    task = asyncio.create_task(deferred.event())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def jobs(world: World) -> list[Manifest]:
    return world.listed("PyTorchJob", "kubeflow.org/v1")


def make_namesake(world: World, other: World) -> None:
    """A job that differs from the one of `world` only in its uid."""
    (job,) = jobs(world)
    metadata = {key: job["metadata"][key] for key in ("name", "labels", "annotations")}
    same = {key: job[key] for key in ("apiVersion", "kind", "spec")}
    other.create({**same, "metadata": metadata})


def nothing_was_touched(*worlds: World) -> bool:
    """One job each, and nobody has deleted it."""
    found = [job["metadata"] for each in worlds for job in jobs(each)]
    return len(found) == len(worlds) and not any("deletionTimestamp" in each for each in found)


async def seen(deferred: Deferred, words: str, task: asyncio.Task[Any]) -> None:
    """Waits for a line in the task's log."""
    await until(lambda: words in deferred.text or task.done())
    assert words in deferred.text, task.result()


def verdict(event: dict[str, Any]) -> Verdict:
    return Outcome.from_dict(event).verdict


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What operators and triggers have logged."""
    return lambda: "".join(capsys.readouterr())


def test_the_jobs_of_the_old_and_of_the_new_cluster_are_watched_at_once(
    world: World,
    other: World,
    move: Callable[[World], None],
    tmp_path: Path,
    log: Callable[[], str],
) -> None:
    """The connection is edited between two tasks, while the first one still trains."""
    go = tmp_path / "go"

    async def run() -> list[dict[str, Any]]:
        first = await asyncio.to_thread(Deferred, until_a_file(go), "one")
        async with watching(first) as one:
            await seen(first, "Running", one)
            move(other)
            second = await asyncio.to_thread(Deferred, until_a_file(go), "two")
            async with watching(second) as two:
                await seen(second, "Running", two)
                go.touch()
                events = await asyncio.wait_for(asyncio.gather(one, two), 60)
                for deferred, event in zip((first, second), events, strict=True):
                    await asyncio.to_thread(deferred.resume, event)
                return list(events)

    assert [verdict(event) for event in asyncio.run(run())] == [Verdict.SUCCEEDED] * 2
    (left,) = jobs(world)
    assert jobs(other) == []
    name = f"PyTorchJob {world.namespace}/{left['metadata']['name']}"
    assert f"{name} was left on the cluster at http://127.0.0.1:" in log()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_job_async, "_READ_AGAIN_SECONDS", 0.5)
    monkeypatch.setattr(streams, "TOLD_AFTER_SECONDS", 1.0)


@pytest.mark.usefixtures("quick")
def test_a_triggerer_that_knows_only_the_new_cluster_waits_for_the_old_one(
    world: World, other: World, move: Callable[[World], None], tmp_path: Path
) -> None:
    """It was started after the connection was edited. On the new cluster there is another job of
    the same name, which it must not touch."""
    go = tmp_path / "go"
    deferred = Deferred(until_a_file(go), "one")
    make_namesake(world, other)
    move(other)

    async def run() -> dict[str, Any]:
        async with watching(deferred) as one:
            await seen(deferred, "waiting for the cluster", one)
            go.touch()
            assert await asyncio.wait({one}, timeout=3) == (set(), {one})
            move(world)
            return await asyncio.wait_for(one, 60)

    assert verdict(asyncio.run(run())) is Verdict.SUCCEEDED
    said = " ".join(deferred.text.split())  # its lines are wrapped
    assert (
        "where the job was submitted: Airflow connection kubernetes_default now leads to " in said
    )
    assert "Succeeded" in deferred.lines[-1]


@pytest.mark.usefixtures("quick")
def test_who_waits_in_vain_for_the_old_cluster_says_so_and_touches_nothing(
    world: World,
    other: World,
    operated: Operated,
    monkeypatch: pytest.MonkeyPatch,
    log: Callable[[], str],
) -> None:
    monkeypatch.setattr(watcher, "LONGEST_AWAY", 2.0)
    deferred = Deferred("sleep 300", "one")
    make_namesake(world, other)
    operated.connect(str(other.target.kubeconfig), monkeypatch)
    event = asyncio.run(deferred.event())
    outcome = Outcome.from_dict(event)
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "Unreachable")
    assert outcome.retryable
    assert "Restore the connection until the job has ended" in outcome.words
    with pytest.raises(exceptions().AirflowException, match="could not be watched for too long"):
        deferred.resume(event)
    assert "was left on the cluster at" in log()
    assert nothing_was_touched(world, other)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("when", ["before the trigger runs", "while the trigger runs"])
def test_another_address_of_the_same_cluster_fails_nothing(
    world: World, operated: Operated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, when: str
) -> None:
    go = tmp_path / "go"

    async def run(proxy: FaultProxy) -> dict[str, Any]:
        deferred = await asyncio.to_thread(Deferred, until_a_file(go), "one")
        if when == "before the trigger runs":
            operated.connect(str(world.target.kubeconfig), monkeypatch)
        async with watching(deferred) as one:
            await seen(deferred, "Running", one)
            if when == "before the trigger runs":
                assert "waiting for the cluster" not in deferred.text
            await asyncio.to_thread(proxy.away)
            operated.connect(str(world.target.kubeconfig), monkeypatch)
            go.touch()
            event = await asyncio.wait_for(one, 60)
            await asyncio.to_thread(deferred.resume, event)
            return event

    with running(FaultProxy(world.target.kubeconfig)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        assert verdict(asyncio.run(run(proxy))) is Verdict.SUCCEEDED
    assert jobs(world) == []


# ----- kills


async def killed(order: WatchOrder) -> bool:
    async def look_up() -> TaskState:
        return TaskState(True, "failed")

    return await end_job(order, look_up)


def deferred_order(deferred: Deferred) -> WatchOrder:
    return WatchOrder.from_dict(deferred.request.trigger.order)


def test_a_kill_ends_the_job_on_the_old_cluster_if_that_is_watched(
    world: World, other: World, move: Callable[[World], None]
) -> None:
    async def run() -> bool:
        deferred = await asyncio.to_thread(Deferred, "sleep 300", "one")
        async with watching(deferred) as one:
            await seen(deferred, "Running", one)
            move(other)
            return await killed(deferred_order(deferred))

    assert asyncio.run(run())
    eventually(lambda: not jobs(world))


def test_a_kill_that_cannot_reach_the_old_cluster_leaves_the_new_one_alone(
    world: World,
    other: World,
    move: Callable[[World], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    deferred = Deferred("sleep 300", "one")
    make_namesake(world, other)
    move(other)
    assert not asyncio.run(killed(deferred_order(deferred)))
    assert "whose task has ended: cannot reach the cluster at" in caplog.text
    assert nothing_was_touched(world, other)


def test_a_kill_follows_a_cluster_to_its_new_address(
    world: World, operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(FaultProxy(world.target.kubeconfig)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        deferred = Deferred("sleep 300", "one")
    operated.connect(str(world.target.kubeconfig), monkeypatch)
    assert asyncio.run(killed(deferred_order(deferred)))
    eventually(lambda: not jobs(world))


def test_a_worker_that_gives_up_leaves_the_new_cluster_alone(
    world: World, other: World, move: Callable[[World], None], log: Callable[[], str]
) -> None:
    """It knows its order only from the XCom."""
    deferred = Deferred("sleep 300", "one")
    make_namesake(world, other)
    move(other)
    with pytest.raises(exceptions().TaskDeferralError):
        resume(deferred.task, deferred.instance, "__fail__", {"error": "Trigger failure"})
    assert "was left on the cluster at" in log()
    assert nothing_was_touched(world, other)


# ----- sweepers and sensors


def test_the_sweeper_of_the_old_cluster_goes_on_there(
    world: World, other: World, move: Callable[[World], None]
) -> None:
    deferred = Deferred("sleep 300", "one")
    order = deferred_order(deferred)
    (job,) = jobs(world)

    async def look_up(*_: object) -> TaskState:
        return TaskState(True, "failed")

    async def run() -> None:
        hook = AsyncTrainingJobHook(order.connection, order.cluster)
        await hook.connect()
        move(other)
        sweeper = Sweeper(hook, look_up=look_up, grace=timedelta(0), pause=0.05)
        state = read_state(PYTORCH_JOB, job)
        sweeper.consider(PYTORCH_JOB, world.namespace, order.job.name, state)
        await until(lambda: not jobs(world))

    asyncio.run(run())


def test_a_sensor_looks_where_the_connection_leads(
    world: World, other: World, move: Callable[[World], None]
) -> None:
    """Even if its triggerer knew another cluster by the same connection before."""

    def sensor() -> Any:
        made = TrainingJobSensor(
            task_id="wait",
            kind="PyTorchJob",
            name="job",
            namespace=world.namespace,
            deferrable=True,
        )
        with pytest.raises(exceptions().TaskDeferred) as caught:
            execute(made, Instance())  # type: ignore[arg-type]
        return caught.value.trigger

    async def ended(trigger: Any) -> Outcome:
        async for event in trigger.run():
            return Outcome.from_dict(event.payload)
        raise AssertionError("no event")

    async def run() -> list[Outcome]:
        world.create(pytorch_job({"Master": replica("pytorch", "true")}))
        first = await asyncio.wait_for(ended(await asyncio.to_thread(sensor)), 60)
        move(other)
        other.create(pytorch_job({"Master": replica("pytorch", "exit 3")}))
        second = await asyncio.wait_for(ended(await asyncio.to_thread(sensor)), 60)
        return [first, second]

    verdicts = [outcome.verdict for outcome in asyncio.run(run())]
    assert verdicts == [Verdict.SUCCEEDED, Verdict.FAILED]
