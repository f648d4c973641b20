"""How long an event is held back, with a virtual clock."""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

from airflow_kftrain.triggers import holding
from airflow_kftrain.triggers.holding import (
    EACH,
    LATELY,
    LEAST,
    LONGEST,
    note_start,
    until_worker_has_ended,
)
from tests.unit.watching.virtual_time import run


@pytest.fixture(autouse=True)
def _no_other_task():
    holding._starts.clear()


def held(*, stored_after=0.0, late=1.0, ago=0.0, fails=False):
    """Returns seconds. The worker stores its links so many seconds after the event could be fired,
    the trigger started `late` seconds after the deferral, and that was `ago` seconds ago."""
    asked = []

    async def is_stored():
        asked.append(1)
        if fails:
            raise RuntimeError("Airflow does not answer")
        return asyncio.get_running_loop().time() >= stored_after

    async def measured():
        clock = asyncio.get_running_loop().time
        began = clock()
        ordered = datetime.now(timezone.utc) - timedelta(seconds=ago)
        await until_worker_has_ended(ordered, ordered + timedelta(seconds=late), LEAST, is_stored)
        return clock() - began

    seconds = run(measured())
    return seconds, len(asked)


@pytest.mark.parametrize(
    ("late", "margin"),
    [(0.0, 2.0), (0.5, 1.5), (1.0, 1.0), (2.0, 1.0), (3.0, 5.0), (20.0, 73.0)],
)
def test_the_later_a_trigger_is_beyond_the_usual_the_longer_is_its_event_held(late, margin):
    """On an idle machine, until 2 seconds after the deferral and one second after the sign."""
    seconds, asked = held(late=late)
    assert seconds == pytest.approx(margin, abs=0.01)
    assert asked == 1


@pytest.mark.parametrize(
    ("stored_after", "least", "most"), [(0.2, 1.2, 1.5), (1.6, 7.0, 9.5), (7.0, 34.0, 48.0)]
)
def test_it_waits_for_the_sign_and_the_longer_the_later_that_is(stored_after, least, most):
    seconds, asked = held(stored_after=stored_after, late=1.0)
    assert least <= seconds <= most
    assert asked <= 12


@pytest.mark.parametrize(
    "given",
    [{"stored_after": 1e9}, {"fails": True}, {"late": 1e6}],
    ids=["no sign", "no answer", "late"],
)
def test_never_longer_than_two_minutes_after_the_deferral(given):
    assert held(**given)[0] == pytest.approx(LONGEST.total_seconds(), abs=0.5)
    assert held(**given, ago=100.0)[0] == pytest.approx(20.0, abs=0.5)


def test_a_training_of_more_than_two_minutes_costs_nothing():
    assert held(ago=121.0) == (0.0, 0)


def test_a_clock_of_the_worker_that_is_ahead_makes_no_shorter_hold():
    seconds, _ = held(late=-30.0, ago=-30.0)
    assert seconds >= LEAST.total_seconds()


def test_the_more_events_are_held_back_the_longer_each_waits():
    async def held_together(count):
        clock = asyncio.get_running_loop().time
        began, now = clock(), datetime.now(timezone.utc)
        await asyncio.gather(
            *(until_worker_has_ended(now, now, LEAST, stored) for _ in range(count))
        )
        return clock() - began

    alone, many = run(held_together(1)), run(held_together(61))
    assert alone == pytest.approx(LEAST.total_seconds(), abs=0.01)
    assert many == pytest.approx((LEAST + 60 * EACH).total_seconds(), abs=0.01)


async def stored():
    return True


def held_beside(others, *, when=0.0, ordered_ago=0.0):
    """The seconds for which one event is held back. So many other triggers start at that second;
    their tasks were deferred so many seconds before."""

    async def measured():
        clock = asyncio.get_running_loop().time
        began, now = clock(), datetime.now(timezone.utc)
        hold = asyncio.create_task(until_worker_has_ended(now, now, LEAST, stored))
        if when:  # the hold begins with the first pause here
            await asyncio.sleep(when)
        for _ in range(1 + others):
            note_start(now - timedelta(seconds=ordered_ago))
        await hold
        return clock() - began

    return run(measured())


@pytest.mark.parametrize("when", [0.0, 1.9], ids=["before", "meanwhile"])
def test_the_more_tasks_were_deferred_lately_the_longer_an_event_waits(when):
    assert held_beside(20, when=when) == pytest.approx((LEAST + 20 * EACH).total_seconds())


def test_tasks_that_were_deferred_earlier_cost_nothing():
    """Neither if their triggers start now, in another triggerer, nor if that was a while ago."""
    assert held_beside(20, ordered_ago=121.0) == pytest.approx(LEAST.total_seconds())

    async def held_after_others():
        clock = asyncio.get_running_loop().time
        for _ in range(20):
            note_start(datetime.now(timezone.utc))
        await asyncio.sleep(LATELY.total_seconds())
        began, now = clock(), datetime.now(timezone.utc)
        await until_worker_has_ended(now, now, LEAST, stored)
        return clock() - began

    assert run(held_after_others()) == pytest.approx(LEAST.total_seconds())
