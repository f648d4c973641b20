"""`airflow-kftrain sweep`, with a metadata database of Airflow's own and the embedded cluster."""

from __future__ import annotations

import os
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain import Owner
from airflow_kftrain.manifests.identity import UNATTENDED_ANNOTATION
from tests.cluster.owned import connection, owned_job
from tests.cluster.targets import LocalTarget, Target
from tests.control_plane.api import Manifest

pytestmark = pytest.mark.timeout(180)  # Airflow starts anew each time, beside other tests

OWNER = Owner("ml-production", "nightly", "train", "manual__1", "ti-1")
_STATES = {"failed": "failed", "deferred": "deferred", "cleared": None}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("airflow")
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    done = subprocess.run(migrate, env=environment(home), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [("nightly", "manual__1", task, -1, state) for task, state in _STATES.items()]
    rows += [("nightly", "manual__1", "mapped", 0, "success")]
    rows += [("nightly", "manual__1", "mapped", 1, "running")]
    # As a scheduler writes them, without the DAG and the run that would be beside them.
    with closing(sqlite3.connect(home / "airflow.db")) as database, database:
        database.executemany(
            "INSERT INTO task_instance (id, pool, pool_slots, try_number, dag_id, run_id, task_id, "
            "map_index, state) VALUES (lower(hex(randomblob(16))), 'default_pool', 1, 1, "
            "?, ?, ?, ?, ?)",
            rows,
        )
    return home


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with LocalTarget() as target:
        yield target


class Cluster:
    """One namespace of it, and the command line."""

    def __init__(self, target: Target, home: Path, namespace: str) -> None:
        self.api = target.api
        self.namespace = namespace
        self.environment = environment(home, *connection(target.kubeconfig, namespace))
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        self.api.create(manifest).required("a namespace")

    def start(self, task: str, map_index: int = -1, **more: Any) -> str:
        owner = OWNER._replace(task_id=task, map_index=map_index, ti_id=f"ti-{task}-{map_index}")
        manifest: Manifest = owned_job(owner=owner._replace(**more))
        manifest["metadata"]["namespace"] = self.namespace
        return str(self.api.create(manifest).required("a job")["metadata"]["name"])

    def jobs(self) -> set[str]:
        path = self.api.path("kubeflow.org/v1", "PyTorchJob", self.namespace, None)
        items = self.api.call("GET", path).required("jobs")["items"]
        return {
            item["metadata"]["name"]
            for item in items
            if "deletionTimestamp" not in item["metadata"]
        }

    def sweep(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "airflow_kftrain", "sweep", "--conn-id", "cluster", *words],
            env=self.environment | variables,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def cluster(target: Target, home: Path) -> Cluster:
    return Cluster(target, home, f"s-{secrets.token_hex(4)}")


def environment(home: Path, *connection: str) -> dict[str, str]:
    said = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__KFTRAIN__INSTANCE": OWNER.instance,
    }
    kept = {name: value for name, value in os.environ.items() if "AIRFLOW__" not in name}
    return kept | said | dict([connection] if connection else [])  # type: ignore[list-item]


def rows(table: str) -> dict[str, list[str]]:
    """By the job's name."""
    lines = [line.split("  ") for line in table.splitlines()[1:]]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {line[0].rpartition("/")[2]: line[2:] for line in cells}


def test_all_living_jobs_are_listed_with_their_tasks_and_orphans_deleted(cluster: Cluster) -> None:
    failed, deferred = cluster.start("failed"), cluster.start("deferred")
    cleared, gone = cluster.start("cleared"), cluster.start("gone")
    ended, running = cluster.start("mapped", 0), cluster.start("mapped", 1)
    foreign = cluster.start("failed", instance="another", ti_id="ti-x")
    looked = cluster.sweep()
    assert looked.returncode == 1, looked.stderr
    assert "3 to be deleted with --yes" in looked.stderr
    assert looked.stdout.splitlines()[0].split() == [
        *("JOB", "AGE", "DAG", "RUN", "TASK", "INDEX", "STATE", "VERDICT")
    ]
    run = ["nightly", "manual__1"]
    assert rows(looked.stdout) == {
        failed: [*run, "failed", "-", "failed", "orphan"],
        deferred: [*run, "deferred", "-", "deferred", "looked after"],
        cleared: [*run, "cleared", "-", "-", "looked after"],
        gone: [*run, "gone", "-", "gone", "orphan"],
        ended: [*run, "mapped", "0", "success", "orphan"],
        running: [*run, "mapped", "1", "running", "looked after"],
    }
    assert f"PyTorchJob {cluster.namespace}/{failed}" in looked.stdout
    assert cluster.jobs() == {failed, deferred, cleared, gone, ended, running, foreign}

    deleted = cluster.sweep("--yes", "--namespace", cluster.namespace)
    assert deleted.returncode == 0, deleted.stderr
    verdicts = {name: cells[-1] for name, cells in rows(deleted.stdout).items()}
    assert {name for name, said in verdicts.items() if said == "deleted"} == {failed, gone, ended}
    assert cluster.jobs() == {deferred, cleared, running, foreign}


def test_namespaces_are_swept_together_if_asked(cluster: Cluster) -> None:
    job = cluster.start("failed", ti_id="ti-all")
    elsewhere = cluster.sweep("--namespace", "default")
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert elsewhere.stdout == "no living jobs of ml-production\n"
    everywhere = cluster.sweep("--all-namespaces")
    assert everywhere.returncode == 1, everywhere.stderr
    assert job in rows(everywhere.stdout)


def test_what_nobody_was_to_wait_for_stays(cluster: Cluster) -> None:
    owner = OWNER._replace(task_id="gone", ti_id="ti-forgotten")
    manifest = owned_job(owner=owner, **{UNATTENDED_ANNOTATION: "true"})
    manifest["metadata"]["namespace"] = cluster.namespace
    name = cluster.api.create(manifest).required("a job")["metadata"]["name"]
    swept = cluster.sweep("--yes")
    assert swept.returncode == 0, swept.stderr
    assert rows(swept.stdout)[name][-1] == "not waited for"
    assert cluster.jobs() == {name}


def test_an_airflow_without_a_name_has_to_be_told_its_name(cluster: Cluster) -> None:
    job = cluster.start("failed")
    nameless = {"AIRFLOW__KFTRAIN__INSTANCE": "", "AIRFLOW__API__BASE_URL": "http://localhost:8080"}
    refused = cluster.sweep("--yes", **nameless)
    assert refused.returncode == 2
    assert "Configure [kftrain] instance" in refused.stderr
    assert "--instance" in refused.stderr
    assert cluster.jobs() == {job}
    named = cluster.sweep("--yes", "--instance", OWNER.instance, **nameless)
    assert named.returncode == 0, named.stderr
    assert cluster.jobs() == set()


def test_without_airflows_database_nothing_is_known_and_nothing_deleted(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.start("failed")
    swept = cluster.sweep("--yes", AIRFLOW_HOME=str(tmp_path))
    assert swept.returncode == 2
    assert rows(swept.stdout)[job][-2:] == ["?", "not known"]
    assert "cannot read the state of a task" in swept.stderr
    assert cluster.jobs() == {job}


def test_a_connection_that_is_not_there_is_said_to_be_so(cluster: Cluster) -> None:
    swept = cluster.sweep("--conn-id", "nowhere")
    assert (swept.returncode, swept.stdout) == (2, "")
    assert "nowhere" in swept.stderr


def test_help_names_it() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "airflow_kftrain", "--help"], capture_output=True, text=True
    )
    assert "sweep" in shown.stdout
