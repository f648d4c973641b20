"""docs/conformance.md, as the scenarios write it."""

from __future__ import annotations

from tests.cluster.table import FILE, read_page, written_page


def test_a_run_on_one_target_keeps_what_is_said_of_the_other() -> None:
    page = FILE.read_text(encoding="utf-8")
    results = read_page(page)
    scenarios = sorted({(area, text) for area, text, _ in results})
    assert written_page(scenarios, results) == page


def test_every_scenario_passes_on_the_real_target_and_here_or_says_why_not() -> None:
    for (area, text, target), result in read_page(FILE.read_text(encoding="utf-8")).items():
        says_why = target == "local" and result.startswith("– (")
        assert result == "passed" or says_why, f"{area}: {text} on {target}: {result}"
