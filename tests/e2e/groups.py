"""Faults that affect everybody. Each happens once, when all rows of its group are ready for it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

from tests.e2e.counts import Result
from tests.e2e.play import Play, Row
from tests.e2e.stage import Background, Stage, say, until

Action = Callable[[Stage], Awaitable[None]]


async def _end_triggerer(stage: Stage) -> None:
    stage.airflow.send({stage.airflow.main("triggerer")}, signal.SIGTERM)
    await stage.airflow.ended("triggerer")


async def _kill_triggerer(stage: Stage) -> None:
    await stage.airflow.kill("triggerer")


async def _start_triggerer(stage: Stage) -> None:
    await stage.airflow.start("triggerer")
    await until(lambda: _triggerers(stage, 1), "the triggerer runs")


async def _freeze_triggerer(stage: Stage) -> None:
    """Another triggerer exists, which has to notice, and gets its triggers."""
    await stage.airflow.start("triggerer", 2)
    await until(lambda: _triggerers(stage, 2), "the second triggerer runs")
    stage.frozen = stage.airflow.members("triggerer")
    stage.airflow.send(stage.frozen, signal.SIGSTOP)
    await asyncio.sleep(28)


async def _thaw_triggerer(stage: Stage) -> None:
    stage.airflow.send(stage.frozen, signal.SIGCONT)
    # Long enough for it to act: it wakes up, and finds that its triggers were taken away.
    await asyncio.sleep(15)


async def _triggerers(stage: Stage, count: int) -> bool:
    return len(await stage.airflow.triggerers()) >= count


async def _end_scheduler(stage: Stage) -> None:
    stage.airflow.send({stage.airflow.main("scheduler")}, signal.SIGTERM)
    await stage.airflow.ended("scheduler")


async def _kill_scheduler(stage: Stage) -> None:
    await stage.airflow.kill("scheduler")


async def _start_scheduler(stage: Stage) -> None:
    await stage.airflow.start("scheduler")


async def _start_second(stage: Stage) -> None:
    await stage.start_second()


GROUPS: dict[str, dict[str, Action]] = {
    "alone": {},
    "many": {},
    "sigterm": {"begin": _end_triggerer, "end": _start_triggerer},
    "sigkill": {"begin": _kill_triggerer, "end": _start_triggerer},
    "scheduler": {"begin": _end_scheduler, "end": _start_scheduler},
    "scheduler killed": {"begin": _kill_scheduler, "end": _start_scheduler},
    "two": {"begin": _start_second},
    # The last group on SQLite, since two triggerers are left.
    "sigstop": {"begin": _freeze_triggerer, "end": _thaw_triggerer},
    # Rows on PostgreSQL that have Airflow to themselves.
    "frozen scheduler": {},
    "many frozen": {},
    "many stopped": {},
}

_AT_ONCE = 8
"""Rows that are independent: more at once would only wait for each other on two cores."""


class _Meeting:
    """Rows that wait for each other, and what happens when all are ready."""

    def __init__(self, stage: Stage, actions: dict[str, Action], count: int) -> None:
        self._stage = stage
        self._actions = actions
        self._count = count
        self._there: dict[str, int] = dict.fromkeys(actions, 0)
        self._done = {point: asyncio.Event() for point in actions}
        self._news = asyncio.Condition()
        self._error: Exception | None = None

    async def meet(self, point: str) -> None:
        async with self._news:
            self._there[point] += 1
            self._news.notify_all()
        await self._done[point].wait()
        if self._error is not None:
            raise self._error

    async def leave(self) -> None:
        """A row that has ended is not waited for."""
        async with self._news:
            self._count -= 1
            self._news.notify_all()

    async def run(self) -> None:
        for point, action in self._actions.items():
            async with self._news:
                while self._there[point] < self._count:
                    await self._news.wait()
            try:
                await action(self._stage)
            except Exception as error:  # noqa: BLE001  # each row tells it
                self._error = error
            self._done[point].set()


class Matrix:
    """All requested rows, group by group, and their results as they arrive."""

    def __init__(self, background: Background, stage: Stage, rows: Sequence[Row]) -> None:
        self._stage = stage
        self._rows = rows
        self._results: dict[str, Future[Result]] = {row.name: Future() for row in rows}
        self._playing = background.start(self._play())

    def result(self, row: Row) -> Result:
        return self._results[row.name].result()

    def results(self) -> dict[str, Result]:
        """The results of the rows that have run."""
        done = {name: future for name, future in self._results.items() if future.done()}
        return {name: future.result() for name, future in done.items() if not future.exception()}

    def stop(self) -> None:
        """Rows whose results nobody needs any more are not completed."""
        self._playing.cancel()

    async def _play(self) -> None:
        for group, actions in GROUPS.items():
            rows = [row for row in self._rows if row.group == group]
            if rows:
                say(f"rows {group}: {len(rows)}")
                meeting = _Meeting(self._stage, actions, len(rows))
                conductor = asyncio.create_task(meeting.run())
                # Rows that meet run at the same time.
                turn = asyncio.Semaphore(len(rows) if actions else _AT_ONCE)
                try:
                    await asyncio.gather(*(self._play_row(row, meeting, turn) for row in rows))
                finally:
                    conductor.cancel()

    async def _play_row(self, row: Row, meeting: _Meeting, turn: asyncio.Semaphore) -> None:
        future = self._results[row.name]
        try:
            async with turn:
                result = await Play(row, self._stage, meeting.meet).played()
            say(f"{row.name}: {result!r}")
            future.set_result(result)
        except BaseException as error:  # noqa: BLE001  # told where the result is asked for
            future.set_exception(error)
        finally:
            await meeting.leave()
