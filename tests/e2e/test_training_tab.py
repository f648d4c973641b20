"""The tab "Training" of a task instance's page, in a real browser and on a real Airflow.

Most XComs come from tasks of `tab/dags/told.py`, which have no job. Those of `pi.py` and `hangs.py`
there have one, on an embedded cluster. Airflow is served under a path.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import airflow as airflow_package
import pytest

from demo.airflow import Airflow
from tests.e2e.browser import NO_BROWSER, Browser
from tests.e2e.stage import Background, until
from tests.e2e.tab.stage import open_told, place

pytestmark = pytest.mark.timeout(900)

_IMAGES = Path(__file__).parents[2] / "docs" / "images"
_MOST_BYTES = 100 * 1024
_TAB = "//*[@class='kftrain']"
_LIMITS_TABS = tuple(map(int, airflow_package.__version__.split(".")[:2])) >= (3, 4)
_POLL = 10  # seconds, as in training_tab.js
_NAME = "churn-model-3f2a9c1b7e"


class Told:
    """An Airflow whose tasks have told."""

    def __init__(self, airflow: Airflow, background: Background) -> None:
        self.url = airflow.url
        self._airflow = airflow
        self._background = background

    def xcom(self, dag: str, run: str, key: str) -> Any:
        path = f"{place(dag, run)}/xcomEntries/{key}"
        return self._background.start(self._airflow.get(path)).result()["value"]

    def change(self, dag: str, run: str, key: str, value: Any) -> None:
        path = f"{place(dag, run)}/xcomEntries/{key}"
        body = {"value": value, "map_index": -1}
        self._background.start(self._airflow.patch(path, body)).result()

    def trigger(self, dag: str, run: str, **conf: Any) -> None:
        body = {"dag_run_id": run, "logical_date": None, "conf": conf}
        self._background.start(self._airflow.post(f"dags/{dag}/dagRuns", body)).result()

    def log_of_failure(self, dag: str, run: str) -> str:
        """The log of a task, as soon as it has failed."""

        async def has_failed() -> bool:
            return bool((await self._airflow.get(place(dag, run)))["state"] == "failed")

        async def log() -> str:
            await until(has_failed, f"{dag} fails")
            answer = await self._airflow.get(f"{place(dag, run)}/logs/1")
            return "\n".join(str(line["event"]) for line in answer["content"])

        return self._background.start(log()).result()


@pytest.fixture(scope="module")
def told() -> Iterator[Told]:
    folder = tempfile.mkdtemp(prefix="kftrain-tab-")
    background = Background()
    ending = AsyncExitStack()
    try:
        airflow = background.start(open_told(Path(folder) / "state", ending)).result()
        yield Told(airflow, background)
    finally:
        background.start(ending.aclose()).result()
        background.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def browser(told: Told) -> Iterator[Browser]:
    """One for all tests: it loads Airflow's pages, of 7 MB, only once."""
    if NO_BROWSER:
        pytest.skip(NO_BROWSER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "localhost")  # where its driver listens
        browser = Browser(told.url)
        yield browser
        browser.close()


def page(run: str, dag: str = "churn", task: str = "train") -> str:
    return f"dags/{dag}/runs/{run}/tasks/{task}/plugin/kftrain"


MAPPED = "dags/regions/runs/mapped/tasks/train/mapped/1/plugin/kftrain"
_OF_THE_JOB = (
    "PyTorchJob",
    "team-a",
    f"kubectl --namespace team-a describe pytorchjob.v1.kubeflow.org/{_NAME}",
)
_RUNNING = (
    "Running",
    "since 20",
    "(2 h",
    "42 %",
    "Step 5,040 of 12,000",
    "Ends at about 20",
    "loss",
    "accuracy",
    "4 Running",
    "master 0",
    "leader",
    "gpu-node-11",
    f"{_NAME}-worker-2",
)

