"""docs/performance.md and its plots, as the bench writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import bench.__main__ as bench_main
from bench.figures import OURS, Figure
from bench.page import Machine, page, printed, ranked, write
from bench.parts import LONGEST, PARTS, Ran, run_part
from bench.plots import PLOTS, draw
from bench.tables import number

ROOT = Path(__file__).parents[2]
PEER = "KubernetesJobTrigger, every 10 s"
REQUESTS = "API requests a minute, idle"
IMPORT = "import of operators: time"
SVG = "{http://www.w3.org/2000/svg}"

MACHINE = Machine(2, "3.11.7", "Linux on x86_64", {"apache-airflow": "3.1.0"})
TRIGGERER = Ran(
    "manifests",
    (
        Figure(REQUESTS, "", (3.0, 3.2, 3.1), jobs=100, goal=4),
        Figure(REQUESTS, "", (3.1, 3.2, 3.3), jobs=1_000, goal=4),
        Figure(REQUESTS, "", (600.0,), PEER, 100),
        Figure(REQUESTS, "", (), PEER, 1_000, note="takes more than two cores"),
    ),
)
IMPORTS = Ran(
    "imports",
    (
        Figure(IMPORT, "ms", (90.0, 80.0, 100.0), goal=60),
        Figure(IMPORT, "ms", (800.0,), "KubernetesJobOperator"),
        *(Figure("import of a module: time", "ms", (1.0,), f"module_{n}") for n in range(9)),
    ),
)
ALL = [*TRIGGERER.figures, *IMPORTS.figures]


def test_the_page_shows_all_figures_side_by_side() -> None:
    text = page([TRIGGERER, IMPORTS], MACHINE)
    assert f"| figure | jobs | {OURS} | {PEER} | goal |" in text
    assert f"| {REQUESTS} | 100 | 3.1 (3–3.2) | 600 | 4 |" in text
    assert f"| {REQUESTS} | 1,000 | 3.2 (3.1–3.3) | – <sup>1</sup> | 4 |" in text
    assert "\n1. takes more than two cores\n" in text
    assert "2 cores, Linux on x86_64, Python 3.11.7, apache-airflow 3.1.0." in text


def test_too_many_to_stand_side_by_side_are_rows() -> None:
    text = page([IMPORTS], MACHINE)
    assert "|  | import of a module: time (ms) |" in text
    assert "| module_8 | 1 |" in text


def test_the_worst_figure_is_named_first_and_a_missed_goal_is_told() -> None:
    text = page([TRIGGERER, IMPORTS], MACHINE)
    assert (
        "2 of 3 goals are reached. The worst figure is *import of operators: time*: 90 ms" in text
    )
    first, *_ = re.findall(r"^\| .* \| [\d,]+ % \|$", text, flags=re.MULTILINE)
    assert first == f"| {IMPORT} (ms) |  | **90 (80–100), MISSED** | 60 | 150 % |"
    assert [figure.name for figure in ranked(ALL)] == [IMPORT, REQUESTS, REQUESTS]


def test_it_is_said_where_others_cost_less() -> None:
    assert "Nowhere, in this run." in page([TRIGGERER, IMPORTS], MACHINE)
    frugal = Figure(REQUESTS, "", (0.5,), "KubernetesJobTrigger, every 60 s", 100)
    text = page([TRIGGERER._replace(figures=(*TRIGGERER.figures, frugal))], MACHINE)
    _, _, told = text.partition("## Figures where others cost less\n")
    assert f"\n| {REQUESTS} | 100 | 3.1 (3–3.2) | 0.5 | {frugal.who} |\n" in told
    assert told.count("| 0.5 |") == 2


def test_a_goal_of_nothing_is_missed_by_anything() -> None:
    errors = Figure("errors", "", (1.0,), goal=0)
    assert ranked([*ALL, errors])[0] == errors
    assert ranked([*ALL, errors._replace(values=(0.0,))])[0].name == IMPORT


def test_the_terminal_shows_the_worst_first_and_all_others() -> None:
    heads, first, *others = printed(ALL)
    assert first.split()[:6] == ["90", "80", "100", "ms", "60", "MISSED"]
    assert len(others) == len(ALL) - 1
    assert any(line.split()[:3] == ["-", "-", "-"] for line in others)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00312, "0.00312"),
        (3.0, "3"),
        (12.345, "12.3"),
        (99.99, "100"),
        (12345, "12,345"),
    ],
)
def test_numbers_have_three_digits_that_tell_something(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("name", [REQUESTS, IMPORT])
def test_a_plot_is_a_picture_with_words_for_those_who_cannot_see_it(name: str) -> None:
    shown = [figure for figure in ALL if figure.name == name and figure.values]
    text = draw("Requests & <imports>", shown)
    assert draw("Requests & <imports>", shown) == text
    picture = ElementTree.fromstring(text)
    assert picture.findtext(f"{SVG}title") == "Requests & <imports>"
    described = picture.findtext(f"{SVG}desc") or ""
    assert all(figure.who in described for figure in shown)
    written = {each.text for each in picture.iter(f"{SVG}text")}
    assert {figure.who for figure in shown} <= written
    assert "prefers-color-scheme: dark" in text


def test_jobs_are_lines_and_the_rest_bars() -> None:
    over_jobs = draw("", [each for each in TRIGGERER.figures if each.values])
    assert "<circle" in over_jobs
    assert ">1,000</text>" in over_jobs
    assert "<circle" not in draw("", IMPORTS.figures[:2])


def test_one_number_of_jobs_each_makes_no_line() -> None:
    figures = [Figure("KiB", "", (2.0,), jobs=100), Figure("KiB", "", (20.0,), PEER, 20)]
    assert "<circle" not in draw("", figures)


def test_a_figure_at_more_and_more_jobs_stands_together() -> None:
    figures = [
        Figure(name, "", (1.0,), jobs=jobs) for jobs in (1, 10) for name in ("calls", "bytes")
    ]
    rows = page([Ran("imports", tuple(figures))], MACHINE).splitlines()
    shown = [line for line in rows if line.startswith(("| calls", "| bytes"))]
    assert shown == [
        "| calls | 1 | 1 |",
        "| calls | 10 | 1 |",
        "| bytes | 1 | 1 |",
        "| bytes | 10 | 1 |",
    ]


def test_what_is_nothing_has_a_place_in_a_plot() -> None:
    figures = [Figure("none", "", (0.0,), jobs=jobs) for jobs in (1, 10)]
    ElementTree.fromstring(draw("none", figures))


def test_a_page_is_written_with_its_plots(tmp_path: Path) -> None:
    write(tmp_path, [TRIGGERER, IMPORTS], MACHINE)
    shown = re.findall(r"!\[.*\]\((.*)\)", (tmp_path / "performance.md").read_text("utf-8"))
    assert shown == ["images/performance-requests.svg", "images/performance-import.svg"]
    for file in shown:
        ElementTree.parse(tmp_path / file)


def test_each_plot_has_a_file_of_its_own() -> None:
    assert len({plot.file for plot in PLOTS}) == len(PLOTS)


def test_the_site_has_the_page_and_its_plots() -> None:
    assert "performance.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for file in re.findall(r"!\[.*\]\((.*)\)", text):
        ElementTree.parse(ROOT / "docs" / file)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_there_and_says_what_it_measures(part: str) -> None:
    assert len(Ran(part, ()).text) > 20


def test_a_part_that_breaks_says_its_last_words() -> None:
    ran = run_part("no_such_part", quick=True)
    assert ran.figures == ()
    assert "No module named bench.no_such_part" in ran.failure


def test_a_part_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child holds its output open, and the end of that is waited for."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").touch()
    (tmp_path / "bench" / "slow.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    )
    monkeypatch.setattr("bench.parts.ROOT", tmp_path)
    monkeypatch.setitem(LONGEST, True, 3.0)
    monkeypatch.setattr("bench.parts.ENDING", 3.0)
    assert "It took longer than 3 s." in run_part("slow", quick=True).failure


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Ran]:
    """The figures that the parts will return."""
    found: dict[str, Ran] = {}
    monkeypatch.setattr(bench_main, "ROOT", tmp_path)
    monkeypatch.setattr(bench_main, "BUILD", tmp_path / "build")
    monkeypatch.setattr(bench_main, "run_part", lambda part, quick: found[part])
    monkeypatch.setattr("bench.page.this_machine", lambda: MACHINE)
    return found


def test_a_broken_part_fails_the_run_and_the_others_are_told(
    bench: dict[str, Ran],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench["manifests"] = Ran("manifests", (), "it fell\n")
    bench["imports"] = IMPORTS
    monkeypatch.setattr("sys.argv", ["bench", "--part", "manifests", "--part", "imports"])
    assert bench_main.main() == 1
    told = capsys.readouterr()
    assert "BROKEN: manifests, which ended with\nit fell" in told.err
    assert IMPORT in told.out
    figures = json.loads((tmp_path / "build" / "bench.json").read_text("utf-8"))["figures"]
    assert len(figures) == len(IMPORTS.figures)
    assert figures[0]["values"] == [90, 80, 100]


def test_a_missed_goal_fails_nothing_and_a_partial_run_leaves_the_documents_alone(
    bench: dict[str, Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench["imports"] = IMPORTS
    monkeypatch.setattr("sys.argv", ["bench", "--part", "imports"])
    assert bench_main.main() == 0
    assert (tmp_path / "build" / "performance.md").exists()
    assert not (tmp_path / "docs").exists()


def test_a_plot_that_finds_no_figures_fails_a_run_of_all_parts(
    bench: dict[str, Ran], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in PARTS:
        bench[part] = IMPORTS
    monkeypatch.setattr("sys.argv", ["bench", "--quick"])
    assert bench_main.main() == 1
    assert "no figures for performance-requests.svg" in capsys.readouterr().err
