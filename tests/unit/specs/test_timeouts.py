from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec, Timeouts
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.timeouts import check_timeouts


def test_the_defaults_are_fine() -> None:
    assert check_timeouts("timeouts", Timeouts()) == Timeouts()


def test_none_switches_a_limit_off_and_zero_is_at_once() -> None:
    checked = check_timeouts("timeouts", Timeouts(startup=None, image_pull=timedelta(0)))
    assert (checked.startup, checked.image_pull) == (None, timedelta(0))


def test_text_from_a_template_counts_as_seconds() -> None:
    timeouts: Any = Timeouts()._replace(startup="90", operator=LATER)
    checked = check_timeouts("timeouts", timeouts)
    assert (checked.startup, checked.operator) == (timedelta(seconds=90), LATER)


def test_timeouts_known_later_pass() -> None:
    assert check_timeouts("timeouts", LATER) is LATER


@pytest.mark.parametrize(
    ("timeouts", "field"),
    [
        ({"startup": 60}, "timeouts"),
        (Timeouts(startup=timedelta(seconds=-1)), "timeouts.startup"),
        (Timeouts(image_pull="soon"), "timeouts.image_pull"),  # type: ignore[arg-type]
        (Timeouts(crash_loop=timedelta(minutes=5)), "timeouts.crash_loop"),
    ],
)
def test_a_wrong_limit_is_refused_by_name(timeouts: Any, field: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_timeouts("timeouts", timeouts)
    assert refused.value.field == field
