"""Templates and references to other tasks are recognised and not changed."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain import Replica, Resources
from airflow_kftrain.specs.later import LATER, any_later, mask


class Reference:
    def resolve(self) -> None: ...

    def iter_references(self) -> None: ...


class OnlyResolves:
    def resolve(self) -> None: ...


@pytest.mark.parametrize(
    "value", ["{{ ds }}", "day={{ ds }}", "{% if x %}1{% endif %}", "{# note #}", Reference()]
)
def test_what_is_known_later_is_masked(value: Any) -> None:
    assert mask(value) is LATER


@pytest.mark.parametrize("value", ["a", "", "{ds}", "}}", 0, None, False, 1.5])
def test_what_is_known_is_kept(value: Any) -> None:
    assert mask(value) is value


def test_an_object_is_only_a_reference_if_it_has_both_methods() -> None:
    value = OnlyResolves()
    assert mask(value) is value


def test_every_value_within_is_looked_at_and_no_key() -> None:
    given = {"{{ key }}": ["a", "{{ b }}", ("{{ c }}", "d")]}
    assert mask(given) == {"{{ key }}": ["a", LATER, (LATER, "d")]}


def test_nouns_stay_nouns() -> None:
    given = Replica(count="{{ n }}", container_resources=Resources(cpu=("{{ a }}", 2)))
    assert mask(given) == Replica(count=LATER, container_resources=Resources(cpu=(LATER, 2)))


def test_nothing_is_changed_in_place() -> None:
    given = {"args": ["{{ a }}"]}
    mask(given)
    assert given == {"args": ["{{ a }}"]}


def test_it_is_told_by_identity() -> None:
    class EqualToAll:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert not any_later([EqualToAll(), None, "LATER"])
    assert any_later([1, LATER])


def test_it_reads_as_what_it_is() -> None:
    assert repr(LATER) == "<known when the task runs>"
