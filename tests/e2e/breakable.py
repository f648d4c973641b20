"""A real Airflow whose parts can be stopped, frozen, killed and started again, one by one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Any, NamedTuple

from demo.airflow import Airflow
from kftrain_local.agent.processes import Record, table

_WORDS = {
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
_TRIES = 20
_PATIENCE = 240


class TaskInstance(NamedTuple):
    dag_id: str
    run_id: str
    map_index: int
    state: str | None
    try_number: int


class BreakableAirflow(Airflow):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._turn = asyncio.Lock()
        # The pure tests read the table of rows without Airflow.
        from sqlalchemy import create_engine

        database = f"sqlite:///file:{self.home}/airflow.db?uri=true&mode=ro&timeout=10"
        self._engine = create_engine(self._env.get(DATABASE, database))
        self._query = ""

    async def start(self, part: str, number: int = 1) -> None:
        """Starts one in addition to those of its kind that run already; `number` distinguishes
        them."""
        await self._start(_named(part, number), *_WORDS[part])

    def main(self, part: str, number: int = 1) -> int:
        return self._running[_named(part, number)].pid

    def members(self, part: str, number: int = 1) -> set[int]:
        """The process and everything that it has started."""
        record = Record(self._records / f"{_named(part, number)}.record")
        return record.members(table())

    def times_said(self, words: str, part: str, number: int = 1) -> int:
        """In its log."""
        log = self.home / f"{_named(part, number)}.log"
        return log.read_text(errors="replace").count(words)

    def send(self, pids: set[int], number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def ended(self, part: str, number: int = 1) -> None:
        await asyncio.wait_for(self._running.pop(_named(part, number)).wait(), _PATIENCE)

    async def kill(self, part: str, number: int = 1) -> None:
        """Like a power failure of its machine."""
        while found := self.members(part, number):
            self.send(found, signal.SIGKILL)
            await asyncio.sleep(0.05)
        await self.ended(part, number)

    def task_instances(self) -> list[TaskInstance]:
        """All task instances, read without the API server, which is busy enough on SQLite."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(self._query_of_instances())
            return [TaskInstance(*row) for row in rows]

    def _query_of_instances(self) -> str:
        if not self._query:
            from sqlalchemy import inspect

            columns = inspect(self._engine).get_columns("task_instance")
            self._query = _select({column["name"] for column in columns})
        return self._query

    async def __aexit__(self, *given: object) -> None:
        self._engine.dispose()
        await super().__aexit__(*given)

    async def triggerers(self) -> list[dict[str, Any]]:
        return await self._jobs("TriggererJob")

    async def schedulers(self) -> list[dict[str, Any]]:
        return await self._jobs("SchedulerJob")

    async def _jobs(self, kind: str) -> list[dict[str, Any]]:
        found = await self.get(f"jobs?job_type={kind}&is_alive=true&limit=20")
        return list(found["jobs"])

    # ----- the REST API, which may answer that the database is locked

    async def remove(self, path: str) -> None:
        await self._call("DELETE", path)

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        """One call at a time: calls that write wait for SQLite in the event loop of the API server,
        and many at once block each other for good."""
        for _ in range(_TRIES):
            async with (
                self._turn,
                self._session.request(method, f"/api/v2/{path}", **options) as response,
            ):
                text = await response.text()
            if response.status < 300:
                return json.loads(text) if text else None
            if response.status == 409 and method == "POST":
                return None  # the answer to the call before was lost
            if response.status < 500:
                break
            await asyncio.sleep(0.5)
        raise AssertionError(f"{method} {path}: {response.status} {text[:500]}")


def _select(columns: set[str]) -> str:
    if "map_index" in columns:
        return f"SELECT {', '.join(TaskInstance._fields)} FROM task_instance"
    # Since Airflow 3.4; for a task in a loop it is the iteration.
    fields = ("region_index" if name == "map_index" else name for name in TaskInstance._fields)
    # A loop has a task of its own, and a clear leaves task instances that are no longer used.
    return f"SELECT {', '.join(fields)} FROM task_instance WHERE working_set AND task_id = 'train'"


def _named(part: str, number: int) -> str:
    return part if number == 1 else f"{part}-{number}"
