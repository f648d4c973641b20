"""What people see of a task in Airflow, and behind its buttons, in a real browser."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from demo.airflow import Airflow
from tests.e2e.stage import Background
from tests.e2e.trained import open_trained

_PICTURES = Path(__file__).parents[2] / "build" / "e2e"
_PATIENCE = 60
_MISSING = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        bool(_MISSING),
        reason=f"there is no {' nor '.join(_MISSING)}; install it with scripts/install-browser",
    ),
]

GOOD = "dags/pytorch_job/runs/good/tasks/train"
BAD = "dags/pytorch_job/runs/bad/tasks/train"
MAPPED = "dags/mapped_jobs/runs/good/tasks/train/mapped/1"


class Browser:
    """Waits for whatever it is asked for."""

    def __init__(self, address: str) -> None:
        self._address = address
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        options.page_load_strategy = "eager"
        words = ["--headless=new", "--no-proxy-server", "--disable-dev-shm-usage", "--disable-gpu"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # Chromium refuses it to root
        for word in (*words, "--hide-scrollbars", "--lang=en"):
            options.add_argument(word)
        service = webdriver.ChromeService(str(shutil.which("chromedriver")))
        self._driver = webdriver.Chrome(options, service)
        self._home = self._driver.current_window_handle

    def close(self) -> None:
        self._driver.quit()

    def open(self, path: str, height: int = 1000) -> None:
        self.resize(height)
        self._driver.get(f"{self._address}/{path}")

    def resize(self, height: int) -> None:
        self._driver.set_window_size(1280, height)

    def find(self, xpath: str) -> WebElement:
        def look() -> WebElement | None:
            return next(iter(self._driver.find_elements(By.XPATH, xpath)), None)

        found: WebElement = self._until(look, xpath)
        return found

    def reads(self, *texts: str, within: str = "//body") -> str:
        """The text there, as soon as it has all of these."""

        def look() -> str:
            found = self.find(within).text
            return found if all(text in found for text in texts) else ""

        return str(self._until(look, " and ".join(texts)))

    def press(self, key: str) -> None:
        self.find("//body").send_keys(key)

    def fold(self, group: str) -> None:
        """Or unfold."""
        self.find(f'//*[@data-testid="summary-{group}"]').click()

    def follow(self, button: str) -> None:
        """To the window that a button opens."""
        self.find(f"//a[normalize-space()='{button}']").click()
        self._until(lambda: len(self._driver.window_handles) == 2, f"{button} opens a window")
        (opened,) = {*self._driver.window_handles} - {self._home}
        self._driver.switch_to.window(opened)

    def back(self) -> None:
        self._driver.close()
        self._driver.switch_to.window(self._home)

    def keep(self, name: str) -> None:
        _PICTURES.mkdir(parents=True, exist_ok=True)
        self._driver.save_screenshot(str(_PICTURES / f"{name}.png"))

    def _until(self, look: Callable[[], Any], what: str) -> Any:
        # What a page replaces while it is looked at is looked for again.
        replaced = [StaleElementReferenceException]
        wait = WebDriverWait(self._driver, _PATIENCE, ignored_exceptions=replaced)
        try:
            return wait.until(lambda _: look())
        except TimeoutException:
            self.keep("missed")
            raise AssertionError(f"{self._driver.current_url}: no {what}") from None


class Trained:
    """Airflow with the runs that have ended, and its cluster."""

    def __init__(self, airflow: Airflow, background: Background) -> None:
        self.url = airflow.url
        self._airflow = airflow
        self._background = background

    def job(self, page: str) -> str:
        """The name of the job of a task, by Airflow's word."""
        _, dag, _, run, _, task, *mapped = page.split("/")
        place = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/job"
        query = f"?map_index={mapped[1]}" if mapped else ""
        found = self._background.start(self._airflow.get(place + query)).result()
        return str(found["value"]["name"])


_LOG = "//code[@data-testid='virtualized-list']"


