"""Metrics: what a triggerer's watch of real jobs sends to statsd"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics import stats as airflow_stats
from airflow.sdk.observability.metrics import stats_utils

from airflow_kftrain import airflow_compat, stats
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from kftrain_local.faults.command import Fault, FaultProxy
from tests.cluster.jobs import pytorch_job, replica, until_a_file
from tests.cluster.statsd import Receiver
from tests.cluster.watched import Told, order_for, start, until, watched
from tests.cluster.world import World


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Airflow's own client sends to it."""
    receiver = Receiver()
    for name, value in receiver.options.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
    monkeypatch.setattr(stats, "GAUGE_SECONDS", 0.2)
    stats._jobs.clear()
    _initialize()
    yield receiver
    if client := getattr(airflow_stats._backend, "statsd", None):
        client.close()  # Airflow never does
    monkeypatch.undo()
    _initialize()
    receiver.close()


def _initialize() -> None:
    """As a worker does when it starts."""
    factory = stats_utils.get_stats_factory()
    airflow_stats.initialize(factory=factory, export_legacy_names=False)
    stats._sender.cache_clear()


async def _store(_: dict[str, Any]) -> None:
    """The XCom is no part of this."""


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize(
    ("code", "end"),
    [(0, "succeeded.none"), (3, "failed.user")],
    ids=["success", "failure"],
)
def test_a_job_from_its_start_to_its_end(
    world: World, statsd: Receiver, tmp_path: Path, code: int, end: str
) -> None:
    sign = tmp_path / "end"
    script = f"{until_a_file(sign)}; sleep 1; exit {code}"
    job = start(world, pytorch_job({"Master": replica("pytorch", script)}))
    gauge = f"jobs.PyTorchJob.Running.{airflow_compat.hostname().replace('.', '__')}"

    async def run() -> Outcome:
        async with watched(Told(), order_for(world, job), store=_store, sweeps=True) as task:
            await until(lambda: statsd.values(gauge)[-1:] == ["1|g"])
            # Of jobs and of pods.
            await until(lambda: statsd.counts("api_calls")["watch.200"] >= 2)
            sign.touch()
            await task
            await until(lambda: statsd.values(gauge)[-1:] == ["0|g"])
        return task.result()

    outcome = asyncio.run(run())
    assert outcome.verdict.value in end
    assert statsd.counts("job.finish") == {f"PyTorchJob.{end}": 1}
    assert set(statsd.values(gauge)) == {"1|g", "0|g"}
    (running,) = statsd.values("job.running_duration.PyTorchJob")
    found = re.fullmatch(r"([0-9.]+)\|ms", running)
    assert found is not None
    assert 1000 <= float(found[1]) < 60_000
    calls = statsd.counts("api_calls")
    assert calls["list.200"] >= 2
    assert {name.rpartition(".")[2] for name in calls} == {"200"}
    assert not statsd.counts("watch.reconnect")


@pytest.mark.usefixtures("connection")
def test_a_sensor_counts_no_job(world: World, statsd: Receiver) -> None:
    """The task that has submitted the job does. Its calls are calls."""
    job = start(world, pytorch_job({"Master": replica("pytorch", "sleep 1")}))
    asyncio.run(Told().watch(order_for(world, job, owner=""), sweeps=True))
    assert {name.partition(".")[0] for name, _ in statsd.read()} == {"api_calls"}


@pytest.mark.parametrize(("fault", "error"), [("cut", "Unreachable"), ("expire", "Expired")])
def test_watches_that_break(
    world: World, proxy: FaultProxy, statsd: Receiver, fault: str, error: str
) -> None:
    job, told = start(world, pytorch_job({"Master": replica("pytorch", "sleep 300")})), Told()
    proxy.add(Fault(resource="pods", code=403))  # only the watch of jobs is open

    async def run() -> None:
        async with watched(told, order_for(world, job)):
            await until(lambda: "Running" in told.text and proxy.calls["watch", "pytorchjobs"])
            while not await asyncio.to_thread(getattr(proxy, fault)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await until(lambda: statsd.counts("watch.reconnect"))

    asyncio.run(run())
    assert statsd.counts("watch.reconnect") == {f"PyTorchJob.{error}": 1}
    assert statsd.counts("api_calls")["list.403"] >= 1


def test_calls_without_a_response(world: World, proxy: FaultProxy, statsd: Receiver) -> None:
    job, told = start(world, pytorch_job({"Master": replica("pytorch", "sleep 300")})), Told()

    async def run() -> None:
        async with watched(told, order_for(world, job)):
            await until(lambda: "Running" in told.text)
            await until(lambda: statsd.counts("api_calls")["watch.200"])
            await asyncio.to_thread(proxy.away)
            await until(lambda: statsd.counts("api_calls")["list.none"])
            await asyncio.to_thread(proxy.back)

    asyncio.run(run())
    assert statsd.counts("watch.reconnect")


@pytest.mark.usefixtures("connection")
def test_a_client_that_cannot_be_made_ends_no_task(
    world: World, statsd: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is configured, and is not even a class."""
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_CUSTOM_CLIENT_PATH", "os.path.join")
    _initialize()
    job = start(world, pytorch_job({"Master": replica("pytorch")}))
    outcome = asyncio.run(Told().watch(order_for(world, job), store=_store, sweeps=True))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert statsd.read() == []
