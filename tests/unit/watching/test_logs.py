from datetime import datetime, timedelta, timezone

from airflow_kftrain.watching.logs import Cursor

NOON = "2026-11-21T12:00:00"


def lines(cursor, *given):
    return [new.text for line in given if (new := cursor.new(line)) is not None]


def test_lines_are_shown_without_their_times():
    cursor = Cursor()
    assert lines(cursor, f"{NOON}.5Z a b", f"{NOON}.6+02:00  c", f"{NOON}.7Z") == ["a b", " c", ""]


def test_what_comes_twice_is_shown_once():
    cursor = Cursor()
    assert cursor.again() is None
    assert lines(cursor, f"{NOON}.5Z a", f"{NOON}.52Z b") == ["a", "b"]
    assert cursor.again() == datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)
    assert lines(cursor, f"{NOON}.5Z a", f"{NOON}.52Z b", f"{NOON}.523Z c") == ["c"]


def test_lines_of_one_moment_are_told_apart_by_their_number():
    cursor = Cursor()
    assert lines(cursor, f"{NOON}Z a", f"{NOON}Z b") == ["a", "b"]
    cursor.again()
    assert lines(cursor, f"{NOON}Z a", f"{NOON}Z b", f"{NOON}Z c") == ["c"]
    cursor.again()
    assert lines(cursor, f"{NOON}Z a", f"{NOON}Z b", f"{NOON}Z c", f"{NOON}Z d") == ["d"]


def test_a_line_without_a_time_is_shown_as_it_is():
    assert lines(Cursor(), "no time", "") == ["no time", ""]


def test_the_zone_of_a_node_is_heeded():
    cursor = Cursor()
    lines(cursor, f"{NOON}.1+02:00 a")
    assert cursor.again() == datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(hours=2)))


def test_lines_of_several_pods_are_sorted_by_their_moments_whatever_their_zones():
    master = Cursor().all_new(f"{NOON}.123456789Z 1%\r2%\n{NOON}.5Z a\n")
    worker = Cursor().all_new("2026-11-21T14:00:00.6+02:00 b\n")
    told = [line.timed for line in sorted([*worker, *master], key=lambda line: line[:2])]
    assert told == [f"{NOON}.123Z 2%", f"{NOON}.500Z a", f"{NOON}.600Z b"]
