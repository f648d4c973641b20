"""Single values: what is accepted, and what it becomes."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain import InvalidSpec
from airflow_kftrain.specs import values
from airflow_kftrain.specs.later import LATER

FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}

numbers = st.one_of(
    st.integers(0, 10**9).map(str),
    st.decimals(0, 10**6, places=3).map(lambda number: f"{number:f}"),
    st.integers(0, 999).map(lambda number: f".{number:03}"),
    st.integers(0, 999).map(lambda number: f"{number}."),
)
quantities = st.tuples(numbers, st.sampled_from(sorted(FACTORS)))
settle = settings(deadline=None, max_examples=100)


def size(number: str, suffix: str) -> Decimal:
    return Decimal(number if number[-1] != "." else number[:-1]) * FACTORS[suffix]


@pytest.mark.parametrize(
    ("written", "number"), [(3, 3), ("3", 3), (" 3 ", 3), ("-0", 0), ("007", 7), (0, 0)]
)
def test_a_rendered_number_becomes_one(written: Any, number: int) -> None:
    checked = values.whole_number("count", written)
    assert checked == number
    assert type(checked) is int


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (timedelta(minutes=2), 120),
        (timedelta(0), 0),
        (timedelta(milliseconds=2000), 2),
        (90, 90),
        ("90", 90),
    ],
)
def test_a_duration_becomes_seconds(written: Any, number: int) -> None:
    assert values.seconds("ttl", written) == number


@pytest.mark.parametrize(
    ("written", "flag"), [(True, True), (False, False), ("True", True), (" false ", False)]
)
def test_a_rendered_flag_becomes_one(written: Any, flag: bool) -> None:
    assert values.flag("suspend", written) is flag


@pytest.mark.parametrize("written", [1, 0, "yes", "", None, "0"])
def test_a_flag_is_not_guessed(written: Any) -> None:
    with pytest.raises(InvalidSpec, match="must be True or False"):
        values.flag("suspend", written)


def test_numbers_within_a_command_become_words() -> None:
    assert values.text_list("args", ("--rate", 0.1, "--epochs", 3)) == [
        "--rate",
        "0.1",
        "--epochs",
        "3",
    ]


@pytest.mark.parametrize(
    ("amount", "written"),
    [(2, "2"), (0.5, "0.5"), ("500m", "500m"), (" 32Gi ", "32Gi"), ("1e3", "1e3"), (".5", ".5")],
)
def test_an_amount_becomes_text_since_a_float_would_be_refused(amount: Any, written: str) -> None:
    assert values.quantity("cpu", amount) == written


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1000m"),
        ("1Ki", "1024"),
        ("1k", "1000"),
        ("1.5Gi", "1536Mi"),
        ("1e3", "1k"),
        ("1E3", "1k"),
        ("1E", "1e18"),
        ("5e-1", "500m"),
        ("1e+2", "100"),
        (".5", "500m"),
        ("1.", "1"),
    ],
)
def test_the_same_amount_may_be_written_in_two_ways(one: str, other: str) -> None:
    assert values.nano_units(one) == values.nano_units(other)


@pytest.mark.parametrize("written", ["", ".", "Gi", "1 Gi", "1KiB", "0x1"])
def test_what_is_no_amount_has_no_size(written: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        values.nano_units(written)


@settle
@given(quantities, quantities)
def test_amounts_are_ordered_as_their_sizes(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = values.nano_units("".join(one)), values.nano_units("".join(other))
    if size(*one) <= size(*other):
        assert first <= second
    else:
        assert first >= second


@settle
@given(quantities)
def test_the_size_of_an_amount_is_exact(amount: tuple[str, str]) -> None:
    written = "".join(amount)
    assert values.quantity("memory", written) == written
    assert values.nano_units(written) == int(size(*amount) * 10**9)


@settle
@given(st.integers(0, 10**6), st.integers(-9, 9))
def test_powers_of_ten_are_read(digits: int, power: int) -> None:
    expected = int(Decimal(digits).scaleb(power) * 10**9)
    assert values.nano_units(f"{digits}e{power}") == expected


@pytest.mark.parametrize("value", ["", "a", "A-b_c.D", "x" * 63, "0"])
def test_legal_label_values_are_taken(value: str) -> None:
    assert values.label_value("labels['a']", value) == value


@pytest.mark.parametrize("value", ["-a", "a-", "a b", "x" * 64, "ä", "a/b", "a\n"])
def test_illegal_label_values_are_refused(value: str) -> None:
    with pytest.raises(InvalidSpec, match="is not a valid label value"):
        values.label_value("labels['a']", value)


@pytest.mark.parametrize("key", ["a", "example.com/a", "a.b-c_d", "x" * 63, "kueue.x-k8s.io/q-n"])
def test_legal_keys_are_taken(key: str) -> None:
    assert values.label_map("labels", {key: "x"}) == {key: "x"}


@pytest.mark.parametrize("name", ["a", "a-b", "0", "x" * 63])
def test_legal_names_are_taken(name: str) -> None:
    assert values.object_name("name", name) == name


@pytest.mark.parametrize("name", ["", "A", "a_b", "a.b", "-a", "a-", "x" * 64, None, 5])
def test_illegal_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidSpec, match="is not a valid name"):
        values.object_name("name", name)


@pytest.mark.parametrize(
    "check",
    [
        values.whole_number,
        values.seconds,
        values.flag,
        values.text,
        values.text_list,
        values.quantity,
        values.object_name,
        values.label_value,
        values.label_map,
        values.annotation_map,
        lambda field, value: values.one_of(field, value, ["a"]),
    ],
)
def test_what_is_not_known_yet_passes_every_check(check: Any) -> None:
    assert check("field", LATER) is LATER
