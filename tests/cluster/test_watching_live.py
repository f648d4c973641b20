"""Watching: what people see of a job while it runs, and a job that hangs."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain.manifests.identity import OWNER_ANNOTATION
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.specs.timeouts import Timeouts
from airflow_kftrain.watching import display, leader_log
from kftrain_local.faults.command import FaultProxy
from tests.cluster.jobs import pytorch_job, replica, until_a_file
from tests.cluster.watched import OWNER, Told, order_for, start, until, watched
from tests.cluster.world import Job, World

LIMIT = Timeouts(silence=timedelta(seconds=4))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads logs and writes the XCom after a second, not after a minute."""
    monkeypatch.setattr(leader_log, "PROGRESS_SECONDS", 1.0)
    monkeypatch.setattr(leader_log, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(display, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(display, "LONGEST_PAUSE", 1.0)


class Shown:
    """What is written into the XCom `kftrain`."""

    def __init__(self, file: Path | None = None) -> None:
        """The file is created when step 2 of a job that runs is shown."""
        self.values: list[dict[str, Any]] = []
        self._file = file

    async def __call__(self, value: dict[str, Any]) -> None:
        self.values.append(json.loads(json.dumps(value)))
        if self._file and 2 in self.steps and "replicas" in value:
            self._file.touch()

    @property
    def steps(self) -> list[int]:
        return [value["progress"]["step"] for value in self.values if "progress" in value]


def says(step: int, loss: float) -> str:
    line = json.dumps({"kftrain": {"step": step, "total": 4, "metrics": {"loss": loss}}})
    return f"echo 'INFO {line}'"


def owned(world: World, master: str, worker: str = "sleep 300") -> Job:
    roles = {"Master": replica("pytorch", master), "Worker": replica("pytorch", worker)}
    job = pytorch_job(roles)
    job["metadata"]["annotations"] = {OWNER_ANNOTATION: OWNER}
    return start(world, job)


@pytest.mark.usefixtures("connection")
def test_phase_replicas_and_progress_are_shown_while_a_job_runs(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "shown"
    wait = f"{until_a_file(file)}; sleep 2"
    script = f"{says(1, 0.9)}; {says(2, 0.5)}; echo done; {wait}; {says(4, 0.1)}"
    job, told, shown = owned(world, script, "sleep 1"), Told(), Shown(file)
    order = order_for(world, job, progress=True)
    outcome = asyncio.run(told.watch(order, store=shown))
    assert outcome.verdict is Verdict.SUCCEEDED
    *during, last = shown.values
    assert {value["uid"] for value in shown.values} == {order.job.uid}
    assert shown.steps[-1] == 4
    assert 2 in shown.steps
    assert "Progress: step 2 of 4 (50 %), loss 0.5" in told.text
    running = next(value for value in during if value["phase"] == "Running" and "replicas" in value)
    leader = running["replicas"][0]
    assert (leader["role"], leader["index"], leader["leads"]) == ("master", 0, True)
    assert leader["node"]
    assert last["progress"]["latest"] == {"loss": 0.1}
    assert (last["phase"], last["verdict"]) == ("Succeeded", "succeeded")
    assert "headline" not in last
    assert [each["exit_code"] for each in last["replicas"]] == [0, 0]
    assert last["usage"]["running"] >= 1
    assert last["usage"]["pod_seconds"] >= last["usage"]["running"]
    assert "The job has used" in told.text


@pytest.mark.usefixtures("connection")
def test_without_progress_only_the_end_is_written(world: World) -> None:
    job, told, shown = owned(world, "sleep 2; exit 3", "sleep 1"), Told(), Shown()
    asyncio.run(told.watch(order_for(world, job), store=shown))
    (value,) = shown.values
    assert value["verdict"] == "failed"
    assert value["headline"].startswith("The PyTorchJob failed: exit code 3")
    assert "progress" not in value


@pytest.mark.usefixtures("connection")
def test_a_job_that_writes_nothing_is_ended_with_the_logs_of_all_replicas(world: World) -> None:
    worker = "trap 'echo \"stack of the worker\"; exit 1' TERM; echo started; sleep 300 & wait"
    job, told = owned(world, "echo waiting for peers; sleep 300", worker), Told()
    outcome = asyncio.run(told.watch(order_for(world, job, timeouts=LIMIT)))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "Silent")
    assert "has written nothing to its log for 4 s (Timeouts.silence)" in outcome.words
    assert outcome.retryable
    said = outcome.report
    assert said.index("master-0:") < said.index("    waiting for peers") < said.index("worker-0:")
    assert "    started\n    stack of the worker" in said


@pytest.mark.usefixtures("connection")
def test_the_job_of_another_try_is_not_ended(world: World) -> None:
    job, told = owned(world, "echo hello; sleep 300"), Told()
    order = order_for(world, job, timeouts=LIMIT)._replace(owner="another")
    outcome = asyncio.run(told.watch(order))
    assert outcome.reason == "Silent"
    assert "    hello" in outcome.report
    assert "deletionTimestamp" not in job.now()["metadata"]


@pytest.mark.usefixtures("connection")
def test_a_job_that_writes_now_and_then_is_not_silent(world: World) -> None:
    script = "for i in 1 2 3 4; do echo same; sleep 3; done"
    job, told = owned(world, script, "sleep 1"), Told()
    limit = Timeouts(silence=timedelta(seconds=9))
    outcome = asyncio.run(told.watch(order_for(world, job, timeouts=limit)))
    assert outcome.verdict is Verdict.SUCCEEDED


def test_a_cluster_that_is_away_does_not_count_as_silence(world: World, proxy: FaultProxy) -> None:
    job, told = owned(world, "while true; do echo same; sleep 1; done"), Told()
    order = order_for(world, job, timeouts=Timeouts(silence=timedelta(seconds=20)))

    async def run() -> Outcome | None:
        async with watched(told, order) as task:
            await until(lambda: "Running" in told.text)
            await asyncio.to_thread(proxy.away)
            await asyncio.sleep(24)  # longer than the limit
            await asyncio.to_thread(proxy.back)
            await asyncio.wait([task], timeout=10)
            return task.result() if task.done() else None

    assert asyncio.run(run()) is None