STATES = {
    "running": (page("running"), _RUNNING),
    "queued": (
        page("queued"),
        ("Queued", "Queue team-a", "insufficient unused quota for nvidia.com/gpu", "(3 h"),
    ),
    "failed": (
        page("failed"),
        ("Failed", "exit code 137, OOMKilled", "2 Running, 2 Failed", "67 %", "nvidia.com/gpu")
        + ("8 h 2 min", "ended within 10 s are not counted"),
    ),
    "succeeded": (
        page("succeeded"),
        ("Succeeded", "100 %", "4 Succeeded", "Usage", "12 s", "38 s", "2 h", "8 h 2 min"),
    ),
    "mapped": (MAPPED, _RUNNING),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("state", STATES)
def test_each_state_is_shown(
    browser: Browser, state: str, theme: str, request: pytest.FixtureRequest
) -> None:
    address, shown = STATES[state]
    browser.prefer(theme)
    browser.open(address, height=1500)
    text = browser.reads(*shown, *_OF_THE_JOB, within=_TAB)
    assert ("Ends at" in text) == (state in ("running", "mapped"))
    keep(browser, state, theme, request)


def keep(browser: Browser, state: str, theme: str, request: pytest.FixtureRequest) -> None:
    browser.keep(f"tab-{state}-{theme}")
    if request.config.getoption("--write-pictures"):
        file = _IMAGES / f"training-{state}-{theme}.webp"
        browser.picture(_TAB, file)
        assert file.stat().st_size < _MOST_BYTES


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (page("running", task="evaluate"), "The task has not started yet"),
        (page("nothing"), "There is no training job yet"),
        (page("nothing-at-the-end"), "This try has no training job"),
        (page("little"), "The task has not told how its job went"),
        (page("stale"), "The task has created its job, and has not told more of it yet."),
        (page("running", dag="secret"), "You may not read the XComs of this Dag"),
        (f"{page('another-try')}?try_number=1", "This is try 2, the latest"),
    ],
    ids=["not-started", "no-job-yet", "no-job", "old", "stale", "forbidden", "other-try"],
)
def test_what_is_missing_is_explained(browser: Browser, address: str, shown: str) -> None:
    browser.open(address)
    text = browser.reads(shown, within=_TAB)
    browser.keep(f"tab-{shown.replace(' ', '-')}")
    assert "Restarting" not in text  # of the stale one


_ICON = 'a[href*="/plugin/kftrain"] img'


def test_which_tasks_have_the_tab(browser: Browser) -> None:
    """Airflow 3.4 shows it for operators of ours, and for subclasses, as the one here; Airflow 3.3
    for all tasks."""
    tab = "//a[contains(@href, '/plugin/kftrain')]"
    browser.open("dags/churn/runs/running/tasks/train/details")
    browser.find(tab).click()
    browser.reads("Step 5,040 of 12,000", within=_TAB)
    browser.open("dags/churn/runs/running/tasks/prepare/details")
    browser.reads("EmptyOperator")
    if _LIMITS_TABS:
        assert not browser.has(tab)
    else:
        browser.find(tab).click()
        browser.reads("This try has no training job", within=_TAB)


def test_the_page_follows_the_training(browser: Browser, told: Told) -> None:
    known = told.xcom("churn", "queued", "kftrain")
    browser.open(page("queued"))
    browser.reads("Queue team-a", within=_TAB)
    told.change("churn", "queued", "kftrain", {**known, "phase": "Starting", "queue": {}})
    try:
        assert "Queue team-a" not in browser.reads("Starting", within=_TAB)
    finally:
        told.change("churn", "queued", "kftrain", known)


_ASKED = """
    return performance.getEntriesByType("resource")
        .filter((each) => each.name.includes("/xcomEntries/kftrain"))
        .map((each) => performance.timeOrigin + each.startTime);
"""


def test_nothing_is_asked_for_in_vain(browser: Browser) -> None:
    """Neither of a task that has ended, nor for a page that nobody sees."""
    browser.open(page("running"))
    browser.reads("Step 5,040 of 12,000", within=_TAB)
    with browser.another_window():
        hidden = 1000 * time.time()
        browser.open(page("succeeded"))
        browser.reads("100 %", within=_TAB)
        time.sleep(1.5 * _POLL)  # while the page loads, the tab may be mounted twice
        asked = browser.run(_ASKED)
        time.sleep(1.5 * _POLL)  # that nothing happens takes time
        assert browser.run(_ASKED) == asked != []
        shown = 1000 * time.time()
    browser.holds(f"return ({_arrow(_ASKED)})().some((at) => at >= {shown})", "it asks again")
    times = browser.run(_ASKED)
    assert [at for at in times if hidden < at < shown] == []


def _arrow(script: str) -> str:
    return f"() => {{{script}}}"


def test_what_others_have_written_into_the_xcoms_stays_text(browser: Browser) -> None:
    browser.open(page("hostile"))
    text = browser.reads("onerror='window.hacked = true'> is only text", within=_TAB)
    links = browser.run("return [...document.querySelectorAll('.kftrain a')].map((a) => a.href)")
    assert links == ["https://logs.example.com/1"]
    assert browser.run("return document.querySelectorAll('.kftrain img').length") == 0
    assert browser.run("return window.hacked") is None
    assert "job; rm -rf ~" in text
    assert "kubectl" not in text
    assert browser.run(f"return {_BAR}.getAttribute('aria-valuenow')") == "100"


