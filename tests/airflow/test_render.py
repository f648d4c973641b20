"""`airflow-kftrain render`: the manifest of a task, without a run and without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.airflow.command_line import CommandLine, settings_of

pytestmark = pytest.mark.timeout(600)  # Airflow starts next to other tests

DAG = """
from airflow.sdk import DAG, task
from airflow_kftrain import FromSecret, Pod, PyTorchJobOperator, Replica, TrainingJobOperator

PRIVATE = Pod(image_pull_secrets=[{"name": "registry-token"}])

@task
def image():
    return "i"

@task
def images():
    return ["i:1", "i:2"]

@task
def count():
    return 2

with DAG("example", params={"n": 3}):
    PyTorchJobOperator(
        task_id="train",
        image="i:{{ ds }}",
        workers="{{ params.n }}",
        env={
            "TOKEN": FromSecret("tokens", "api_token"),
            "SPEED": "{{ var.value.get('speed', 'slow') }}",
        },
        pod=PRIVATE,
        namespace="ml",
    )
    PyTorchJobOperator(
        task_id="needs_a_run",
        image=image(),
        command=["train", "{{ ti.xcom_pull('image')['path'] }}"],
        workers=count(),
    )
    PyTorchJobOperator.partial(task_id="swept", workers=1).expand(image=images())
    PyTorchJobOperator.partial(task_id="unfolded", workers=1).expand_kwargs(images())
    PyTorchJobOperator(task_id="secret", image="i", workers=1, pod=PRIVATE, env={
        "TOKEN": "hunter2", "KEY": FromSecret("tokens", "api_token"),
    })
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


UPSTREAM = """
from airflow.sdk import DAG, task
from airflow_kftrain import PyTorchJobOperator

@task
def image():
    return "i:1"

@task
def images():
    return ["i:1", "i:2"]

@task
def count():
    return 2

@task
def parts():
    return {"a": ["b"]}

with DAG("upstream", params={"n": 3}):
    train = PyTorchJobOperator(
        task_id="train",
        image=image(),
        command=[
            "train", "{{ ds }}", "{{ params.n }}", "{{ ti.xcom_pull('parts')['a'][0] }}",
        ],
        workers=count(),
    )
    parts() >> train
    PyTorchJobOperator.partial(task_id="swept", workers=1).expand(image=images())
"""

SETTINGS = {"AIRFLOW_VAR_SPEED": "fast"}


@pytest.fixture(scope="module")
def airflow(command_line: CommandLine) -> CommandLine:
    dags = command_line.home / "dags"  # Airflow's default
    dags.mkdir(exist_ok=True)  # the same home if a process comes back to this module
    (dags / "example.py").write_text(DAG)
    (dags / "upstream.py").write_text(UPSTREAM)
    (dags / "job.yaml").write_text(JOB)
    (dags / "broken.py").write_text("import no_such_module  # of no airflow dag")
    return command_line


def render(airflow: CommandLine, *words: str) -> subprocess.CompletedProcess[str]:
    return airflow.run("airflow-kftrain", "render", *words, **SETTINGS)


def rendered(airflow: CommandLine, *words: str) -> dict[str, Any]:
    done = render(airflow, *words)
    assert done.returncode == 0, done.stderr
    manifest: dict[str, Any] = yaml.safe_load(done.stdout)
    return manifest


