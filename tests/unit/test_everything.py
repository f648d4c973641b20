"""scripts/everything.py: what of `make everything` has not run since something changed."""

from __future__ import annotations

from pathlib import Path

from scripts.everything import SUITES, not_run_since, read, written

RUN = Path(__file__).parents[2] / ".ci" / "run"

BEFORE = {"code": "1a", "tests": "2b", "constraints": "3c", "python": "3.11"}


def test_what_has_run_on_what_is_there_is_not_told() -> None:
    assert not_run_since({"make a": BEFORE}, {"make a": BEFORE}) == []


def test_a_suite_is_told_with_what_has_changed() -> None:
    noted = {"make a": BEFORE, "make b": BEFORE}
    now = {"make a": BEFORE | {"code": "9f", "python": "3.12"}, "make b": BEFORE}
    assert not_run_since(noted, now) == ["make a: changed since: code, python"]


def test_a_suite_that_is_not_noted_is_told() -> None:
    assert not_run_since({}, {"make a": BEFORE}) == ["make a: it is not noted that it ever ran"]


def test_a_suite_that_is_no_longer_there_is_not_told() -> None:
    assert not_run_since({"make gone": BEFORE}, {}) == []


def test_what_is_written_is_read_again_a_line_a_suite() -> None:
    noted = {"make b on Python 3.12": BEFORE, "make a": BEFORE}
    text = written(noted)
    assert read(text) == noted
    assert [line.partition(":")[0] for line in text.splitlines()] == sorted(noted)


def test_ci_notes_each_suite_by_its_name() -> None:
    text = RUN.read_text(encoding="utf-8").replace("$version", "3.10")
    names = {suite.replace("3.11", "3.10").replace("3.12", "3.10") for suite in SUITES}
    assert {name for name in names if f'noted_step "{name}"' not in text} == set()