_BAR = "document.querySelector('.kftrain [role=progressbar]')"
_CURVE = "document.querySelector('.kftrain .curve')"


def test_it_can_be_used_with_the_keyboard_and_heard(browser: Browser) -> None:
    browser.open(page("running"))
    browser.reads("Step 5,040 of 12,000", within=_TAB)
    heard = browser.run(f"return {_BAR}.getAttribute('aria-valuetext')")
    assert heard == "42 %, Step 5,040 of 12,000"
    figure = "//figure[1]"
    summary = browser.run(f"return {_CURVE}.getAttribute('aria-label')")
    assert summary.startswith("loss: 120 values from 20")
    browser.run(f"{_CURVE}.focus()")
    latest = _value(browser)
    assert "lowest" in browser.reads("highest", within=figure)
    browser.press_in_focus("Home")
    assert "highest" not in browser.reads("at 20", within=figure)
    first = _value(browser)
    assert float(first) > float(latest)
    heard = browser.run(f"return {_CURVE}.getAttribute('aria-valuetext')")
    assert heard.startswith(f"{first} at 20")
    browser.press_in_focus("End")
    assert _value(browser) == latest


def _value(browser: Browser) -> str:
    """That of the first curve."""
    return str(browser.run("return document.querySelector('.kftrain figcaption b').textContent"))


def test_in_a_narrow_page_nothing_sticks_out(browser: Browser) -> None:
    """What is wide scrolls by itself. Of the tabs only the icons are left."""
    browser.open(page("failed"), width=800)
    browser.reads("2 Running, 2 Failed", within=_TAB)
    browser.keep("tab-narrow")
    tab = "document.querySelector('.kftrain')"
    assert browser.run(f"return {tab}.clientWidth") < 600
    assert browser.run(f"return {tab}.scrollWidth - {tab}.clientWidth") == 0
    rows = "document.querySelector('.kftrain .rows')"
    assert browser.run(f"return {rows}.scrollWidth - {rows}.clientWidth") > 0
    icon = "document.querySelector('img[alt=Training]')"
    browser.holds(f"return {icon}?.naturalWidth > 0", "icon of the tab")


def test_a_training_is_followed_to_its_end(
    browser: Browser, told: Told, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A function, with all that its trigger writes."""
    seen = tmp_path / "seen"
    told.trigger("pi", "long", rounds=_ROUNDS, seen=str(seen))
    for theme in ("light", "dark"):
        browser.prefer(theme)
        browser.open(page("long", dag="pi"), height=1500)
        job = ("PyTorchJob", "default", "3 Running", "master 0", "leader", "pi")
        text = browser.reads("Running", f" of {_ROUNDS}", "Ends at about", *job, within=_TAB)
        keep(browser, "function", theme, request)
    step = re.search(rf"Step (\d+) of {_ROUNDS}", text)
    assert step, text
    assert 0 < int(step[1]) < _ROUNDS
    seen.touch()
    ended = ("Succeeded", f"Step {_ROUNDS} of {_ROUNDS}", "100 %", "Usage")
    text = browser.reads(*ended, within=_TAB)
    # The job ends with its master: workers may still run.
    assert re.search(r"Replicas\s*[123] Succeeded", text), text


_ROUNDS = 999
"""Half a second each, until the page has been seen twice: longer than the browser's patience."""
_HANGS = Path(__file__).parent / "tab" / "dags" / "hangs.py"


def _line_of(words: str) -> int:
    lines = _HANGS.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


def test_a_rank_that_hangs_is_told_with_its_line(told: Told) -> None:
    log = told.log_of_failure("hangs", "silent")
    assert "has written nothing to its log for 1 min (Timeouts.silence)" in log
    for replica, words in {"worker-0": "rank 1 hangs", "master-0": "rank 0 waits for it"}.items():
        end = log[log.rindex(f"{replica}:") :]
        assert re.search(rf'File ".*hangs.py", line {_line_of(words)} in train', end), log


def test_the_tab_of_a_job_that_hung_says_so(browser: Browser, told: Told) -> None:
    told.log_of_failure("hangs", "silent")
    browser.open(page("silent", dag="hangs"))
    ended = "Last known; the task has ended since then (failed)."
    browser.reads("Running", ended, "(Timeouts.silence), so it probably hangs", within=_TAB)
