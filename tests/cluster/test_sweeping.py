"""Sweeping jobs that nobody looks after"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import Owner
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import read_state
from airflow_kftrain.kinds import PYTORCH_JOB
from airflow_kftrain.manifests.identity import UNATTENDED_ANNOTATION
from airflow_kftrain.ownership import TaskState
from airflow_kftrain.watching.sweeping import LookUp, Sweeper
from kftrain_local.faults.command import Fault, FaultProxy, running
from tests.cluster.owned import CONNECTION, FIRST, RETRY, adopt, connection, owned_job
from tests.cluster.world import Job, World

FAILED = TaskState(True, "failed")
DEFERRED = TaskState(True, "deferred")
SOON = 15.0


@pytest.fixture(autouse=True)
def reachable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*connection(world.target.kubeconfig, world.namespace))
    monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", FIRST.instance)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    import airflow.settings  # noqa: F401  # it configures logging, which must not happen later

    caplog.set_level("INFO", "airflow_kftrain")
    return caplog


class Airflow:
    """Returns the states of tasks."""

    def __init__(self, states: Mapping[str, TaskState | Exception]) -> None:
        self.states = dict(states)
        self.asked: list[str] = []

    async def look_up(
        self, dag: str, run: str, task: str, map_index: int, looped: bool
    ) -> TaskState:
        assert (dag, run, map_index) == (FIRST.dag_id, FIRST.run_id, FIRST.map_index)
        assert not looped
        self.asked.append(task)
        state = self.states[task]
        if isinstance(state, Exception):
            raise state
        return state


@asynccontextmanager
async def sweeper(
    look_up: Airflow | LookUp, grace: float = 0.0, pause: float = 0.05
) -> AsyncIterator[Sweeper]:
    asked = look_up.look_up if isinstance(look_up, Airflow) else look_up
    hook = AsyncTrainingJobHook(CONNECTION)
    made = Sweeper(hook, look_up=asked, grace=timedelta(seconds=grace), pause=pause)
    yield made
    if made._work is not None:
        # A cancelled call leaves its connection to be closed.
        await asyncio.wait({made._work}, timeout=60)


def seen(sweeper: Sweeper, job: Job, *, soon: bool = False) -> None:
    """As a feed reports a job."""
    state = read_state(PYTORCH_JOB, job.now())
    sweeper.consider(PYTORCH_JOB, job.world.namespace, job.name, state, soon=soon)


async def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def of_task(task: str) -> Owner:
    return FIRST._replace(task_id=task, ti_id=f"ti-{task}")


def test_an_orphan_is_deleted_and_told_of(world: World, log: pytest.LogCaptureFixture) -> None:
    job = world.start(owned_job())
    airflow = Airflow({"train": FAILED})

    async def work() -> None:
        async with sweeper(airflow) as sweeping:
            seen(sweeping, job)
            await until(job.is_gone)

    run(work)
    assert (
        f"Deleted PyTorchJob {world.namespace}/{job.name}, an orphan: task train of DAG nightly, "
        "run manual__1, is failed."
    ) in log.text


def test_two_triggerers_may_sweep_the_same_job(world: World) -> None:
    job = world.start(owned_job())

    async def work() -> None:
        gone = TaskState(exists=False)
        async with (
            sweeper(Airflow({"train": gone})) as one,
            sweeper(Airflow({"train": gone})) as two,
        ):
            seen(one, job)
            seen(two, job)
            await until(job.is_gone)
            await asyncio.sleep(0.5)  # the slower one finds it gone

    run(work)


@pytest.mark.parametrize(
    ("owner", "annotations", "state"),
    [
        pytest.param(FIRST, {}, DEFERRED, id="its task is deferred, elsewhere"),
        pytest.param(FIRST, {}, TaskState(True, "running"), id="a worker waits for it"),
        pytest.param(FIRST, {}, TaskState(True, "up_for_retry"), id="a retry will adopt it"),
        pytest.param(FIRST, {}, TaskState(True, None), id="its task may start at any moment"),
        pytest.param(FIRST, {}, OSError("Airflow is down"), id="Airflow does not say"),
        pytest.param(FIRST, {UNATTENDED_ANNOTATION: "true"}, FAILED, id="nobody was to wait"),
        pytest.param(FIRST._replace(instance="another"), {}, FAILED, id="of another Airflow"),
    ],
)
def test_a_job_stays(
    world: World, owner: Owner, annotations: dict[str, str], state: TaskState | Exception
) -> None:
    """The job behind it, an orphan, is deleted: then this one was checked."""
    job = world.start(owned_job(owner=owner, **annotations))
    orphan = world.start(owned_job(owner=of_task("orphan")))
    airflow = Airflow({"train": state, "orphan": FAILED})

    async def work() -> None:
        async with sweeper(airflow) as sweeping:
            seen(sweeping, job)
            seen(sweeping, orphan)
            await until(orphan.is_gone)

    run(work)
    assert "deletionTimestamp" not in job.now()["metadata"]


def test_a_job_that_was_adopted_since_its_task_was_asked_stays(world: World) -> None:
    job = world.start(owned_job())

    async def work() -> None:
        asked = asyncio.Event()
        answer = asyncio.Event()

        async def look_up(*_: object) -> TaskState:
            asked.set()
            await answer.wait()
            return FAILED

        async with sweeper(look_up) as sweeping:
            seen(sweeping, job)
            await asked.wait()
            await asyncio.to_thread(adopt, job, RETRY)
            answer.set()
            await asyncio.sleep(1)

    run(work)
    assert "deletionTimestamp" not in job.now()["metadata"]


def test_a_job_that_has_ended_is_not_even_asked_about(world: World) -> None:
    job = world.start(owned_job("true"))
    job.succeeds()
    airflow = Airflow({"train": FAILED})

    async def work() -> None:
        async with sweeper(airflow) as sweeping:
            seen(sweeping, job)
            await asyncio.sleep(0.5)

    run(work)
    assert airflow.asked == []
    assert not job.is_gone()


def test_a_young_job_has_its_grace(world: World) -> None:
    job = world.start(owned_job())
    airflow = Airflow({"train": FAILED})

    async def work() -> None:
        async with sweeper(airflow, grace=3.0) as sweeping:
            seen(sweeping, job)
            await asyncio.sleep(0.5)
            assert airflow.asked == []
            await until(job.is_gone)

    run(work)


def test_a_job_for_which_somebody_waits_by_then_is_forgotten(world: World) -> None:
    """A feed sees a new job before its trigger starts."""
    job = world.start(owned_job())
    orphan = world.start(owned_job(owner=of_task("orphan")))
    airflow = Airflow({"train": FAILED, "orphan": FAILED})

    async def work() -> None:
        async with sweeper(airflow) as sweeping:
            seen(sweeping, job)
            seen(sweeping, orphan)
            sweeping.forget(PYTORCH_JOB, world.namespace, job.name)
            await until(orphan.is_gone)

    run(work)
    assert airflow.asked == ["orphan"]


def test_questions_are_few_and_spread(world: World) -> None:
    jobs = [world.start(owned_job(owner=of_task(f"t{number}"))) for number in range(8)]
    airflow = Airflow({f"t{number}": DEFERRED for number in range(8)})

    async def work() -> None:
        async with sweeper(airflow, pause=0.4) as sweeping:
            for _ in range(5):
                for job in jobs:
                    seen(sweeping, job)
            seen(sweeping, jobs[5], soon=True)
            await asyncio.sleep(1.1)
            assert len(airflow.asked) <= 3
            await until(lambda: len(airflow.asked) == 8)
            await asyncio.sleep(0.6)

    run(work)
    assert sorted(airflow.asked) == sorted(airflow.states)


def test_what_was_left_by_a_trigger_here_goes_first(world: World) -> None:
    jobs = {task: world.start(owned_job(owner=of_task(task))) for task in ("a", "b", "left")}
    airflow = Airflow(dict.fromkeys(jobs, DEFERRED))

    async def work() -> None:
        async with sweeper(airflow) as sweeping:
            seen(sweeping, jobs["a"])
            seen(sweeping, jobs["b"])
            seen(sweeping, jobs["left"], soon=True)
            await until(lambda: len(airflow.asked) == 3)

    run(work)
    assert airflow.asked == ["left", "a", "b"]


def test_an_airflow_that_does_not_answer_is_asked_again(world: World) -> None:
    job = world.start(owned_job())
    airflow = Airflow({"train": OSError("Airflow is down")})

    async def work() -> None:
        async with sweeper(airflow) as sweeping:
            seen(sweeping, job)
            await until(lambda: len(airflow.asked) > 1)
            airflow.states["train"] = FAILED
            await until(job.is_gone)

    run(work)


def test_a_cluster_that_was_away_is_swept_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.start(owned_job())
    state = read_state(PYTORCH_JOB, job.now())
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.0)

    async def work(proxy: FaultProxy) -> None:
        async with sweeper(Airflow({"train": FAILED})) as sweeping:
            proxy.away()
            sweeping.consider(PYTORCH_JOB, world.namespace, job.name, state)
            await asyncio.sleep(1)
            proxy.back()
            await until(job.is_gone)

    with running(FaultProxy(world.target.kubeconfig)) as proxy:
        monkeypatch.setenv(*connection(proxy.kubeconfig, world.namespace))
        run(lambda: work(proxy))


def test_a_right_that_is_missing_does_not_stop_the_sweeping_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    job = world.start(owned_job())
    orphan = world.start(owned_job(owner=of_task("orphan")))
    refused = Fault(verb="delete", code=403, times=1)

    async def work() -> None:
        async with sweeper(Airflow({"train": FAILED, "orphan": FAILED})) as sweeping:
            seen(sweeping, job)
            seen(sweeping, orphan)
            await until(orphan.is_gone)

    with running(FaultProxy(world.target.kubeconfig, refused)) as proxy:
        monkeypatch.setenv(*connection(proxy.kubeconfig, world.namespace))
        run(work)
    assert f"Cannot sweep PyTorchJob {world.namespace}/{job.name}: cannot delete" in log.text
    assert not job.is_gone()


def test_without_a_name_of_its_own_an_airflow_sweeps_nothing_and_says_so_once(
    world: World, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", "")
    monkeypatch.delenv("AIRFLOW__API__BASE_URL", raising=False)
    owners = [of_task(task)._replace(instance="localhost:8080") for task in "ab"]
    jobs = [world.start(owned_job(owner=owner)) for owner in owners]
    airflow = Airflow({"a": FAILED, "b": FAILED})

    async def work() -> None:
        async with sweeper(airflow) as sweeping:
            for job in jobs:
                seen(sweeping, job)
            await until(lambda: "configure [kftrain] instance" in log.text)
            await asyncio.sleep(0.5)

    run(work)
    assert airflow.asked == []
    assert not any(job.is_gone() for job in jobs)
    assert log.text.count("configure [kftrain] instance") == 1


def test_a_job_that_its_trigger_has_just_left_is_not_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """`dags test` has no name of its own, and its event loop ends with each trigger."""
    monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", "")
    monkeypatch.delenv("AIRFLOW__API__BASE_URL", raising=False)
    job = world.start(owned_job())

    async def work() -> None:
        async with sweeper(Airflow({}), pause=30.0) as sweeping:
            seen(sweeping, job, soon=True)
            await asyncio.sleep(0.2)

    run(work)
    assert "may be an orphan" not in log.text


def test_it_leaves_the_log_of_the_task_alone_that_happened_to_come_by(world: World) -> None:
    """A triggerer assigns log lines to tasks by a variable of their context."""
    from contextvars import ContextVar

    trigger = ContextVar("trigger", default="none")
    contexts: list[str] = []
    job = world.start(owned_job())

    async def work() -> None:
        async def look_up(*_: object) -> TaskState:
            contexts.append(trigger.get())
            return FAILED

        async with sweeper(look_up) as sweeping:
            trigger.set("of another task")
            seen(sweeping, job)
            await until(job.is_gone)

    run(work)
    assert contexts == ["none"]
