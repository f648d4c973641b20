"""Buttons: URLs from templates, complete or missing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk import BaseOperatorLink

from airflow_kftrain import Links, links
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.links import (
    LINKS,
    asked_for,
    fill_links,
    filled_at_once,
    link_templates,
    log_links,
)
from airflow_kftrain.manifests.identity import Owner
from airflow_kftrain.messages import ReplicaPod
from airflow_kftrain.specs.lifecycle import PLACEHOLDERS

JOB = JobReference("PyTorchJob", "ml", "train-1", "uid")
START = datetime(2026, 11, 21, 9, tzinfo=timezone.utc)
FINISH = START + timedelta(minutes=30)
MASTER = ReplicaPod("master", 0, "train-1-master-0", "pytorch", True, "node-1", "5f0c")
OWNER = Owner("ml-production", "nightly", "train", "manual__2026-11-21T09:00:00+00:00", "ti", 3, 2)
WORKERS = [ReplicaPod("worker", number, f"train-1-worker-{number}", "pytorch") for number in (0, 1)]
PODS = [WORKERS[1], MASTER, WORKERS[0]]
EVERYTHING = "https://x/" + "/".join(f"{{{name}}}" for name in PLACEHOLDERS)
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
    templates = filled_at_once(dict.fromkeys(Links._fields, EVERYTHING), OWNER, START)
    workers = [pod._replace(node="node-2", container_id="77aa") for pod in WORKERS]
    urls = fill_links(templates, JOB, [workers[1], MASTER, workers[0]], FINISH)
    rest = (
        f"nightly/train/manual__2026-11-21T09%3A00%3A00%2B00%3A00/3/2/{OWNER.identity}/1795251600000"
        "/1795253400000/2026-11-21T09%3A00%3A00Z/2026-11-21T09%3A30%3A00Z"
    )
    of_master = f"https://x/ml/train-1/train-1-master-0/pytorch/master/0/node-1/5f0c/{rest}"
    of_worker = f"https://x/ml/train-1/train-1-worker-0/pytorch/worker/0/node-2/77aa/{rest}"
    assert urls == {
        "_link_TrainingJobLink": of_master,
        "_link_LeaderLogsLink": of_master,
        "_link_WorkerLogsLink": of_worker,
        "_link_DashboardLink": of_master,
    }


UNKNOWN: list[dict[str, Any]] = [
    {"index": None},
    {"container": ""},
    {"node": ""},
    {"container_id": ""},
]


def test_a_url_whose_parts_are_not_all_known_is_left_out() -> None:
    templates = dict.fromkeys(Links._fields, EVERYTHING) | {"training_job": "https://x/{job}"}
    templates = filled_at_once(templates, OWNER, START)
    assert fill_links(templates, JOB, [], None) == {"_link_TrainingJobLink": "https://x/train-1"}
    found = fill_links(templates, JOB, [MASTER], None)
    assert "_link_LeaderLogsLink" in found
    assert "_link_WorkerLogsLink" not in found
    for unknown in UNKNOWN:
        pods = [MASTER._replace(**unknown)]
        assert "_link_LeaderLogsLink" not in fill_links(templates, JOB, pods, None)


def test_what_is_not_said_of_the_task_is_not_left_out_of_the_middle_of_a_url() -> None:
    templates = filled_at_once(
        {"dashboard": "https://x/{run_id}/a"}, OWNER._replace(run_id=""), START
    )
    assert fill_links(templates, JOB, PODS, FINISH) == {}


def test_links_are_not_stored_again_for_what_no_template_asks_for() -> None:
    started = MASTER._replace(container_id="66bb")
    assert asked_for({"dashboard": "https://x/{pod}"}, [MASTER]) == asked_for(
        {"dashboard": "https://x/{pod}"}, [started]
    )
    assert asked_for({"dashboard": "https://x/{pod}/{container_id}"}, [started]) == (
        started._replace(node=""),
    )


def test_logs_of_workers_go_before_those_of_parameter_servers() -> None:
    servers = [ReplicaPod("ps", 0, "train-1-ps-0", "tensorflow")]
    urls = fill_links({"worker_logs": "https://x/{pod}"}, JOB, servers + WORKERS, None)
    assert urls == {"_link_WorkerLogsLink": "https://x/train-1-worker-0"}


def test_an_end_that_is_not_known_is_a_day_from_now() -> None:
    before = datetime.now(timezone.utc)
    template = "https://x/?to={finish}&until={finish_time}"
    (url,) = fill_links({"dashboard": template}, JOB, [], None).values()
    said = parse_qs(urlsplit(url).query)
    ends = [
        datetime.fromtimestamp(int(said["to"][0]) / 1000, timezone.utc),
        datetime.fromisoformat(said["until"][0].replace("Z", "+00:00")),
    ]
    for end in ends:
        assert before + timedelta(days=1, seconds=-1) <= end
        assert end <= datetime.now(timezone.utc) + timedelta(days=1)


def test_values_cannot_break_out_of_their_place() -> None:
    job = JOB._replace(namespace="a/b?c&d#e%", name="<x y>'\"")
    owner = OWNER._replace(run_id="{job}/../?")
    templates = {"training_job": "https://x/{namespace}/{job}/{run_id}"}
    assert fill_links(filled_at_once(templates, owner, START), job, [], None) == {
        "_link_TrainingJobLink": "https://x/a%2Fb%3Fc%26d%23e%25/%3Cx%20y%3E%27%22/%7Bjob%7D%2F..%2F%3F"
    }


@pytest.mark.parametrize(
    "template", ["", "javascript:alert(1)", "/relative", "https://x/{nonsense}", "https://x/{", 7]
)
def test_a_stored_template_that_is_none_makes_no_button(template: Any) -> None:
    assert fill_links({"training_job": template}, JOB, PODS, None) == {}
    assert log_links(template, JOB, PODS, None) == []


def test_doubled_braces_are_braces() -> None:
    templates = filled_at_once(
        {"dashboard": 'https://x/?q={{"a":"{job}/{task_id}"}}'}, OWNER, START
    )
    assert fill_links(templates, JOB, [], None) == {
        "_link_DashboardLink": 'https://x/?q={"a":"train-1/train"}'
    }


def test_log_links_are_one_a_pod() -> None:
    assert log_links("https://x/{pod}", JOB, [MASTER, WORKERS[1]], None) == [
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
    """Airflow calls it after each run of the worker, and stores the answer, so it must not
    change."""
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


SERVICES = {
    "CloudWatch": (
        "https://REGION.console.aws.amazon.com/cloudwatch/home?region=REGION#logsV2:log-groups/"
        "log-group/$252Faws$252Fcontainerinsights$252FCLUSTER$252Fapplication/log-events/"
        "node-1-application.var.log.containers.train-1-master-0_ml_pytorch-5f0c.log"
        "$3Fstart$3D1795251600000$26end$3D1795253400000"
    ),
    "Google Cloud Logging": (
        "https://console.cloud.google.com/logs/query;query=resource.type%3D%22k8s_container%22%0A"
        "resource.labels.namespace_name%3D%22ml%22%0Aresource.labels.pod_name%3D%22"
        "train-1-master-0%22;startTime=2026-11-21T09%3A00%3A00Z;endTime=2026-11-21T09%3A30%3A00Z"
        "?project=PROJECT"
    ),
    "MLflow": (
        "https://MLFLOW/#/experiments/EXPERIMENT?searchFilter=attributes.run_name%3D%22"
        f"{OWNER.identity}%22&startTime=ALL"
    ),
    "Weights & Biases": f"https://wandb.ai/ENTITY/PROJECT/runs/{OWNER.identity}",
}


@pytest.mark.parametrize("service", SERVICES)
def test_a_template_that_is_documented_for_a_service_gives_its_address(service: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "links-and-logs.md"
    rows = page.read_text(encoding="utf-8").splitlines()
    (row,) = [row for row in rows if row.startswith(f"| {service}")]
    template = row.split("|")[-2].strip().strip("`")
    templates = filled_at_once({"leader_logs": template}, OWNER, START)
    assert fill_links(templates, JOB, [MASTER], FINISH) == {
        "_link_LeaderLogsLink": SERVICES[service]
    }
