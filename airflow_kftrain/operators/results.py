"""Checks the result of a training: not everything that Python reads as JSON can be an XCom.

A result that Airflow cannot store would fail the task at the very end, when the job is deleted
already. So it is rejected before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

_DEEPEST = 50
_LEAST_NUMBER, _MOST_NUMBER = -(2**63), 2**64 - 1
"""The limits of the protocol between a task and its supervisor."""
_KEPT_KEYS = frozenset({"__classname__", "__id__"})
"""Keys that Airflow uses for serialized objects."""


class NotStorable(ValueError):
    """Says what is wrong, and what to do."""


def storable(value: Any) -> Any:
    """The value. Raises NotStorable."""
    _check(value, _DEEPEST)
    return value


def _check(value: Any, depth: int) -> None:
    if depth < 0:
        raise NotStorable(f"it has more than {_DEEPEST} levels. Use fewer.")
    if isinstance(value, dict):
        _check_all((*value, *value.values()), depth)
        if kept := _KEPT_KEYS.intersection(value):
            raise NotStorable(f"the key {min(kept)} is reserved by Airflow. Choose another.")
    elif isinstance(value, list):
        _check_all(value, depth)
    elif problem := _problem(value):
        raise NotStorable(problem)


def _check_all(values: Iterable[Any], depth: int) -> None:
    for each in values:
        _check(each, depth - 1)


def _problem(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number in JSON. Write null or a string."
    if isinstance(value, int) and not _LEAST_NUMBER <= value <= _MOST_NUMBER:
        return "an integer has more than 64 bits. Write it as a string."
    if isinstance(value, str) and ("\0" in value or not _is_text(value)):
        return "a string has characters that databases reject. Remove them."
    return ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
