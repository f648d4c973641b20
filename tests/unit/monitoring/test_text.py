"""Shortening the texts of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.monitoring.text import (
    WIDTH,
    both_ends,
    last_lines,
    listed,
    one_line,
    place,
    sentence,
    wrapped,
)
from tests.unit.nonsense import TEXTS


@pytest.mark.parametrize(
    ("text", "line"),
    [("", ""), ("a\n  b\tc ", "a b c"), ("x" * 11, "xxxxxxx..."), ("half \ud800", "half ?")],
)
def test_a_text_becomes_one_short_line(text: str, line: str) -> None:
    assert one_line(text, 10) == line


def test_what_is_cut_in_the_middle_keeps_both_ends() -> None:
    assert both_ends("a\nb") == "a b"
    assert both_ends("x" * 300) == "x" * 300
    cut = both_ends("the head" + "x" * 300 + "the end")
    assert (len(cut), cut[:8], cut[-7:]) == (300, "the head", "the end")
    assert " ... " in cut


def test_the_last_lines_are_kept_and_what_is_left_out_is_marked() -> None:
    assert last_lines("a\n\nb\nc\n", 2, 100) == ["...", "b", "c"]
    assert last_lines("a\n\nb\nc\n", 3, 100) == ["a", "b", "c"]
    assert last_lines("one\ntwo\nthree", 9, 10) == ["...", "two", "three"]
    assert last_lines(" \n", 9, 10) == []


def test_size_is_counted_in_bytes() -> None:
    assert last_lines("\u00e4\u00e4\u00e4\n\u00e4\u00e4", 9, 11) == ["...", "\u00e4\u00e4"]


def test_of_a_progress_bar_the_last_state_is_kept() -> None:
    assert last_lines("1%\r2%\r100%\r\ndone\r\n", 9, 100) == ["100%", "done"]


def test_a_line_without_end_is_cut() -> None:
    (marker, line) = last_lines("x" * 10_000, 9, 500)
    assert marker == "..."
    assert len(line) == 300
    assert line.endswith("...")


@given(st.one_of(st.text(), st.sampled_from(TEXTS)), st.integers(1, 5), st.integers(1, 400))
def test_the_last_lines_are_within_their_bounds(text: str, lines: int, size: int) -> None:
    kept = [line for line in last_lines(text, lines, size) if line != "..."]
    assert len(kept) <= lines
    assert len("\n".join(kept).encode()) <= size


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b and 2 more"),
    ],
)
def test_many_names_are_counted(names: list[str], text: str) -> None:
    assert listed(names) == text


def test_a_place_names_what_is_known() -> None:
    assert place("worker-1", "pytorch") == "worker-1, container pytorch"
    assert place("some-pod", "") == "some-pod"


def test_lines_of_ours_are_wrapped_and_lines_of_others_are_not() -> None:
    ours = "  " + "word " * 40
    first, *rest = wrapped(ours.rstrip()).split("\n")
    assert first.startswith("  word")
    assert all(line.startswith("    word") for line in rest)
    theirs = "    " + "x" * 300
    assert wrapped(f"short\n{theirs}") == f"short\n{theirs}"


@given(st.one_of(st.text(), st.sampled_from(TEXTS)))
def test_no_line_of_ours_is_long_and_no_word_is_lost(text: str) -> None:
    line = one_line(text)
    lines = wrapped(line).split("\n")
    assert all(len(each) <= WIDTH for each in lines)
    assert "".join(wrapped(line).split()) == "".join(line.split())


def test_a_sentence_ends_once() -> None:
    assert [sentence(text) for text in ("a", "a.", "a!")] == ["a.", "a.", "a!"]
