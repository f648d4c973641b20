"""Checking nouns: the small NamedTuples that authors pass to operators and specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from airflow_kftrain.errors import InvalidSpec

Check = Callable[[str, Any], Any]
"""Takes the field's name and its value, returns the value to go on with or raises InvalidSpec."""

Noun = TypeVar("Noun", bound=tuple[Any, ...])


def check_noun(field: str, value: Any, noun: type[Noun]) -> Noun:
    if isinstance(value, noun):
        return value
    raise InvalidSpec(field, f"must be {noun.__name__}(...)", value=value)


def check_fields(field: str, noun: Any, checks: Mapping[str, Check]) -> Any:
    """The noun with every field that is given put through its check."""
    checked = {}
    for name, check in checks.items():
        value = getattr(noun, name)
        if value is not None:
            checked[name] = check(f"{field}.{name}", value)
        elif noun._field_defaults.get(name, "needed") is not None:
            raise none_given(f"{field}.{name}", needed=name not in noun._field_defaults)
    return noun._replace(**checked)


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the fields that have a value; 0 and "" are values."""
    return {name: value for name, value in fields.items() if value is not None}


def none_given(field: str, *, needed: bool) -> InvalidSpec:
    """The error for a None where None has no meaning."""
    advice = "" if needed else "Leave it out for the default."
    return InvalidSpec(field, "must not be None", advice=advice)
