"""What an Airflow's configuration says: its name, and where its workers run."""

from __future__ import annotations

import pytest

from airflow_kftrain.airflow_compat import (
    airflow_instance,
    instance_is_configured,
    workers_are_processes,
)


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__KFTRAIN__INSTANCE", raising=False)
    monkeypatch.delenv("AIRFLOW__API__BASE_URL", raising=False)


def test_the_option_names_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", " ml production ")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com")
    assert airflow_instance() == "ml production"


@pytest.mark.parametrize(
    ("base_url", "instance"),
    [
        ("https://airflow.example.com", "airflow.example.com"),
        ("https://Airflow.Example.com/", "airflow.example.com"),
        ("http://airflow.example.com:8080/Team-A/", "airflow.example.com:8080/Team-A"),
        ("https://user:secret@airflow.example.com/a?b=c#d", "airflow.example.com/a"),
        ("http://[2001:db8::1]:8080/", "[2001:db8::1]:8080"),
        ("airflow.example.com/team", "airflow.example.com/team"),
        ("/", "localhost:8080"),
        ("", "localhost:8080"),
    ],
)
@pytest.mark.parametrize("option", [None, "", "  "])
def test_else_the_base_url_does(
    monkeypatch: pytest.MonkeyPatch, option: str | None, base_url: str, instance: str
) -> None:
    if option is not None:
        monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", option)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert airflow_instance() == instance


def test_nothing_configured_is_where_airflow_itself_looks_for_its_server() -> None:
    assert airflow_instance() == "localhost:8080"


@pytest.mark.parametrize(
    ("option", "base_url", "configured"),
    [
        ("ml-production", "", True),
        ("localhost", "", True),
        ("", "https://airflow.example.com", True),
        ("", "airflow.example.com:8080/team", True),
        ("", "http://10.0.0.1:8080", True),
        ("", "http://[2001:db8::1]/", True),
        # Names that every machine calls itself do not identify an Airflow.
        ("", "", False),
        (" ", "/", False),
        ("", "http://localhost:8080", False),
        ("", "https://user:secret@LOCALHOST/airflow", False),
        ("", "http://127.0.0.1:28080", False),
        ("", "http://127.1.2.3", False),
        ("", "http://[::1]:8080", False),
        ("", "http://0.0.0.0:8080", False),
    ],
)
def test_only_a_name_that_others_cannot_have_too_is_configured(
    monkeypatch: pytest.MonkeyPatch, option: str, base_url: str, configured: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", option)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert instance_is_configured() is configured


@pytest.mark.parametrize(
    ("executor", "processes"),
    [
        ("LocalExecutor", True),
        ("CeleryExecutor", True),
        ("airflow.providers.celery.executors.celery_executor.CeleryExecutor", True),
        ("LocalExecutor,quick:airflow.executors.local_executor.LocalExecutor", True),
        ("KubernetesExecutor", False),
        ("LocalExecutor,KubernetesExecutor", False),
        ("CeleryKubernetesExecutor", False),
        ("of_ours:company.executors.CloudExecutor", False),
    ],
)
def test_whether_workers_are_processes_is_read_from_the_executors(
    monkeypatch: pytest.MonkeyPatch, executor: str, processes: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    assert workers_are_processes() is processes