@pytest.fixture(scope="module")
def trained() -> Iterator[Trained]:
    folder = tempfile.mkdtemp(prefix="kftrain-browser-")
    background = Background()
    ending = AsyncExitStack()
    try:
        airflow = background.start(open_trained(Path(folder) / "state", ending)).result()
        yield Trained(airflow, background)
    finally:
        background.start(ending.aclose()).result()
        background.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def browser(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    monkeypatch.setenv("no_proxy", "localhost")  # where its driver listens
    browser = Browser(trained.url)
    yield browser
    browser.close()


@pytest.mark.parametrize(
    ("page", "state", "leader_says", "worker_says"),
    [
        (GOOD, "Succeeded", "step 100: loss 0.0", "The log ends here."),
        (BAD, "Failed", "could not convert string to float: 'fast'", "ValueError"),
        (MAPPED, "Succeeded", "step 100: loss 0.0", "The log ends here."),
    ],
    ids=["success", "failure", "mapped"],
)
def test_each_button_leads_to_a_page_of_the_cluster(
    browser: Browser, trained: Trained, page: str, state: str, leader_says: str, worker_says: str
) -> None:
    job = trained.job(page)
    shown = {
        "Training job": (job, f"PyTorchJob is {state}", f"{job}-master-0", f"{job}-worker-0"),
        "Leader logs": (f"default/{job}-master-0 pytorch", leader_says),
        "Worker logs": (f"default/{job}-worker-0 pytorch", worker_says),
        "Dashboard": ("All jobs", job),
    }
    kept = f"{page.split('/')[1]}-{state}"
    browser.open(f"{page}/details")
    browser.reads(*shown)
    browser.keep(kept)
    for button, texts in shown.items():
        browser.follow(button)
        browser.reads(*texts)
        browser.keep(f"{kept}-{button.replace(' ', '-')}")
        browser.back()


def test_the_buttons_of_mapped_tasks_are_their_own(browser: Browser, trained: Trained) -> None:
    jobs = {trained.job(f"{MAPPED[:-1]}{index}") for index in range(3)}
    assert len(jobs) == 3


def test_the_rendered_tab_shows_the_fields_of_the_author(browser: Browser) -> None:
    browser.open(f"{BAD}/rendered_templates", height=2400)
    for field, texts in {
        "workers": ["2"],
        "image": ["python", "3.12", "slim"],
        "command": ['"python"', '"-c"', "Fits a line to points", '"fast"'],  # was a template
        "container_resources": ["1", '"512Mi"'],
        "kubernetes_conn_id": ["kubernetes_default"],
    }.items():
        browser.reads(*texts, within=f"//tr[td[1][normalize-space()='{field}']]/td[2]")
    browser.keep("rendered")


def test_the_log_tells_of_the_failure(browser: Browser, trained: Trained) -> None:
    job = trained.job(BAD)
    browser.open(BAD, height=2000)
    log = browser.reads(
        f"Created PyTorchJob default/{job}.",
        f"PyTorchJob default/{job}: Failed, PyTorchJobFailed",
        f"The PyTorchJob failed: master-0 (pod {job}-master-0, container pytorch) ended first",
        "ValueError: could not convert string to float: 'fast'",
        "Retry: it helps only if",
        within=_LOG,
    )
    assert log.index("PyTorchJob as it is submitted") < log.index("Created PyTorchJob")
    assert log.index("The end of the leader's log") < log.index("First failure:")
    # What Airflow says of the event has no second report.
    assert "TriggerEvent<" not in log
    for group, inside in {
        "PyTorchJob as it is submitted": "\n  pytorchReplicaSpecs:\n",
        "The end of the leader's log": "\n - Traceback (most recent call last)",
    }.items():
        assert inside not in log
        browser.fold(group)
        browser.reads(inside, within=_LOG)
        browser.keep(f"log-{group.split()[-1]}")
        browser.fold(group)
    # Its frames are places on this machine, and no matter of the author's.
    browser.fold("AirflowException")
    browser.press("w")  # wraps lines
    browser.resize(1125)
    browser.keep("task-log")
