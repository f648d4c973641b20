"""The real API servers accept what `airflow-kftrain render` prints for the examples and recipes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.airflow.command_line import started
from tests.control_plane import ControlPlane
from tests.control_plane.launcher import MPI_OPERATOR

pytestmark = pytest.mark.timeout(600)  # Airflow starts, and parses each example

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("example_dags", "docs/recipes")
_CONNECTION = {"AIRFLOW_CONN_WAREHOUSE": "postgres://train:hunter2-is-long@db.example.com/churn"}
"""That of the recipe for secrets."""


def _tasks(folder: str) -> list[tuple[str, str, bool]]:
    """DAG, task, and whether the task is mapped."""
    from airflow_kftrain.operators.training_job import BaseTrainingJobOperator

    return [
        (dag.dag_id, task.task_id, task.is_mapped)
        for file in sorted((_ROOT / folder).glob("*.py"))
        for dag in (import_module(f"{folder.replace('/', '.')}.{file.stem}").dag,)
        for task in dag.tasks
        if issubclass(getattr(task, "operator_class", type(task)), BaseTrainingJobOperator)
    ]


def _rendered(home: Path, folder: str) -> dict[str, dict[str, Any]]:
    """The manifests, by DAG and task."""
    found = {}
    (home / "dags").symlink_to(_ROOT / folder)  # Airflow's default
    with started(home) as line:
        for dag, task, mapped in _tasks(folder):
            words = ["render", dag, task, *(["--map-index", "0"] if mapped else [])]
            done = line.run("airflow-kftrain", *words, **_CONNECTION)
            assert done.returncode == 0, done.stderr
            found[f"{dag}.{task}"] = yaml.safe_load(done.stdout)
    return found


Manifests = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """Of a folder; rendered once for both profiles."""
    return cache(lambda folder: _rendered(tmp_path_factory.mktemp("airflow"), folder))


@pytest.mark.parametrize("folder", _FOLDERS)
def test_every_example_that_is_rendered_is_accepted(
    plane: ControlPlane, namespace: str, manifests: Manifests, folder: str
) -> None:
    """As by `kubectl create --dry-run=server --validate=strict`."""
    refused = {}
    assert len(manifests(folder)) > 10
    for name, manifest in manifests(folder).items():
        if manifest["kind"] == "MPIJob" and plane.profile != MPI_OPERATOR:
            continue
        placed = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
        created = plane.api().create(placed, dryRun="All", fieldValidation="Strict")
        if not created.ok:
            refused[name] = created.message
    assert refused == {}
