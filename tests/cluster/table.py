"""Writes docs/conformance.md: every scenario, and how it went on each target.

The table is written when a run has tried every scenario. It has no dates and no durations, so that
it changes only when a scenario or a result does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

FILE = Path(__file__).parents[2] / "docs" / "conformance.md"

_HEAD = """\
# Conformance

What a cluster with training operators does, as far as this project leans on it. Each line is a
scenario of `tests/cluster`, run by `make test-real` on a real control plane (its versions are in
[control-plane.md](control-plane.md)) with the project's node agent
([local-agent.md](local-agent.md)). The suite writes this page.
"""


class Scenario(NamedTuple):
    area: str
    """The first line of the module's docstring."""
    text: str
    """What the test's name says."""
    file_name: str


def scenario_of(item: pytest.Item) -> Scenario:
    assert isinstance(item, pytest.Function)
    name = item.originalname.removeprefix("test_")
    module = item.module.__name__.rpartition(".")[2].removeprefix("test_")
    case = _case(item)
    text = name.replace("_", " ") + (f" ({case})" if case else "")
    file_name = re.sub(r"[^\w.-]+", "-", ".".join([module, name, *([case] if case else [])]))
    area = (item.module.__doc__ or module).strip().partition("\n")[0].rstrip(".")
    return Scenario(area, text, file_name)


def _case(item: pytest.Function) -> str:
    """The id of its parameters, without the target's."""
    return re.sub(r"(^|-)real(-|$)", "", item.callspec.id)


class Table:
    def __init__(self) -> None:
        self._results: dict[Scenario, str] = {}
        self._whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Only a run of everything in this folder may write."""
        items = [item for item in session.items if "target" in getattr(item, "fixturenames", ())]
        self._scenarios = {item.nodeid: scenario_of(item) for item in items}
        modules = {Path(item.path) for item in items}
        all_modules = {file for file in Path(__file__).parent.glob("test_*.py")}
        config = session.config
        narrowed = config.option.keyword or config.option.markexpr or config.option.collectonly
        chosen = any("::" in argument for argument in config.args)
        self._whole = modules == all_modules and not narrowed and not chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        scenario = self._scenarios.get(report.nodeid)
        if scenario is None or (report.when != "call" and report.passed):
            return
        if self._results.get(scenario, "passed") == "passed":
            self._results[scenario] = _word(report)

    def pytest_sessionfinish(self) -> None:
        if self._whole and len(self._results) == len(self._scenarios):
            FILE.write_text("\n".join(self._lines()), encoding="utf-8")

    def _lines(self) -> Iterator[str]:
        passed = sum(result == "passed" for result in self._results.values())
        yield _HEAD
        yield f"{len(self._results)} scenarios; on the real target {passed} passed."
        area = ""
        for scenario, result in sorted(self._results.items()):
            if scenario.area != area:
                area = scenario.area
                yield from ("", f"## {area}", "", "| scenario | real |", "| --- | --- |")
            yield f"| {scenario.text} | {result} |"
        yield ""


def _word(report: pytest.TestReport) -> str:
    if not report.skipped:
        return "passed" if report.passed else "FAILED"
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return why.replace("|", "/")
