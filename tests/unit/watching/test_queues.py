"""When Kueue is asked, how often, and whom its answers wake. Nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airflow_kftrain.errors import ClusterError, Forbidden, NotServed
from airflow_kftrain.hooks.api_calls import WORKLOAD
from airflow_kftrain.monitoring.queues import UID_LABEL, Stage
from airflow_kftrain.watching.queues import (
    ABSENT_SECONDS,
    FIRST_LOOK_SECONDS,
    LOOK_SECONDS,
    MOST_JOBS,
    Queues,
)
from airflow_kftrain.watching.store import Waiter
from tests.unit.watching.virtual_time import run


class Kueue:
    """Notes what it is asked; all jobs of `taken` wait for quota."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.asked: list[tuple[float, list[str]]] = []
        self.discoveries = 0
        self.error: ClusterError | None = None

    async def workload_kind(self) -> Any:
        self.discoveries += 1
        if isinstance(self.error, NotServed):
            raise self.error
        return WORKLOAD

    async def workloads(self, kind: Any, namespace: str, uids: Any) -> list[dict[str, Any]]:
        assert (kind, namespace) == (WORKLOAD, "ml")
        self.asked.append((asyncio.get_running_loop().time(), list(uids)))
        if self.error is not None:
            raise self.error
        return [{"metadata": {"labels": {UID_LABEL: uid}}} for uid in uids if uid in self.taken]


def play(work: Callable[[Kueue, Queues], Awaitable[None]]) -> None:
    async def prepared() -> None:
        kueue: Any = Kueue()
        turn = asyncio.Semaphore(2)
        start = asyncio.get_running_loop().create_task
        try:
            await work(kueue, Queues(kueue, turn, "ml", start))
        finally:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    run(prepared())


def waiter() -> Waiter:
    return Waiter("train", "", 60.0)


def is_woken(one: Waiter) -> bool:
    woken, one._is_due = one._is_due, False
    return woken


def test_all_queued_jobs_share_a_call_for_each_fifty_however_many_wait() -> None:
    async def work(kueue: Kueue, queues: Queues) -> None:
        uids = [f"uid-{number}" for number in range(2 * MOST_JOBS + 1)]
        for uid in uids * 3:
            queues.add(uid, waiter())
        await asyncio.sleep(600)
        looks = sorted({at for at, _ in kueue.asked})
        assert looks[0] == FIRST_LOOK_SECONDS
        pauses = [later - earlier for earlier, later in zip(looks, looks[1:], strict=False)]
        assert min(pauses) >= LOOK_SECONDS[0]
        assert max(pauses) <= LOOK_SECONDS[1]
        assert len(kueue.asked) == 3 * len(looks)
        assert [uid for _, some in kueue.asked[:3] for uid in some] == uids
        assert kueue.discoveries == 1

    play(work)


def test_without_queued_jobs_there_is_no_call() -> None:
    async def work(kueue: Kueue, queues: Queues) -> None:
        one, other = waiter(), waiter()
        for each in (one, other):
            queues.add("uid", each)
        queues.remove("uid", one)
        queues.remove("uid", other)
        await asyncio.sleep(600)
        assert kueue.asked == []
        queues.add("uid", one)
        await asyncio.sleep(FIRST_LOOK_SECONDS + 1)
        assert len(kueue.asked) == 1
        # A job that comes and goes does not cause more looks than one that stays.
        for _ in range(10):
            queues.remove("uid", one)
            queues.add("uid", one)
            await asyncio.sleep(LOOK_SECONDS[0] / 20)
        assert len(kueue.asked) == 1

    play(work)


def test_only_news_wake_those_who_wait() -> None:
    async def work(kueue: Kueue, queues: Queues) -> None:
        one, other = waiter(), waiter()
        queues.add("one", one)
        queues.add("other", other)
        kueue.taken = {"one"}
        await queues.look(["one", "other"])
        found = queues.state_of("one")
        assert found is not None
        assert found.stage is Stage.WAITS
        assert is_woken(one)
        await queues.look(["one", "other"])
        assert not is_woken(one)
        assert not is_woken(other)
        assert queues.state_of("other") is None

    play(work)


def test_a_job_without_a_workload_is_told_so_after_a_minute() -> None:
    async def work(kueue: Kueue, queues: Queues) -> None:
        one = waiter()
        queues.add("uid", one)
        await asyncio.sleep(ABSENT_SECONDS - 1)
        assert queues.state_of("uid") is None
        await asyncio.sleep(LOOK_SECONDS[1])
        found = queues.state_of("uid")
        assert found is not None
        assert found.stage is Stage.ABSENT
        assert is_woken(one)
        kueue.taken = {"uid"}
        await queues.look(["uid"])
        found = queues.state_of("uid")
        assert found is not None
        assert found.stage is Stage.WAITS

    play(work)


@pytest.mark.parametrize(
    ("error", "stage"),
    [(NotServed("ask", "no Kueue"), Stage.NO_KUEUE), (Forbidden("list", "no"), Stage.FORBIDDEN)],
    ids=["404", "403"],
)
def test_what_keeps_us_from_asking_is_known_until_it_is_mended(
    error: ClusterError, stage: Stage
) -> None:
    async def work(kueue: Kueue, queues: Queues) -> None:
        queues.add("uid", waiter())
        kueue.error = error
        await asyncio.sleep(FIRST_LOOK_SECONDS + 1)
        found = queues.state_of("uid")
        assert found is not None
        assert (found.stage, found.message) == (stage, str(error))
        kueue.error, kueue.taken = None, {"uid"}
        await asyncio.sleep(LOOK_SECONDS[1])
        found = queues.state_of("uid")
        assert found is not None
        assert found.stage is Stage.WAITS

    play(work)


def test_an_error_that_passes_changes_nothing() -> None:
    async def work(kueue: Kueue, queues: Queues) -> None:
        one = waiter()
        queues.add("uid", one)
        kueue.taken = {"uid"}
        await queues.look(["uid"])
        before = queues.state_of("uid")
        assert is_woken(one)
        kueue.error = ClusterError("list", "busy")
        await asyncio.sleep(2 * LOOK_SECONDS[1])
        assert len(kueue.asked) >= 3
        assert queues.state_of("uid") is before
        assert not is_woken(one)

    play(work)
