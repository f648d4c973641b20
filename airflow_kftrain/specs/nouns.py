"""Checks nouns: the small NamedTuples that authors pass to operators and specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from airflow_kftrain.errors import InvalidSpec

Check = Callable[[str, Any], Any]
"""Takes the name of a field and its value. Returns the checked value, or raises InvalidSpec."""

Noun = TypeVar("Noun", bound=tuple[Any, ...])
Made = TypeVar("Made")


def answering(cls: type[Made]) -> type[Made]:
    """A noun or a spec that says what to write for a name that it does not have."""
    maker = "__new__" if issubclass(cls, tuple) else "__init__"
    made: Callable[..., Any] = getattr(cls, maker)

    @wraps(made)
    def make(first: Any, *values: Any, **named: Any) -> Any:
        try:
            return made(first, *values, **named)
        except TypeError:
            from airflow_kftrain.specs.unknown_names import fields_of, refuse_unknown

            refuse_unknown(cls.__name__, fields_of(cls), named)
            raise

    setattr(cls, maker, make)
    return cls


def check_noun(field: str, value: Any, noun: type[Noun]) -> Noun:
    if isinstance(value, noun):
        return value
    raise InvalidSpec(field, f"must be {noun.__name__}(...)", value=value)


def check_fields(field: str, noun: Any, checks: Mapping[str, Check]) -> Any:
    """Checks every field of the noun that is given."""
    checked = {}
    for name, check in checks.items():
        value = getattr(noun, name)
        if value is not None:
            checked[name] = check(f"{field}.{name}", value)
        elif noun._field_defaults.get(name, "needed") is not None:
            raise none_given(f"{field}.{name}", needed=name not in noun._field_defaults)
    return noun._replace(**checked)


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value; 0 and "" are values."""
    return {name: value for name, value in fields.items() if value is not None}


def none_given(field: str, *, needed: bool) -> InvalidSpec:
    """The error for None in a field where None has no meaning."""
    advice = "" if needed else "Omit it to use the default."
    return InvalidSpec(field, "must not be None", advice=advice)
