"""What a row of the fault matrix works with while it runs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kftrain_local.api_client import core
from kftrain_local.faults.proxy import FaultProxy
from tests.e2e.breakable import TaskInstance
from tests.e2e.counts import Result, Trainings, last_error, trained_twice, trainings
from tests.e2e.stage import PATIENCE, Object, Stage, until

FINAL = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
_RUNNING = re.compile(r"PyTorchJob [^ ]+:(\s|\\n)+Running\b")
"""In a log, where long lines are wrapped."""
_STORIES = 5
_PATIENCE_EACH = 5.0
"""Seconds for each training: two cores run them one after another."""
_GRACE = 120.0
"""Seconds for the sweeper."""


class Row(NamedTuple):
    name: str
    done: str
    """A description of what is done."""
    play: Callable[[Play], Awaitable[None]]
    state: str = "success"
    """How the task must end."""
    trainings: int = 1
    """How many trainings there must be, however they end."""
    killed: int = 0
    """How many of them the row, its people or its timeouts end."""
    group: str = "alone"
    swept: bool = False
    """Only the sweeper can end the job: as soon as another job of the namespace is watched."""
    own_proxy: bool = False
    task: Object = {}  # only read

    @property
    def dag(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())

    @property
    def connection(self) -> str:
        return self.dag.replace("-", "_") if self.own_proxy else "kubernetes_default"

    def tasks(self) -> dict[str, Object]:
        namespace = f"n-{self.dag}"[:60].rstrip("-")
        given = {"namespace": namespace, "connection": self.connection, **self.task}
        alone = {"namespace": given["namespace"], "connection": self.connection}
        return {self.dag: given, **({f"{self.dag}-next": alone} if self.swept else {})}


class Play:
    def __init__(self, row: Row, stage: Stage, meet: Callable[[str], Awaitable[None]]) -> None:
        self.row = row
        self.stage = stage
        self.airflow = stage.airflow
        self.dag = row.dag
        self.run = "run"
        self.runs = {self.run}
        self.meet = meet
        self.folder = stage.files / row.dag
        self.namespace = stage.tasks[row.dag]["namespace"]
        self.patience = PATIENCE + _PATIENCE_EACH * row.trainings

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

    async def trigger_another(self) -> None:
        """From now on both runs are watched."""
        self.run = "another-run"
        self.runs.add(self.run)
        await self.trigger()

    def instances(self, dag: str = "") -> list[TaskInstance]:
        states = self.stage.states
        return [each for run in self.runs for each in states.get((dag or self.dag, run), [])]

    async def until(self, *states: str, attempt: int = 1) -> None:
        """Waits until the task is in one of these states, in that try or a later one."""

        def look() -> bool:
            found = self.instances()
            return bool(found) and all(
                each.state in states and each.try_number >= attempt for each in found
            )

        await until(look, f"the task is {' or '.join(states)}", self.patience)

    async def submitted(self) -> None:
        """The training runs, and the task is deferred. Its trigger may not run yet."""
        await self.trigger()
        await self.trains()
        await self.until("deferred")

    async def deferred(self) -> None:
        """Its trigger has also noticed that the training runs."""
        await self.submitted()
        await self.watched()

    async def watched(self, attempt: int = 1, iteration: str = "") -> None:
        """All tasks if it is mapped, or one `iteration` by the folder of its logs."""

        def look() -> bool:
            logs = self.logs(f"{iteration}attempt={attempt}.log.trigger.*")
            seen = [log for log in logs if _RUNNING.search(log.read_text())]
            wanted = 1 if iteration else max(len(self.instances()), 1)
            return len({log.parent for log in seen}) >= wanted

        await until(look, "the trigger has seen the training")

    def logs(self, name: str) -> list[Path]:
        folder = self.airflow.home / f"logs/dag_id={self.dag}"
        return sorted(folder.glob(f"run_id=*/task_id=train/**/{name}"))

    async def set_state(self, state: str) -> None:
        await self.airflow.patch(f"{self.path}/taskInstances/train", {"new_state": state})

    async def remove_run(self) -> None:
        """Airflow deletes only runs that have ended."""
        await self.airflow.patch(self.path, {"state": "failed"})
        await self.airflow.remove(self.path)
        await until(lambda: not self.instances(), "the run is gone")

    async def clear(self, **which: Any) -> None:
        """Clears all tries of the task, or those that Airflow's parameters select."""
        body = {
            "dry_run": False,
            "only_failed": False,
            "dag_run_id": self.run,
            **(which or {"task_ids": ["train"]}),
        }
        await self.airflow.post(f"dags/{self.dag}/clearTaskInstances", body)

    async def worker(self, attempt: int = 1) -> tuple[int, int]:
        """The process of the task, and its supervisor."""
        file = self.folder / f"worker-{attempt}"
        await until(file.exists, f"try {attempt} runs")
        task, supervisor = map(int, file.read_text().split())
        return task, supervisor

    async def worker_ended(self, attempt: int = 1, seconds: float = PATIENCE) -> None:
        task, _ = await self.worker(attempt)
        await until(lambda: not is_alive(task), f"the worker of try {attempt} has ended", seconds)

    async def worker_left(self, seconds: float) -> None:
        """The operator has returned the first try to Airflow; how long that takes is up to
        Airflow."""
        left = self.folder / "left-1"
        await until(left.exists, "the operator has left its worker", seconds)

    async def send(self, number: signal.Signals, attempt: int = 1) -> None:
        """To the worker."""
        _, supervisor = await self.worker(attempt)
        os.kill(supervisor, number)

    # ----- the training

    async def trains(self, count: int = 1) -> None:
        begun = f"training {count} has begun"
        await until(lambda: self.seen().begun >= count, begun, self.patience)

    def seen(self) -> Trainings:
        return trainings(self.folder)

    def trained_runs(self) -> list[str]:
        """The KFTRAIN_RUN_ID of all trainings, in the order of their starts."""
        logs = self.folder.glob("[!w]*.log")
        return [log.stem for log in sorted(logs, key=lambda log: log.read_text().split()[2])]

    def go(self, code: int | str = 0, attempt: int | str | None = None) -> None:
        """Lets the training end, or hog memory; only in that try, or that KFTRAIN_RUN_ID."""
        file = self.folder / ("go" if attempt is None else f"go-{attempt}")
        file.with_suffix(".new").write_text(str(code))
        file.with_suffix(".new").replace(file)

    def stay(self) -> None:
        """From now on, trainings wait for a command of their own."""
        (self.folder / "go").unlink()

    # ----- the cluster

    async def jobs(self, namespace: str = "") -> list[Object]:
        path = _JOBS.format(namespace or self.namespace)
        return [job for api in self.stage.clusters for job in (await api.get(path))["items"]]

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
            await self.until(*FINAL)
        except Exception as problem:  # noqa: BLE001  # of whatever kind, the row has failed
            error = f"{type(problem).__name__}: {problem}"
        leaked = await self._leaks(error)
        return self._result(time.monotonic() - began, leaked, error)

    async def _leaks(self, error: str) -> int:
        """What is left although its task has ended. A row that has failed is not waited for."""
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
        states = Counter(str(each.state) for each in self.instances()) or Counter(none=1)
        wanted = row.state.split(", ")
        wrong = sum(count for state, count in states.items() if state not in wanted)
        wrong += sum(state not in states for state in wanted)
        counted = [f"{count} {state}" for state, count in sorted(states.items())]
        return Result(
            state=", ".join(states if len(states) == 1 else counted),
            lost=max(row.trainings - seen.begun, wrong, 0),
            doubled=max(seen.doubled, seen.begun - row.trainings, 0),
            killed=max(seen.killed - row.killed, 0),
            leaked=leaked,
            seconds=seconds,
            error=error,
            story="\n".join(self._story()),
        )

    def _story(self) -> Iterator[str]:
        """Details about the first few tasks and trainings that went wrong."""
        wrong = [each for each in self.instances() if str(each.state) not in self.row.state]
        for each in wrong[:_STORIES]:
            place = f"run_id={each.run_id}/task_id=train"
            place += f"/map_index={each.map_index}" if each.map_index >= 0 else ""
            logs = self.logs("attempt=*.log")
            errors = [last_error(log) for log in logs if log.parent.as_posix().endswith(place)]
            told = next(filter(None, reversed(errors)), "nothing")
            yield f"{place}, {each.state} in try {each.try_number}, says: {told}"
        if self.seen().begun > self.row.trainings:
            yield f"trained more than once: {', '.join(trained_twice(self.folder)[:_STORIES])}"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def lives(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    over = {item["type"] for item in conditions if item["status"] == "True"}
    return not over & {"Succeeded", "Failed"} and "deletionTimestamp" not in job["metadata"]


def _dag_of(job: Object) -> str:
    return str(job["metadata"]["annotations"]["airflow-kftrain/dag-id"])