def test_templates_are_rendered_and_nothing_else_is_on_standard_output(
    airflow: CommandLine,
) -> None:
    """Nothing else while Airflow starts, either."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow_kftrain", "render", "example", "train"],
        env=settings_of(airflow.home) | SETTINGS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    manifest = yaml.safe_load(done.stdout)
    assert manifest["metadata"]["name"].startswith("example-train-")
    assert manifest["metadata"]["namespace"] == "ml"
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 3
    (container,) = worker["template"]["spec"]["containers"]
    assert container["image"].startswith("i:20")
    assert container["env"][:2] == [
        {
            "name": "TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "api_token"}},
        },
        {"name": "SPEED", "value": "fast"},
    ]
    pod = worker["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry-token"}]


def test_one_of_a_mapped_task(airflow: CommandLine) -> None:
    manifest = rendered(airflow, "example", "mapped", "--map-index", "1")
    assert manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert manifest["metadata"]["labels"]["map_index"] == "1"


def test_what_only_a_run_has_is_named(airflow: CommandLine) -> None:
    """In texts and where a number is expected."""
    manifest = rendered(airflow, "example", "needs_a_run")
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    assert container["image"] == "<XCom of image>"
    assert container["command"] == ["train", "<XCom of image['path']>"]
    assert worker["replicas"] == "<XCom of count>"


def test_one_of_a_task_that_is_mapped_over_an_xcom(airflow: CommandLine) -> None:
    manifest = rendered(airflow, "example", "swept", "--map-index", "1")
    master = manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    assert master["template"]["spec"]["containers"][0]["image"] == "<XCom of images[1]>"


def test_a_secret_is_named_and_not_printed(airflow: CommandLine) -> None:
    """Kubernetes would accept a manifest with ***, and the training would fail."""
    done = render(airflow, "example", "secret")
    assert (done.returncode, done.stdout) == (1, "")
    assert "env[TOKEN].value" in done.stderr.splitlines()[-1]
    assert "KEY" not in done.stderr.splitlines()[-1]
    shown = rendered(airflow, "example", "secret", "--masked")
    worker = shown["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["template"]["spec"]["containers"][0]["env"][0]["value"] == "***"


def test_the_values_of_a_run(airflow: CommandLine) -> None:
    """Its date, its parameters, its XComs."""
    place = {"AIRFLOW__CORE__DAGS_FOLDER": str(airflow.home / "dags")}
    not_yet = render(airflow, "example", "train", "--run", "no").stderr.splitlines()[-1]
    assert not_yet.startswith("airflow-kftrain render: Airflow's database cannot be read: ")
    assert airflow.run("airflow", "db", "migrate", **place).returncode == 0
    words = ["--mark-success-pattern", "train|swept", "--conf", '{"n": 7}']
    done = airflow.run("airflow", "dags", "test", "upstream", "2026-03-04", *words, **place)
    assert done.returncode == 0, done.stderr
    missing = render(airflow, "example", "train", "--run", "no").stderr.splitlines()[-1]
    assert missing == "airflow-kftrain render: example has no run 'no'."
    listed = airflow.run("airflow", "dags", "list-runs", "upstream", "--output", "json", **place)
    (run_id,) = [run["run_id"] for run in json.loads(listed.stdout.splitlines()[-1])]
    manifest = rendered(airflow, "upstream", "train", "--run", run_id)
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    assert container["image"] == "i:1"
    assert container["command"] == ["train", "2026-03-04", "7", "b"]
    assert worker["replicas"] == 2
    assert manifest["metadata"]["annotations"]["airflow-kftrain/run-id"] == run_id
    mapped = rendered(airflow, "upstream", "swept", "--map-index", "1", "--run", run_id)
    master = mapped["spec"]["pytorchReplicaSpecs"]["Master"]
    assert master["template"]["spec"]["containers"][0]["image"] == "i:2"


def test_a_file_beside_the_dag(airflow: CommandLine) -> None:
    manifest = rendered(airflow, "example", "raw")
    assert manifest["spec"]["parallelism"] == 3
    assert manifest["metadata"]["name"].startswith("own-name-")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["example", "undefined"], "image: cannot be rendered: 'nonsense' is undef"),
        (
            ["example", "unfolded", "--map-index", "0"],
            "unfolded cannot be expanded: ",
        ),
        (["example", "mapped"], "mapped is mapped. Select an instance: --map-index 0"),
        (["example", "image"], "image is a "),
        (
            ["example", "nix"],
            "example has no task 'nix'. It has count, image, images, images__1, mapped",
        ),
        (["nix", "train"], "has no DAG 'nix'. Files that cannot be parsed: "),
    ],
)
def test_what_cannot_be_rendered_is_said_in_a_line(
    airflow: CommandLine, words: list[str], problem: str
) -> None:
    done = render(airflow, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("airflow-kftrain render: ")
    assert problem in last
