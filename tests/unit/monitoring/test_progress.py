"""What a program prints about its progress, and what is shown of it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.job_state import Reported
from airflow_kftrain.monitoring.progress import (
    LONGEST_LINE,
    MOST_METRICS,
    MOST_POINTS,
    Progress,
    Report,
    read_line,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def line(**said: Any) -> str:
    return json.dumps({"kftrain": said})


def after(*reports: tuple[float, Report]) -> Progress:
    """`reports`: seconds from NOW, and what is reported then."""
    progress = Progress()
    progress.take((NOW + timedelta(seconds=seconds), report) for seconds, report in reports)
    return progress


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (line(step=1), Report(1)),
        (line(step=120, total=1000, metrics={"loss": 1}), Report(120, 1000, {"loss": 1.0})),
        (f"INFO train {{x}}: {line(step=0, total=9)} [rank 0]", Report(0, 9)),
        (line(metrics={"loss": 0.5}), Report(metrics={"loss": 0.5})),
        (line(step=1, more="unknown"), Report(1)),
        (line(step=1, metrics={"a": "x", "b": True, "c": None, "d": 10**400}), Report(1)),
        (line(step=1, metrics={"": 1.0, "x" * 65: 1.0, "a\nb": 1.0}), Report(1)),
        ('{"kftrain": {"step": 1, "metrics": {"a": NaN, "b": Infinity}}}', Report(1)),
        (line(step=-1), None),
        (line(step=True), None),
        (line(step=2**63), None),
        (line(step=1.5), None),
        (line(total=5), None),
        ('{"kftrain": [1]}', None),
        ('{"kftrain": {"step": 1}', None),
        ('"kftrain"', None),
        ('{"kftrain": ' + "[" * 5000, None),
        (line(step=1, more="x" * LONGEST_LINE), None),
        ("", None),
    ],
)
def test_a_line(text: str, report: Report | None) -> None:
    assert read_line(text) == report


@given(st.text(), st.recursive(st.none() | st.floats() | st.text(), st.lists))
def test_no_line_raises(text: str, value: Any) -> None:
    for said in (text, f'{{"kftrain"{text}', json.dumps({"kftrain": {"metrics": value}})):
        read_line(said)


def test_the_estimated_end_follows_the_speed() -> None:
    progress = after((0, Report(100, 1000)), (90, Report(190, 1000)))
    assert progress.percent == 19.0
    assert progress.ends == NOW + timedelta(seconds=90 + 810)
    assert progress.words() == "step 190 of 1000 (19 %), done at about 2026-01-01 12:15 UTC"


def test_a_training_that_goes_back_to_a_checkpoint() -> None:
    """The time before counts no longer."""
    progress = after((0, Report(0, 100)), (10, Report(90)), (20, Report(50)), (30, Report(60)))
    assert progress.ends == NOW + timedelta(seconds=70)


@pytest.mark.parametrize(
    ("reports", "percent", "ends"),
    [
        ([(0, Report(5))], None, None),
        ([(0, Report(5, 10))], 50.0, None),
        ([(0, Report(5, 0)), (9, Report(6, 0))], None, None),
        ([(0, Report(5, 10)), (0, Report(6, 10))], 60.0, None),
        ([(0, Report(5, 10)), (9, Report(12, 10))], 100.0, None),
        ([(0, Report(0, 2**62)), (9, Report(1, 2**62))], 0.0, None),
        ([(0, Report(9, 10)), (5, Report(10, 10))], 100.0, NOW + timedelta(seconds=5)),
    ],
)
def test_what_has_no_estimate(
    reports: list[tuple[float, Report]], percent: float | None, ends: datetime | None
) -> None:
    progress = after(*reports)
    assert (progress.percent, progress.ends) == (percent, ends)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9)), max_size=2000))
def test_curves_keep_their_ends_and_do_not_grow(points: list[tuple[float, float]]) -> None:
    ordered = sorted(points)
    progress = after(*((at, Report(metrics={"loss": value})) for at, value in ordered))
    curve = progress.curves.get("loss", [])
    assert len(curve) <= MOST_POINTS
    assert [at for at, _ in curve] == sorted(at for at, _ in curve)
    if ordered:
        values = [value for _, value in curve]
        assert (values[0], values[-1]) == (ordered[0][1], ordered[-1][1])


def test_a_long_training_keeps_the_whole_curve() -> None:
    seconds = range(0, 30 * 24 * 3600, 60)
    curve = after(*((at, Report(metrics={"loss": -at})) for at in seconds)).curves["loss"]
    gaps = [(b[0] - a[0]).total_seconds() for a, b in zip(curve, curve[1:], strict=False)]
    assert MOST_POINTS / 2 <= len(curve) <= MOST_POINTS
    assert max(gaps) < 4 * max(min(gaps[:-1]), 1)


def test_the_first_metrics_are_kept() -> None:
    progress = after((0, Report(metrics={f"m{n}": n for n in range(1000)})))
    assert list(progress.curves) == [f"m{n}" for n in range(MOST_METRICS)]
    assert len(json.dumps(progress.to_dict())) < 1000


def test_the_status_of_a_train_job() -> None:
    progress = Progress()
    metrics = (("loss", "0.5"), ("", "1"), ("text", "good"), ("nan", "NaN"))
    progress.take_status(Reported(40, 300, metrics), NOW)
    words = "40 % done, loss 0.5, done at about 2026-01-01 12:05 UTC"
    assert progress.words() == words
    progress.take_status(Reported(41, 2**62), NOW)
    assert progress.to_dict()["percent"] == 41.0
    assert "ends" not in progress.to_dict()


def test_the_value_of_the_xcom() -> None:
    progress = after((0, Report(1, 4, {"loss": 0.5})), (60, Report(2, 4, {"loss": 0.25})))
    assert progress.to_dict() == {
        "step": 2,
        "total": 4,
        "percent": 50.0,
        "ends": "2026-01-01T12:03:00+00:00",
        "latest": {"loss": 0.25},
        "metrics": {
            "loss": [["2026-01-01T12:00:00+00:00", 0.5], ["2026-01-01T12:01:00+00:00", 0.25]]
        },
    }
