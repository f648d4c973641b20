"""What a training may leave as its result: not all that is JSON to Python can be an XCom.

What Airflow cannot store would fail the task after all has gone well, when the job is deleted: so
it is found before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

_DEEPEST = 50
_LEAST_NUMBER, _MOST_NUMBER = -(2**63), 2**64 - 1
"""What a task can tell its supervisor."""
_KEPT_KEYS = frozenset({"__classname__", "__id__"})
"""By these Airflow knows an object that it has taken apart."""


class NotStorable(ValueError):
    """Says what, and what to do."""


def storable(value: Any) -> Any:
    """The value; raises NotStorable."""
    _check(value, _DEEPEST)
    return value


def _check(value: Any, depth: int) -> None:
    if depth < 0:
        raise NotStorable(f"it is nested more than {_DEEPEST} deep. Write it flatter.")
    if isinstance(value, dict):
        _check_all((*value, *value.values()), depth)
        if kept := _KEPT_KEYS.intersection(value):
            raise NotStorable(f"the key {min(kept)} is Airflow's own. Choose another.")
    elif isinstance(value, list):
        _check_all(value, depth)
    elif problem := _problem(value):
        raise NotStorable(problem)


def _check_all(values: Iterable[Any], depth: int) -> None:
    for each in values:
        _check(each, depth - 1)


def _problem(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no number in JSON. Write null, or a text."
    if isinstance(value, int) and not _LEAST_NUMBER <= value <= _MOST_NUMBER:
        return "a whole number has more than 64 bits. Write it as a text."
    if isinstance(value, str) and ("\0" in value or not _is_text(value)):
        return "a text has characters that no database takes. Leave them out."
    return ""


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
