"""What a row of the fault matrix has in its hands while it is played."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from airflow_kftrain.local.api_client import core
from airflow_kftrain.local.faults.proxy import FaultProxy
from tests.e2e.breakable import TaskInstance
from tests.e2e.counts import Result, Trainings, trainings
from tests.e2e.stage import Object, Stage, until

_FINAL = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
_GRACE = 120.0
"""Seconds for the sweeper."""


class Row(NamedTuple):
    name: str
    done: str
    """What is done, in words."""
    play: Callable[[Play], Awaitable[None]]
    state: str = "success"
    """How the task is to end."""
    trainings: int = 1
    """How many there are to be, from beginning to whatever end."""
    killed: int = 0
    """How many of them the row, its people or its timeouts end."""
    group: str = "alone"
    swept: bool = False
    """Only the sweeper can end the job: as soon as another job of the namespace is watched."""
    own_proxy: bool = False
    task: Object = {}  # read only

    @property
    def dag(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())

    @property
    def connection(self) -> str:
        return self.dag.replace("-", "_") if self.own_proxy else "kubernetes_default"

    def tasks(self) -> dict[str, Object]:
        given = {"namespace": f"n-{self.dag}"[:60], "connection": self.connection, **self.task}
        alone = {"namespace": given["namespace"], "connection": self.connection}
        return {self.dag: given, **({f"{self.dag}-next": alone} if self.swept else {})}


class Play:
    def __init__(self, row: Row, stage: Stage, meet: Callable[[str], Awaitable[None]]) -> None:
        self.row = row
        self.stage = stage
        self.airflow = stage.airflow
        self.dag = row.dag
        self.run = "run"
        self.meet = meet
        self.folder = stage.files / row.dag
        self.namespace = stage.tasks[row.dag]["namespace"]

    @property
    def proxy(self) -> FaultProxy:
        assert self.row.own_proxy
        return self.stage.proxies[self.row.connection]

    # ----- Airflow

    @property
    def path(self) -> str:
        return f"dags/{self.dag}/dagRuns/{self.run}"

    async def trigger(self, dag: str = "") -> None:
        body = {"dag_run_id": self.run, "logical_date": None}
        await self.airflow.post(f"dags/{dag or self.dag}/dagRuns", body)

    def instances(self, dag: str = "") -> list[TaskInstance]:
        return self.stage.states.get((dag or self.dag, self.run), [])

    async def until(self, *states: str, attempt: int = 1) -> None:
        """Until the task is in one of these states, in that try or a later one."""

        def look() -> bool:
            found = self.instances()
            return bool(found) and all(
                each.state in states and each.try_number >= attempt for each in found
            )

        await until(look, f"the task is {' or '.join(states)}")

    async def submitted(self) -> None:
        """The training runs, and the task is deferred; whether its trigger runs yet is open."""
        await self.trigger()
        await self.trains()
        await self.until("deferred")

    async def deferred(self) -> None:
        """And its trigger has seen that the training runs."""
        await self.submitted()
        await self.watched()

    async def watched(self, attempt: int = 1) -> None:
        folder = f"logs/dag_id={self.dag}/run_id={self.run}/task_id=train"

        def look() -> bool:
            logs = self.airflow.home.glob(f"{folder}/attempt={attempt}.log.trigger.*")
            return any("PyTorchJobRunning" in log.read_text() for log in logs)

        await until(look, "the trigger has seen the training")

    async def set_state(self, state: str) -> None:
        await self.airflow.patch(f"{self.path}/taskInstances/train", {"new_state": state})

    async def remove_run(self) -> None:
        """Airflow deletes only runs that have come to an end."""
        await self.airflow.patch(self.path, {"state": "failed"})
        await self.airflow.remove(self.path)
        await until(lambda: not self.instances(), "the run is gone")

    async def clear(self) -> None:
        body = {
            "dry_run": False,
            "only_failed": False,
            "dag_run_id": self.run,
            "task_ids": ["train"],
        }
        await self.airflow.post(f"dags/{self.dag}/clearTaskInstances", body)

    async def worker(self, attempt: int = 1) -> tuple[int, int]:
        """The process of the task, and that which looks after it."""
        file = self.folder / f"worker-{attempt}"
        await until(file.exists, f"try {attempt} runs")
        task, supervisor = map(int, file.read_text().split())
        return task, supervisor

    async def send(self, number: signal.Signals, attempt: int = 1) -> None:
        """To the worker."""
        _, supervisor = await self.worker(attempt)
        os.kill(supervisor, number)

    # ----- the training

    async def trains(self, count: int = 1) -> None:
        await until(lambda: self.seen().begun >= count, f"training {count} has begun")

    def seen(self) -> Trainings:
        return trainings(self.folder)

    def go(self, code: int = 0, attempt: int | None = None) -> None:
        """The training comes to its end."""
        file = self.folder / ("go" if attempt is None else f"go-{attempt}")
        file.with_suffix(".new").write_text(str(code))
        file.with_suffix(".new").replace(file)

    # ----- the cluster

    async def jobs(self, namespace: str = "") -> list[Object]:
        path = _JOBS.format(namespace or self.namespace)
        items: list[Object] = (await self.stage.api.get(path))["items"]
        return items

    async def job(self) -> Object:
        (job,) = await self.jobs()
        return job

    async def until_gone(self) -> None:
        async def look() -> bool:
            return not [job for job in await self.jobs() if lives(job)]

        await until(look, "no job lives")

    async def delete_job(self) -> None:
        name = (await self.job())["metadata"]["name"]
        await self.stage.api.delete(f"{_JOBS.format(self.namespace)}/{name}")

    async def pods(self) -> list[Object]:
        items: list[Object] = (await self.stage.api.get(core(self.namespace, "pods")))["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    # ----- the end

    async def played(self) -> Result:
        began = time.monotonic()
        error = ""
        try:
            await self.row.play(self)
            await self.until(*_FINAL)
        except Exception as problem:  # noqa: BLE001  # of whatever kind, the row has failed
            error = f"{type(problem).__name__}: {problem}"
        leaked = await self._leaks(error)
        return self._result(time.monotonic() - began, leaked, error)

    async def _leaks(self, error: str) -> int:
        """What lives on although its task has ended. A row that has failed is not waited for."""
        name = f"{self.dag}-next"
        if self.row.swept and not error:
            await self.trigger(name)
            next_states = ("deferred", "failed")
            await until(
                lambda: {each.state for each in self.instances(name)} & {*next_states},
                "the next job runs",
            )
        end = time.monotonic() + (5.0 if error else _GRACE)
        while found := await self._living():
            if time.monotonic() > end:
                break
            await asyncio.sleep(0.3)
        if self.row.swept:
            (self.stage.files / name / "go").write_text("0")
        return found

    async def _living(self) -> int:
        ours = [job for job in await self.jobs() if lives(job) and _dag_of(job) == self.dag]
        return max(len(ours), self.seen().alive)

    def _result(self, seconds: float, leaked: int, error: str) -> Result:
        row, seen = self.row, self.seen()
        states = {each.state for each in self.instances()} or {"none"}
        state = ", ".join(sorted(map(str, states)))
        short = max(row.trainings - seen.begun, 0)
        return Result(
            state=state,
            lost=short or int(state != row.state),
            doubled=max(seen.doubled, seen.begun - row.trainings, 0),
            killed=max(seen.killed - row.killed, 0),
            leaked=leaked,
            seconds=seconds,
            error=error,
        )


def lives(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    over = {item["type"] for item in conditions if item["status"] == "True"}
    return not over & {"Succeeded", "Failed"} and "deletionTimestamp" not in job["metadata"]


def _dag_of(job: Object) -> str:
    return str(job["metadata"]["annotations"]["airflow-kftrain/dag-id"])
