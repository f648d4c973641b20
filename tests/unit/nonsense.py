"""Strategies for data that an API server should never send, and that readers have to tolerate."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TIMES = (
    "2026-11-21T10:00:00Z",
    "2026-11-21T10:00:05.123456Z",
    "2026-11-21T10:00:00+02:00",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    "2026-11-21",
    "soon",
)
NUMBERS = (0, 1, -1, 143, 2**31, 2**63 - 1, 2**63, -(2**63), 10**400, 1.5, float("inf"))
TEXTS = ("", "True", "False", "Unknown", "null", "\ud800", "{image}", "a\nb\r\x00", "x" * 5000)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(TIMES + TEXTS),
    st.sampled_from(NUMBERS),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def spoiled(draw: st.DrawFn, sample: Any) -> Any:
    """A real object in which some values are nonsense, and others are missing."""
    if draw(st.integers(0, 11)) == 0:
        return draw(JSON)
    if isinstance(sample, dict):
        return {
            key: draw(spoiled(value)) for key, value in sample.items() if draw(st.integers(0, 15))
        }
    if isinstance(sample, list):
        return [draw(spoiled(value)) for value in sample]
    return sample
