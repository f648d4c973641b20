"""The check at parse: all that is known is held to the same rules, what is not yet known is left
alone, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_kftrain import (
    build_manifest,
)
from airflow_kftrain.manifests import check_given

from .rich_specs import rich_specs

Path = tuple[int | str, ...]
NAMES = list(rich_specs())


class ValueOfAnotherTask:
    """What a reference to another task's result looks like to this package."""

    def resolve(self, context: object) -> object:
        raise AssertionError("nothing may be resolved at parse")

    def iter_references(self) -> Iterator[object]:
        raise AssertionError("nobody may look behind it at parse")


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place within a value where something stands, the value itself among them."""
    if value is None:
        return
    yield path
    if hasattr(value, "_fields"):
        items: list[tuple[Any, Any]] = [(name, getattr(value, name)) for name in value._fields]
    elif isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        items = []
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(value: Any, path: Path, by: Any) -> Any:
    """A copy of a value with something else in one place."""
    if not path:
        return by
    key, rest = path[0], path[1:]
    if hasattr(value, "_fields"):
        return value._replace(**{str(key): replaced(getattr(value, str(key)), rest, by)})
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], rest, by)}
    copied = list(value)
    copied[int(key)] = replaced(copied[int(key)], rest, by)
    return type(value)(copied)


def refusals(name: str, unknown: Any) -> list[str]:
    spec_type, given = rich_specs()[name]
    found = []
    for path in places(given):
        if not path:
            continue
        try:
            check_given(spec_type, replaced(given, path, unknown))
        except Exception as error:  # noqa: BLE001, any error at all is what is looked for
            found.append(f"{path}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_specs_that_are_all_known_are_accepted(name: str) -> None:
    spec_type, given = rich_specs()[name]
    check_given(spec_type, given)
    build_manifest(spec_type(**given))


@pytest.mark.parametrize("name", NAMES)
def test_a_template_may_stand_anywhere(name: str) -> None:
    assert refusals(name, "{{ params.x }}") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_result_of_another_task_may_stand_anywhere(name: str) -> None:
    assert refusals(name, ValueOfAnotherTask()) == []
