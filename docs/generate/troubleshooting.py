"""Generates troubleshooting.md from a handwritten page and the tables in the code."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from airflow_kftrain.monitoring.decisions import _CONDITIONS
from airflow_kftrain.monitoring.failures import _CONTAINER_REASONS, _DISRUPTIONS, _EXIT_CODES
from airflow_kftrain.monitoring.waiting import TROUBLES
from airflow_kftrain.specs.timeouts import Timeouts

_BY_HAND = Path(__file__).with_suffix(".md")


def page() -> str:
    """The whole page."""
    text = _BY_HAND.read_text(encoding="utf-8")
    tables = {"troubles": _troubles(), "conditions": _conditions(), "ends": _ends()}
    for name, rows in tables.items():
        lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        assert f"{{{name}}}" in text
        text = text.replace(f"{{{name}}}", lines)
    return text


def _troubles() -> Iterator[tuple[str, ...]]:
    for name, rule in TROUBLES.items():
        limit = f"`Timeouts.{name}`, {_duration(getattr(Timeouts(), name))}"
        yield f"`... {rule.ended}`", limit, rule.advice, _yes(rule.retryable)


def _conditions() -> Iterator[tuple[str, ...]]:
    for row in _CONDITIONS:
        if row.reason != "DeadlineExceeded":  # the handwritten page has it, together with our own
            said = "`The ... failed:` and the operator's own words"
            yield f"`{row.reason}`", said, row.advice, _yes(row.retryable)


def _ends() -> Iterator[tuple[str, ...]]:
    codes = {f"exit code {code}": meaning for code, meaning in _EXIT_CODES.items()}
    for said, meaning in {**codes, **_CONTAINER_REASONS, **_DISRUPTIONS}.items():
        yield f"`{said}`", meaning.words, meaning.advice


def _yes(retryable: bool) -> str:
    return "yes" if retryable else "no"


def _duration(limit: timedelta | None) -> str:
    if limit is None:
        return "off"
    return f"{int(limit.total_seconds() // 60)} minutes" if limit else "at once"
