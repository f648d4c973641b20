"""A real Airflow whose parts can be ended, frozen, killed and started again, one by one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from contextlib import closing, suppress
from typing import Any, NamedTuple

from airflow_kftrain.local.agent.processes import Record, table
from demo.airflow import Airflow

_WORDS = {
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
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

    async def start(self, part: str, number: int = 1) -> None:
        """Beside those of its kind that run already; `number` tells them apart."""
        await self._start(_named(part, number), *_WORDS[part])

    def main(self, part: str, number: int = 1) -> int:
        return self._running[_named(part, number)].pid

    def members(self, part: str, number: int = 1) -> set[int]:
        """It and all that it has started."""
        record = Record(self._records / f"{_named(part, number)}.record")
        return record.members(table())

    def send(self, pids: set[int], number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def ended(self, part: str, number: int = 1) -> None:
        await asyncio.wait_for(self._running.pop(_named(part, number)).wait(), _PATIENCE)

    async def kill(self, part: str, number: int = 1) -> None:
        """As a machine that loses its power."""
        while found := self.members(part, number):
            self.send(found, signal.SIGKILL)
            await asyncio.sleep(0.05)
        await self.ended(part, number)

    def task_instances(self) -> list[TaskInstance]:
        """All of them. Read past the API server, which on SQLite has enough to do."""
        fields = ", ".join(TaskInstance._fields)
        address = f"file:{self.home}/airflow.db?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=10)) as database:
            return [
                TaskInstance(*row)
                for row in database.execute(f"SELECT {fields} FROM task_instance")
            ]

    async def triggerers(self) -> list[dict[str, Any]]:
        found = await self.get("jobs?job_type=TriggererJob&is_alive=true&limit=20")
        return list(found["jobs"])

    # ----- the REST API, whose answer may be that the database is locked

    async def patch(self, path: str, body: Any) -> Any:
        return await self._call("PATCH", path, json=body)

    async def remove(self, path: str) -> None:
        await self._call("DELETE", path)

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        """One at a time: those who change something wait for SQLite in the event loop of the API
        server, and many at once stop each other for good."""
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


def _named(part: str, number: int) -> str:
    return part if number == 1 else f"{part}-{number}"
