"""`airflow-kftrain render`: the manifest of a task, without a run and without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.timeout(180)  # Airflow starts each time, beside other tests

DAG = """
from airflow.sdk import DAG, task
from airflow_kftrain import PyTorchJobOperator, Replica, TrainingJobOperator

@task
def image():
    return "i"

with DAG("example", params={"n": 3}):
    PyTorchJobOperator(
        task_id="train",
        image="i:{{ ds }}",
        workers="{{ params.n }}",
        env={"TOKEN": "hunter2", "SPEED": "{{ var.value.get('speed', 'slow') }}"},
        namespace="ml",
    )
    PyTorchJobOperator(task_id="needs_a_run", image=image(), workers=1)
    PyTorchJobOperator(task_id="undefined", image="{{ nonsense.a }}", workers=1)
    PyTorchJobOperator.partial(task_id="mapped", image="i").expand(
        worker=[Replica(count=1), Replica(count="{{ params.n }}")]
    )
    TrainingJobOperator(task_id="raw", manifest="job.yaml")
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: own-name}
spec:
  parallelism: {{ params.n }}
  template: {spec: {containers: [{name: main, image: i}]}}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    (home / "dags" / "example.py").write_text(DAG)
    (home / "dags" / "job.yaml").write_text(JOB)
    (home / "dags" / "broken.py").write_text("import no_such_module  # of no airflow dag")
    return home


def render(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_VAR_SPEED": "fast",
    }
    return subprocess.run(
        [sys.executable, "-m", "airflow_kftrain", "render", *words],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )


def rendered(home: Path, *words: str) -> dict[str, Any]:
    done = render(home, *words)
    assert done.returncode == 0, done.stderr
    manifest: dict[str, Any] = yaml.safe_load(done.stdout)
    return manifest


def test_templates_are_rendered_and_nothing_else_is_on_standard_output(home: Path) -> None:
    manifest = rendered(home, "example", "train")
    assert manifest["metadata"]["name"].startswith("example-train-")
    assert manifest["metadata"]["namespace"] == "ml"
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 3
    (container,) = worker["template"]["spec"]["containers"]
    assert container["image"].startswith("i:20")
    assert container["env"][:2] == [
        {"name": "TOKEN", "value": "***"},
        {"name": "SPEED", "value": "fast"},
    ]


def test_one_of_a_mapped_task(home: Path) -> None:
    manifest = rendered(home, "example", "mapped", "--map-index", "1")
    assert manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert manifest["metadata"]["labels"]["map_index"] == "1"


def test_a_file_beside_the_dag(home: Path) -> None:
    manifest = rendered(home, "example", "raw")
    assert manifest["spec"]["parallelism"] == 3
    assert manifest["metadata"]["name"].startswith("own-name-")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["example", "needs_a_run"], "image: is the XCom of another task, which only a run has"),
        (["example", "undefined"], "image: cannot be rendered without a run: 'nonsense' is undef"),
        (["example", "mapped"], "mapped is mapped. Say which one: --map-index 0"),
        (["example", "image"], "image is a "),
        (["example", "nix"], "example has no task 'nix'. It has image, mapped, needs_a_run"),
        (["nix", "train"], "has no DAG 'nix'. Files that cannot be parsed: "),
    ],
)
def test_what_cannot_be_rendered_is_said_in_a_line(
    home: Path, words: list[str], problem: str
) -> None:
    done = render(home, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("airflow-kftrain render: ")
    assert problem in last
