import pytest

from airflow_kftrain.watching.reading import _written_before
from tests.unit.monitoring.samples import after

LOG = "2026-11-21T12:00:00.5Z a\n2026-11-21T12:00:07.9Z b c\n"


@pytest.mark.parametrize("end", [None, after(0), after(8)])
def test_lines_that_were_written_before_an_end_are_of_it(end):
    assert _written_before(end, LOG) == "a\nb c\n"


def test_a_log_that_begins_after_an_end_is_of_another_run():
    assert _written_before(after(-2), LOG) == ""


@pytest.mark.parametrize("text", ["", "no time\nat all"])
def test_what_has_no_times_is_taken_as_it_is(text):
    assert _written_before(after(0), text) == text
