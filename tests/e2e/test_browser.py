"""What people see of a task in Airflow, and behind its buttons, in a real browser."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from demo.airflow import Airflow
from tests.e2e.browser import Browser, needs_browser
from tests.e2e.stage import Background
from tests.e2e.trained import open_trained

pytestmark = [pytest.mark.gate, pytest.mark.timeout(900), needs_browser]

GOOD = "dags/pytorch_job/runs/good/tasks/train"
BAD = "dags/pytorch_job/runs/bad/tasks/train"
MAPPED = "dags/mapped_jobs/runs/good/tasks/train/mapped/1"


class Trained:
    """An Airflow whose runs have ended, and its cluster."""

    def __init__(self, airflow: Airflow, background: Background) -> None:
        self.url = airflow.url
        self._airflow = airflow
        self._background = background

    def job(self, page: str) -> str:
        """The name of the job of a task, from Airflow."""
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
        f"PyTorchJob default/{job}: Failed (",
        "The PyTorchJob failed: exit code 1 in master-0. Look at its log.",
        "ValueError: could not convert string to float: 'fast'",
        "a retry helps only if",
        within=_LOG,
    )
    assert log.index("PyTorchJob as it is submitted") < log.index("Created PyTorchJob")
    assert "The end of the leader's log" not in log  # it is short, and the report quotes it
    # Airflow's own message about the event does not repeat the report.
    assert "TriggerEvent<" not in log
    for group, inside in {
        "PyTorchJob as it is submitted": "\n  pytorchReplicaSpecs:\n",
    }.items():
        assert inside not in log
        browser.fold(group)
        browser.reads(inside, within=_LOG)
        browser.keep(f"log-{group.split()[-1]}")
        browser.fold(group)
    # Its frames are paths on this machine, which mean nothing to the author.
    browser.fold("AirflowException")
    browser.press("w")  # wraps lines
    browser.resize(1125)
    browser.keep("task-log")
