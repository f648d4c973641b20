"""LATER stands for a value that is known only when the task runs: a template, an XCom.

When a DAG file is parsed, operators check as much as they can: they replace such values (`mask`),
and build the same spec and manifest as later. Every check accepts LATER, so there is only one set
of checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final


class _Later:
    __slots__ = ()

    def __repr__(self) -> str:
        return "<known when the task runs>"


LATER: Final[Any] = _Later()

_TEMPLATE_MARKS = ("{{", "{%", "{#")


def is_template(text: str) -> bool:
    return any(mark in text for mark in _TEMPLATE_MARKS)


def mask(value: Any) -> Any:
    """A copy of `value` with LATER instead of templates and references to other tasks.

    Only the values of a mapping are replaced: Airflow does not render keys either.
    """
    if isinstance(value, str):
        return LATER if is_template(value) else value
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item) for item in value]
    if isinstance(value, tuple):
        items = (mask(item) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    # Airflow's XComArg and similar classes. They are recognised by their methods, since this layer
    # does not import Airflow.
    if hasattr(value, "iter_references") and hasattr(value, "resolve"):
        return LATER
    return value


def any_later(values: Iterable[object]) -> bool:
    return any(value is LATER for value in values)
