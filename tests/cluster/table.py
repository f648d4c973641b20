"""Writes docs/conformance.md: every scenario, and its result on each target.

A column is written when a run has tried every scenario on its target. There are no dates and no
durations, so the page changes only when a scenario or a result does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_FOLDER = Path(__file__).parent
FILE = Path(__file__).parents[2] / "docs" / "conformance.md"

_HEAD = """\
# Conformance

What this project relies on in a cluster with training operators. Each line is a scenario of
`tests/cluster`. `make test-real` runs it on two targets: **real**, a real control plane with the
real operators (their versions are in [control-plane.md](control-plane.md)) and the project's node
agent ([local-agent.md](local-agent.md)); **local**, the embedded cluster
([local-cluster.md](local-cluster.md)). If the embedded cluster does not support a scenario, the
line says why. The suite writes this page.
"""

_OUTPUT = "conformance"
_TARGETS = ("real", "local")
_HEADER = "| scenario | real | local |"
_RULE = "| --- | --- | --- |"


class Scenario(NamedTuple):
    area: str
    """The first line of the module's docstring."""
    text: str
    """The name of the test in words."""
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


def real_only(item: pytest.Item) -> str:
    """Why the embedded cluster does not support it; "" if it does."""
    mark = item.get_closest_marker("real_only")
    return str(mark.args[0]) if mark else ""


def _case(item: pytest.Function) -> str:
    """The id of its parameters, without that of the target."""
    return re.sub(r"(^|-)(?:local|real)(-|$)", "", item.callspec.id)


class Table:
    def __init__(self) -> None:
        self._places: dict[str, tuple[Scenario, str]] = {}
        self._results: dict[tuple[Scenario, str], str] = {}
        self._words: dict[str, str] = {}
        self._whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Only a run of everything in this folder may write; with several processes, only one on
        the real target, so that `make test` leaves the page alone."""
        items = [item for item in session.items if item.path.is_relative_to(_FOLDER)]
        modules = {Path(item.path) for item in items}
        all_modules = set(_FOLDER.rglob("test_*.py"))
        config = session.config
        narrowed = config.option.keyword or config.option.markexpr or config.option.collectonly
        chosen = any("::" in argument for argument in config.args)
        shared = hasattr(config, "workerinput") and "real" not in (config.option.target or ())
        self._whole = modules == all_modules and not (narrowed or chosen or shared)
        for item in items:
            assert isinstance(item, pytest.Function)
            target = "local" if item.callspec.params["target"] == "local" else "real"
            self._places[item.nodeid] = scenario_of(item), target
            if why := real_only(item):
                self._results[scenario_of(item), "local"] = f"– ({why})"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        if self._words.get(report.nodeid, "passed") == "passed":
            self._words[report.nodeid] = _word(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """In a run with several processes the reports arrive here, but each of those has
        collected."""
        if found := getattr(node, "workeroutput", {}).get(_OUTPUT):
            places, left_out = found
            self._whole = True
            self._places = {key: (Scenario(*each), target) for key, *each, target in places}
            self._results = {(Scenario(*each), "local"): why for *each, why in left_out}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workeroutput"):
            self._write()
        elif self._whole:
            places = [(key, *each, target) for key, (each, target) in self._places.items()]
            left_out = [(*each, why) for (each, _), why in self._results.items()]
            session.config.workeroutput[_OUTPUT] = (places, left_out)

    def _write(self) -> None:
        for key, word in self._words.items():
            place = self._places.get(key)
            if place is not None and self._results.get(place, "passed") == "passed":
                self._results[place] = word
        if self._whole and self._results.keys() >= set(self._places.values()):
            before = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
            results = read_page(before) | {
                (scenario.area, scenario.text, target): result
                for (scenario, target), result in self._results.items()
            }
            # A run on the real target alone has tried everything.
            tried = {target for _, target in self._places.values()}
            known = {(each.area, each.text) for each, _ in self._results}
            if "real" not in tried:
                known |= {(area, text) for area, text, _ in read_page(before)}
            FILE.write_text(written_page(sorted(known), results), encoding="utf-8")


Results = dict[tuple[str, str, str], str]
"""(area, scenario, target) -> its result"""


def read_page(page: str) -> Results:
    """A run on one target keeps the results of the other."""
    results: Results = {}
    area = ""
    for line in page.splitlines():
        if line.startswith("## "):
            area = line.removeprefix("## ")
        elif area and line.startswith("| ") and line not in (_HEADER, _RULE):
            text, *words = line.strip("| ").split(" | ")
            if len(words) != len(_TARGETS):
                return {}  # the page has another format
            results |= {
                (area, text, each): word for each, word in zip(_TARGETS, words, strict=True)
            }
    return results


def written_page(scenarios: list[tuple[str, str]], results: Results) -> str:
    return "\n".join(_lines(scenarios, results))


def _lines(scenarios: list[tuple[str, str]], results: Results) -> Iterator[str]:
    passed = {
        target: sum(results.get((*each, target)) == "passed" for each in scenarios)
        for target in _TARGETS
    }
    yield _HEAD
    yield (
        f"{len(scenarios)} scenarios; {passed['real']} passed on the real target, "
        f"{passed['local']} on the embedded cluster."
    )
    last = ""
    for area, text in scenarios:
        if area != last:
            last = area
            yield from ("", f"## {area}", "", _HEADER, _RULE)
        words = [results.get((area, text, target), "not tried") for target in _TARGETS]
        yield f"| {text} | {' | '.join(words)} |"
    yield ""


def _word(report: pytest.TestReport) -> str:
    if not report.skipped:
        return "passed" if report.passed else "FAILED"
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return why.replace("|", "/")
