"""A real Airflow on SQLite, an embedded cluster that this process runs, and what happens there.

Times of tasks are Airflow's own, from its database. Times of jobs are those when a watch reports
them, milliseconds after the server has written them: the times in the jobs have no fractions.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from bench.figures import OURS, say
from bench.tls_front import TlsFront
from kftrain_local.agent.agent import state_folder
from kftrain_local.agent.machine import Settings
from kftrain_local.api_client import ApiClient, read_kubeconfig
from kftrain_local.cluster import LocalCluster
from tests.e2e.breakable import BreakableAirflow

Object = dict[str, Any]

_ROOT = Path(__file__).parents[1]
_DAGS = {"ours", "peer_10", "peer_1", "many"}


class Operator(NamedTuple):
    who: str
    dag: str
    jobs: str
    """The path of the collection in the API."""
    interval: float = 0.0
    """Seconds between two reads of a job."""


_BATCH_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PEER_DEFAULT = Operator("KubernetesJobOperator, every 10 s", "peer_10", _BATCH_JOBS, 10.0)
PEER_BEST = Operator("KubernetesJobOperator, every 1 s", "peer_1", _BATCH_JOBS, 1.0)
OUR_OWN = Operator(OURS, "ours", _PYTORCH_JOBS)


class Task:
    """A run of a DAG with one task, and when things happened. Its job continues until the gate, a
    file, exists."""

    def __init__(self, operator: Operator, run: str, gate: Path) -> None:
        self.operator = operator
        self.run = run
        self.gate = gate
        self.job: Object = {}
        """The last state before its end."""
        self.row: Object = {}
        """The row in Airflow's database when it was deferred, with its trigger."""
        self.queued = self.submitted = self.deferred = self.ended = self.succeeded = 0.0

    def see(self, job: Object) -> None:
        if self.job and self.job["metadata"]["uid"] != job["metadata"]["uid"]:
            return  # a copy
        now = time.time()
        self.submitted = self.submitted or now
        if _is_over(job):
            self.ended = self.ended or now
        else:
            self.job = job


