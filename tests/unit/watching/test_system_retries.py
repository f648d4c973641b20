"""Whether and when a job runs again after the cluster has ended it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.watching import system_retries
from airflow_kftrain.watching.system_retries import disruption, paused, told_earlier
from tests.unit.monitoring.samples import ended, worker

ORDER = WatchOrder(JobReference("PyTorchJob", "ml", "train", "u"), "v1", system_retries=2)
WORDS = "worker-0: Evicted (the node was low on resources)"
EVICTED = [worker(0, ended(137, 60), reason="Evicted")]


def tried(order: WatchOrder, **given: Any) -> str:
    verdict, state = (
        given.get("verdict", Verdict.FAILED),
        JobState(given.get("phase", Phase.FAILED)),
    )
    return disruption(order, verdict, state, given.get("pods", EVICTED))


def test_an_evicted_job_runs_again() -> None:
    assert tried(ORDER) == WORDS


@pytest.mark.parametrize(
    ("order", "given"),
    [
        (ORDER._replace(system_retries=0), {}),
        (ORDER._replace(earlier=("a", "b")), {}),
        (ORDER, {"phase": Phase.GONE}),
        (ORDER, {"phase": Phase.RUNNING}),  # our own verdict: it may be alive
        (ORDER, {"phase": Phase.RESTARTING}),
        (ORDER, {"verdict": Verdict.TIMED_OUT}),
        (ORDER, {"verdict": Verdict.SUCCEEDED, "phase": Phase.SUCCEEDED}),
        (ORDER, {"pods": [worker(0, ended(137, 60))]}),
        (ORDER, {"pods": []}),
    ],
)
def test_nothing_else_does(order: WatchOrder, given: dict[str, Any]) -> None:
    assert tried(order, **given) == ""


def waited(order: WatchOrder, finished: datetime, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The outcome, the seconds until it comes, and what is logged."""
    slept: list[float] = []
    lines: list[str] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(system_retries.asyncio, "sleep", sleep)
    outcome = Outcome(Verdict.FAILED, disruption=WORDS, finished=finished)
    return asyncio.run(paused(order, outcome, lines.append)), slept, lines


@pytest.mark.parametrize(("earlier", "seconds"), [(0, 10), (1, 60), (2, 300), (3, 300), (9, 300)])
def test_the_pause_counts_from_the_end_of_the_job(
    earlier: int, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = datetime.now(timezone.utc) - timedelta(seconds=4)
    order = ORDER._replace(earlier=("x",) * earlier, system_retries=10)
    outcome, slept, lines = waited(order, finished, monkeypatch)
    assert outcome.disruption == WORDS
    assert slept == [pytest.approx(seconds - 4, abs=1)]
    (line,) = lines
    assert line.startswith(f"System retry {earlier + 1} of 10 at ")
    assert line.endswith(f"The job was ended by the cluster: {WORDS}.")


def test_a_triggerer_that_takes_over_late_does_not_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished = datetime.now(timezone.utc) - timedelta(hours=1)
    assert waited(ORDER, finished, monkeypatch)[1] == [0.0]


def test_there_is_none_after_the_execution_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(timezone.utc)
    order = ORDER._replace(deadline=now + timedelta(seconds=5))
    outcome, slept, lines = waited(order, now, monkeypatch)
    assert (outcome.disruption, slept) == ("", [])
    assert "execution timeout" in lines[0]


def test_the_report_lists_what_ended_the_earlier_jobs() -> None:
    assert told_earlier(ORDER) == ""
    text = told_earlier(ORDER._replace(earlier=(WORDS, "worker-1: NodeLost")))
    assert text == (
        f"\nSystem retries of this try, and why:\n  1. {WORDS}\n  2. worker-1: NodeLost"
    )
