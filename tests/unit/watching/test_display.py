"""When the XCom `kftrain` is written: on changes, with pauses, and within a limit for all tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.watching import display
from airflow_kftrain.watching.display import Display

STARTING, RUNNING = JobState(Phase.STARTING), JobState(Phase.RUNNING)


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time is set."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Any:
    loop = Clock()
    yield loop
    loop.close()


class Task:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.written: list[tuple[float, str]] = []
        self.display = self.run(self._made())

    async def _made(self) -> Display:
        return Display(self._store)

    async def _store(self, value: dict[str, Any]) -> None:
        self.written.append((self.clock.now, value["phase"]))

    def run(self, work: Any) -> Any:
        return self.clock.run_until_complete(work)

    def at(self, now: float, state: JobState) -> None:
        self.clock.now = now
        self.display.see(state)
        self.run(self.display.write_if_due("uid"))


def test_the_first_value_is_written_after_a_while_and_the_next_ones_later(clock: Clock) -> None:
    task = Task(clock)
    for now in range(1000, 3000, 5):
        task.at(now, RUNNING if now // 5 % 2 else STARTING)  # it changes each time
    times = [at for at, _ in task.written]
    pauses = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert times[0] == 1000 + display.FIRST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[-1] == display.LONGEST_PAUSE


def test_what_does_not_change_is_not_written_again(clock: Clock) -> None:
    task = Task(clock)
    for now in range(1000, 3000, 5):
        task.at(now, RUNNING)
        task.display.put("queue", {"name": "team"})
    assert len(task.written) == 1
    assert not task.display.waits


def test_only_the_first_progress_does_not_wait(clock: Clock) -> None:
    task = Task(clock)
    task.at(1000, RUNNING)
    for now in range(1004, 1060):
        task.display.progress(lambda now=now: {"step": now})
        task.at(now, RUNNING)
    assert [at for at, _ in task.written] == [1004, 1004 + 2 * display.FIRST_PAUSE]


def test_all_tasks_of_a_process_share_one_limit(clock: Clock) -> None:
    tasks = [Task(clock) for _ in range(50)]
    for tick in range(400):
        for task in tasks:
            task.at(1000 + tick / 4, RUNNING)
    times = sorted(at for task in tasks for at, _ in task.written)
    assert len(times) == 50
    pauses = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert min(pauses) >= 1 / display.WRITES_A_SECOND
    assert times[-1] - times[0] == pytest.approx(49 / display.WRITES_A_SECOND, abs=1)


def test_the_end_is_written_at_once(clock: Clock) -> None:
    task = Task(clock)
    task.run(task.display.write_end("uid", JobState(Phase.FAILED), {"verdict": "failed"}))
    assert task.written == [(1000.0, "Failed")]
