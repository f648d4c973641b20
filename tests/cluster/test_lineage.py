"""Which training has made an asset, and from which version of the DAG file."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset

from airflow_kftrain import Logs
from tests.cluster.operated import ERRORS, Instance, Operated, execute, operator
from tests.cluster.world import World

MODEL = Asset("s3://models/churn")
PROGRESS = json.dumps({"kftrain": {"step": 5, "metrics": {"loss": 0.25}}})
RESULT = """echo '{"epochs": 3}' > $KFTRAIN_RESULT_FILE"""


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def made(instance: Instance) -> Any:
    return instance.outlet_events[MODEL].extra


@pytest.mark.usefixtures("operated")
def test_the_event_of_an_asset_names_the_training() -> None:
    instance: Any = Instance()
    instance.bundle_instance = SimpleNamespace(name="dags", version="4f1c")
    script = f"echo '{PROGRESS}'; {RESULT}"
    execute(operator(script, outlets=[MODEL], logs=Logs(progress=True)), instance)
    said = made(instance)["kftrain"]
    assert said.pop("job") == {key: instance.xcoms["job"][key] for key in said_job()}
    assert said == {
        "image": "x",
        "result": {"epochs": 3},
        "metrics": {"loss": 0.25},
        "bundle": {"name": "dags", "version": "4f1c"},
    }


def said_job() -> tuple[str, ...]:
    return ("kind", "namespace", "name", "uid")


@pytest.mark.usefixtures("operated")
def test_what_the_author_says_stays_and_what_is_large_is_left_out() -> None:
    instance = Instance()
    made(instance)["team"] = "churn"
    large = """echo '{"text": "'$(head -c 2000 /dev/zero | tr '\\0' x)'"}' > $KFTRAIN_RESULT_FILE"""
    execute(operator(large, outlets=[MODEL]), instance)
    assert made(instance)["team"] == "churn"
    assert set(made(instance)["kftrain"]) == {"job", "image"}


@pytest.mark.usefixtures("operated")
def test_a_training_that_fails_says_nothing() -> None:
    instance = Instance()
    with pytest.raises(ERRORS.AirflowException):
        execute(operator("exit 1", outlets=[MODEL]), instance)
    assert made(instance) == {}


def test_the_job_names_the_version_of_the_dag_file(operated: Operated) -> None:
    instance: Any = Instance()
    instance.bundle_instance = SimpleNamespace(name="dags", version="4f1c")
    with pytest.raises(ERRORS.AirflowException):
        execute(operator("exit 1"), instance)
    notes = operated.job()["metadata"]["annotations"]
    assert notes["airflow-kftrain/bundle"] == "dags"
    assert notes["airflow-kftrain/bundle-version"] == "4f1c"