class Stage:
    def __init__(self) -> None:
        self.tasks: list[Task] = []

    async def open(self, folder: Path, ending: AsyncExitStack) -> None:
        self._gates = folder / "gates"
        self._gates.mkdir()
        state = ending.enter_context(state_folder(folder / "state"))
        node = Settings(cpu="64", memory="64Gi")
        cluster = await ending.enter_async_context(LocalCluster(state, node))
        self.api = ApiClient(read_kubeconfig(cluster.kubeconfig))
        await ending.enter_async_context(self.api)
        watches = (self._watch(path) for path in (_BATCH_JOBS, _PYTORCH_JOBS))
        for work in (cluster.run_until(asyncio.Event()), *watches):
            # A failure there shows itself by what is missing later.
            ending.callback(asyncio.create_task(work).cancel)
        # All requests of Airflow to the cluster go through it, and are counted.
        self._front = TlsFront(cluster.kubeconfig, folder / "tls")
        await ending.enter_async_context(self._front)
        extra = {"kube_config_path": str(self._front.kubeconfig), "namespace": "default"}
        connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
        settings = {
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": connection,
            "PYTHONPATH": str(_ROOT),
        }
        self.airflow = BreakableAirflow(state, _ROOT / "bench" / "dags", settings, say)
        await ending.enter_async_context(self.airflow)
        await until(self._knows_dags, "Airflow knows the DAGs")

    async def _watch(self, path: str) -> None:
        async for what, found in self.api.follow(path):
            for job in found if what == "LISTED" else [found]:
                text = json.dumps(job)
                for task in self.tasks:
                    if what != "DELETED" and f"{task.gate} " in text:
                        task.see(job)

    async def _knows_dags(self) -> bool:
        rows = await self.rows("SELECT dag_id FROM serialized_dag")
        errors = await self.rows("SELECT stacktrace FROM import_error")
        assert not errors, errors[0]["stacktrace"]
        return {row["dag_id"] for row in rows} == _DAGS

    # ----- tasks

    async def submit(self, operator: Operator, number: int) -> Task:
        """Returns when it is deferred."""
        task = self._task(operator, f"{operator.dag}-{number}")
        await self._start(task)

        async def is_deferred() -> bool:
            task.row = await self._row(task)
            return bool(task.row["state"] == "deferred")

        await until(is_deferred, f"{task.run} is deferred")
        task.queued = _moment(task.row["queued_dttm"])
        task.deferred = _moment(task.row["created_date"])
        return task

    async def end(self, task: Task, moment: float) -> None:
        """Ends the job now. Returns when the task has succeeded."""
        await asyncio.sleep(moment - time.time())
        task.gate.touch()
        await self._until_success(task)

    async def run_short(self, operator: Operator, number: int) -> Task:
        """Runs a task whose job ends as soon as it runs. Returns when the task has succeeded."""
        task = self._task(operator, f"{operator.dag}-short-{number}")
        task.gate.touch()
        await self._start(task)
        await self._until_success(task)
        return task

    def _task(self, operator: Operator, run: str) -> Task:
        task = Task(operator, run, self._gates / run)
        self.tasks.append(task)
        return task

    async def _start(self, task: Task) -> None:
        await self.start(task.operator.dag, task.run, gate=str(task.gate))

    async def _until_success(self, task: Task) -> None:
        async def is_success() -> bool:
            row = await self._row(task)
            task.succeeded = _moment(row["end_date"])
            return bool(row["state"] == "success")

        await until(is_success, f"{task.run} is a success")

    async def start(self, dag: str, run: str, **conf: str) -> None:
        body = {"dag_run_id": run, "logical_date": None, "conf": conf}
        await self.airflow.post(f"dags/{dag}/dagRuns", body)

    async def _row(self, task: Task) -> Object:
        (row,) = await self.rows(
            "SELECT state, queued_dttm, end_date, next_method, next_kwargs, created_date, "
            "classpath, kwargs, task_instance.id AS id "
            "FROM task_instance LEFT JOIN trigger ON trigger.id = trigger_id WHERE run_id = ?",
            task.run,
        )
        assert row["state"] != "failed", f"{task.run} has failed"
        return row

    # ----- the triggerer

    async def fresh_triggerer(self) -> None:
        """Starts a triggerer that has run no trigger yet. Existing triggers are removed."""
        job = "SELECT max(id) AS id FROM job WHERE job_type = 'TriggererJob'"
        before = await self.rows(job)
        await self.airflow.kill("triggerer")
        await self.write(
            [
                ("UPDATE task_instance SET state = 'removed' WHERE trigger_id NOT NULL", ()),
                ("UPDATE task_instance SET trigger_id = NULL", ()),
                ("DELETE FROM trigger", ()),
            ]
        )
        await self.airflow.start("triggerer")

        async def is_there() -> bool:
            return await self.rows(job) != before

        await until(is_there, "there is another triggerer")

    def memory(self) -> float:
        """MiB of the triggerer and of the process in which it runs triggers; shared memory is
        counted once (PSS)."""
        return sum(map(_pss, self.airflow.members("triggerer"))) / 1024

    @property
    def requests(self) -> int:
        """The requests of Airflow to the cluster."""
        return self._front.requests

    async def has_made(self, requests: int) -> bool:
        return self.requests >= requests

    # ----- Airflow's database, without the API server, which is busy enough on SQLite

    async def rows(self, query: str, *given: object) -> list[Object]:
        def read() -> list[Object]:
            with closing(self._connect("ro")) as database:
                database.row_factory = sqlite3.Row
                return [dict(row) for row in database.execute(query, given)]

        return await asyncio.to_thread(read)

    async def write(self, statements: Iterable[tuple[str, tuple[object, ...]]]) -> None:
        """In one transaction."""

        def change() -> None:
            with closing(self._connect("rw")) as database, database:
                database.execute("BEGIN IMMEDIATE")
                for statement, given in statements:
                    database.execute(statement, given)

        await asyncio.to_thread(change)

    def _connect(self, mode: str) -> sqlite3.Connection:
        address = f"file:{self.airflow.home}/airflow.db?mode={mode}"
        return sqlite3.connect(address, uri=True, timeout=60)


def _is_over(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        each["type"] in ("Succeeded", "Complete", "Failed") and each["status"] == "True"
        for each in conditions
    )


def _moment(stored: str | None) -> float:
    if stored is None:
        return 0.0
    return datetime.fromisoformat(stored).replace(tzinfo=timezone.utc).timestamp()


def _pss(pid: int) -> int:
    """In KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1])


async def until(look: Callable[[], Any], what: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not await look():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain until {what}"
        await asyncio.sleep(0.1)
