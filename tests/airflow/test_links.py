"""Buttons: URLs from templates, complete or not there at all."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk import BaseOperatorLink

from airflow_kftrain import Links, links
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.links import LINKS, fill_links, link_templates, log_links
from airflow_kftrain.messages import ReplicaPod

JOB = JobReference("PyTorchJob", "ml", "train-1", "uid")
START = datetime(2026, 11, 21, 9, tzinfo=timezone.utc)
FINISH = START + timedelta(minutes=30)
MASTER = ReplicaPod("master", 0, "train-1-master-0", "pytorch", leads=True)
WORKERS = [ReplicaPod("worker", number, f"train-1-worker-{number}", "pytorch") for number in (0, 1)]
PODS = [WORKERS[1], MASTER, WORKERS[0]]
EVERYTHING = "https://x/{namespace}/{job}/{pod}/{container}/{role}/{index}/{start}/{finish}"
OPTIONS = ["training_job_url", "leader_logs_url", "worker_logs_url", "dashboard_url"]


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in OPTIONS:
        monkeypatch.delenv(f"AIRFLOW__KFTRAIN__{option.upper()}", raising=False)


def test_there_are_four_and_their_names_stay() -> None:
    assert [(link.name, link.xcom_key) for link in LINKS] == [
        ("Training job", "_link_TrainingJobLink"),
        ("Leader logs", "_link_LeaderLogsLink"),
        ("Worker logs", "_link_WorkerLogsLink"),
        ("Dashboard", "_link_DashboardLink"),
    ]
    assert all(isinstance(link, BaseOperatorLink) for link in LINKS)


def test_each_is_of_one_template() -> None:
    assert [link.template for link in LINKS] == list(Links._fields)
    assert list(links.OPTIONS.values()) == OPTIONS


def test_a_url_has_all_that_it_asks_for() -> None:
    urls = fill_links(dict.fromkeys(Links._fields, EVERYTHING), JOB, PODS, START, FINISH)
    times = "1795251600000/1795253400000"
    of_master = f"https://x/ml/train-1/train-1-master-0/pytorch/master/0/{times}"
    of_worker = f"https://x/ml/train-1/train-1-worker-0/pytorch/worker/0/{times}"
    assert urls == {
        "_link_TrainingJobLink": of_master,
        "_link_LeaderLogsLink": of_master,
        "_link_WorkerLogsLink": of_worker,
        "_link_DashboardLink": of_master,
    }


def test_a_url_whose_parts_are_not_all_known_is_left_out() -> None:
    templates = dict.fromkeys(Links._fields, EVERYTHING) | {"training_job": "https://x/{job}"}
    assert fill_links(templates, JOB, [], START, None) == {
        "_link_TrainingJobLink": "https://x/train-1"
    }
    assert "_link_WorkerLogsLink" not in fill_links(templates, JOB, [MASTER], START, None)
    no_index = MASTER._replace(index=None)
    assert "_link_LeaderLogsLink" not in fill_links(templates, JOB, [no_index], START, None)
    no_container = MASTER._replace(container="")
    assert "_link_LeaderLogsLink" not in fill_links(templates, JOB, [no_container], START, None)


def test_logs_of_workers_go_before_those_of_parameter_servers() -> None:
    servers = [ReplicaPod("ps", 0, "train-1-ps-0", "tensorflow")]
    urls = fill_links({"worker_logs": "https://x/{pod}"}, JOB, servers + WORKERS, START, None)
    assert urls == {"_link_WorkerLogsLink": "https://x/train-1-worker-0"}


def test_an_end_that_is_not_known_is_a_day_from_now() -> None:
    before = datetime.now(timezone.utc)
    (url,) = fill_links({"dashboard": "https://x/?to={finish}"}, JOB, [], START, None).values()
    (milliseconds,) = parse_qs(urlsplit(url).query)["to"]
    end = datetime.fromtimestamp(int(milliseconds) / 1000, timezone.utc)
    assert before + timedelta(days=1, seconds=-1) <= end
    assert end <= datetime.now(timezone.utc) + timedelta(days=1)


def test_values_cannot_break_out_of_their_place() -> None:
    job = JOB._replace(namespace="a/b?c&d#e%", name="<x y>'\"")
    assert fill_links({"training_job": "https://x/{namespace}/{job}"}, job, [], START, None) == {
        "_link_TrainingJobLink": "https://x/a%2Fb%3Fc%26d%23e%25/%3Cx%20y%3E%27%22"
    }


@pytest.mark.parametrize(
    "template", ["", "javascript:alert(1)", "/relative", "https://x/{nonsense}", "https://x/{", 7]
)
def test_a_stored_template_that_is_none_makes_no_button(template: Any) -> None:
    assert fill_links({"training_job": template}, JOB, PODS, START, None) == {}
    assert log_links(template, JOB, PODS, START, None) == []


def test_doubled_braces_are_braces() -> None:
    assert fill_links({"dashboard": 'https://x/?q={{"a":"{job}"}}'}, JOB, [], START, None) == {
        "_link_DashboardLink": 'https://x/?q={"a":"train-1"}'
    }


def test_log_links_are_one_a_pod() -> None:
    assert log_links("https://x/{pod}", JOB, [MASTER, WORKERS[1]], START, None) == [
        {"role": "master", "index": 0, "pod": MASTER.pod, "url": f"https://x/{MASTER.pod}"},
        {"role": "worker", "index": 1, "pod": WORKERS[1].pod, "url": f"https://x/{WORKERS[1].pod}"},
    ]


def test_the_configuration_is_for_what_the_author_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__TRAINING_JOB_URL", "https://all/{job}")
    monkeypatch.setenv("AIRFLOW__KFTRAIN__DASHBOARD_URL", "https://all/d")
    monkeypatch.setenv("AIRFLOW__KFTRAIN__LEADER_LOGS_URL", "https://all/{pod}")
    given = Links(training_job="https://own/{job}", leader_logs="")
    templates = {"training_job": "https://own/{job}", "dashboard": "https://all/d"}
    assert link_templates(given) == (templates, [])


def test_what_is_wrong_in_the_configuration_is_said_and_breaks_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__TRAINING_JOB_URL", "https://all/{jobname}")
    monkeypatch.setenv("AIRFLOW__KFTRAIN__WORKER_LOGS_URL", "ftp://all/{job}")
    monkeypatch.setenv("AIRFLOW__KFTRAIN__DASHBOARD_URL", "https://all/d")
    templates, problems = link_templates(Links())
    assert templates == {"dashboard": "https://all/d"}
    assert [text.partition(":")[0] for text in problems] == [
        "[kftrain] training_job_url",
        "[kftrain] worker_logs_url",
    ]
    assert "{jobname}" in problems[0]


class _Operator(NamedTuple):
    links: Links


class _Key(NamedTuple):
    dag_id: str = "dag"
    task_id: str = "task"
    run_id: str = "run"
    map_index: int = 3


@pytest.mark.parametrize(("stored", "shown"), [("https://x/a", "https://x/a"), (None, "")])
def test_a_link_gives_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, stored: object, shown: str
) -> None:
    """Airflow asks after each run of the worker, and stores the answer: it must not be another."""
    asked = []

    class Stored(NamedTuple):
        value: object

    def stands_in(**place: object) -> Stored:
        asked.append(place)
        return Stored(stored)

    monkeypatch.setattr("airflow.sdk.bases.xcom.BaseXCom._get_xcom_db_ref", stands_in)
    assert LINKS[0].get_link(_Operator(Links(training_job="https://x")), ti_key=_Key()) == shown
    assert LINKS[0].get_link(_Operator(Links()), ti_key=_Key()) == ""
    assert asked == [
        {
            "key": "_link_TrainingJobLink",
            "dag_id": "dag",
            "task_id": "task",
            "run_id": "run",
            "map_index": 3,
        }
    ]
