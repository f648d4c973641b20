"""`airflow-kftrain sweep`, with a metadata database of Airflow and the embedded cluster."""

from __future__ import annotations

import secrets
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.models.taskinstance import TaskInstance

from airflow_kftrain import Owner
from airflow_kftrain.manifests.identity import UNATTENDED_ANNOTATION
from tests.airflow.command_line import CommandLine, settings_of
from tests.cluster.owned import connection, owned_job
from tests.cluster.targets import LocalTarget, Target
from tests.control_plane.api import Manifest

pytestmark = pytest.mark.timeout(180)  # Airflow starts next to other tests

OWNER = Owner("ml-production", "nightly", "train", "manual__1", "ti-1")
HAS_LOOPS = hasattr(TaskInstance, "region_id")
REGION = uuid.UUID(int=7)
PASSES = ((0, "failed"), (1, "deferred"))
_STATES = {"failed": "failed", "deferred": "deferred", "cleared": None}


@pytest.fixture(scope="module")
def airflow(command_line: CommandLine) -> CommandLine:
    done = command_line.run("airflow", "db", "migrate")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [("nightly", "manual__1", task, -1, state) for task, state in _STATES.items()]
    rows += [("nightly", "manual__1", "mapped", 0, "success")]
    rows += [("nightly", "manual__1", "mapped", 1, "running")]
    with closing(sqlite3.connect(command_line.home / "airflow.db")) as database, database:
        insert(database, "region_index" if HAS_LOOPS else "map_index", rows)
        if HAS_LOOPS:
            looped = [("nightly", "manual__1", "looped", index, state) for index, state in PASSES]
            insert(database, "region_index", looped, region_id=REGION.hex)
    return command_line


def insert(
    database: sqlite3.Connection, index: str, rows: list[tuple[object, ...]], **more: str
) -> None:
    """As a scheduler writes them, but without the DAG and the run that belong to them."""
    columns = ["id", "pool", "pool_slots", "try_number", *more]
    values = ["lower(hex(randomblob(16)))", "'default_pool'", "1", "1"]
    values += [f"'{value}'" for value in more.values()]
    database.executemany(
        f"INSERT INTO task_instance ({', '.join(columns)}, dag_id, run_id, task_id, {index}, "
        f"state) VALUES ({', '.join(values)}, ?, ?, ?, ?, ?)",
        rows,
    )


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with LocalTarget() as target:
        yield target


class Cluster:
    """One namespace of the cluster, and the command line."""

    def __init__(self, target: Target, airflow: CommandLine, namespace: str) -> None:
        self.api = target.api
        self.namespace = namespace
        self.settings = dict([connection(target.kubeconfig, namespace)])
        self.settings["AIRFLOW__KFTRAIN__INSTANCE"] = OWNER.instance
        self._airflow = airflow
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
        sweep = ("airflow-kftrain", "sweep", "--conn-id", "cluster")
        return self._airflow.run(*sweep, *words, **self.settings | variables)


@pytest.fixture
def cluster(target: Target, airflow: CommandLine) -> Cluster:
    return Cluster(target, airflow, f"s-{secrets.token_hex(4)}")


def rows(table: str) -> dict[str, list[str]]:
    """By the name of the job."""
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
    assert "3 orphans; delete with --yes" in looked.stderr
    assert looked.stdout.splitlines()[0].split() == [
        *("JOB", "AGE", "DAG", "RUN", "TASK", "INDEX", "STATE", "VERDICT")
    ]
    run = ["nightly", "manual__1"]
    assert rows(looked.stdout) == {
        failed: [*run, "failed", "-", "failed", "orphan"],
        deferred: [*run, "deferred", "-", "deferred", "in use"],
        cleared: [*run, "cleared", "-", "-", "in use"],
        gone: [*run, "gone", "-", "gone", "orphan"],
        ended: [*run, "mapped", "0", "success", "orphan"],
        running: [*run, "mapped", "1", "running", "in use"],
    }
    assert f"PyTorchJob {cluster.namespace}/{failed}" in looked.stdout
    assert cluster.jobs() == {failed, deferred, cleared, gone, ended, running, foreign}

    deleted = cluster.sweep("--yes", "--namespace", cluster.namespace)
    assert deleted.returncode == 0, deleted.stderr
    verdicts = {name: cells[-1] for name, cells in rows(deleted.stdout).items()}
    assert {name for name, said in verdicts.items() if said == "deleted"} == {failed, gone, ended}
    assert cluster.jobs() == {deferred, cleared, running, foreign}


@pytest.mark.skipif(not HAS_LOOPS, reason="this Airflow has no task loops")
def test_iterations_of_a_task_loop_are_told_apart(cluster: Cluster) -> None:
    """Airflow's API would return the state of the latest iteration for each."""

    def start(index: int, region: uuid.UUID) -> str:
        ti_id = f"ti-{region}-{index}"
        return cluster.start("looped", region_id=str(region), region_index=index, ti_id=ti_id)

    failed, deferred = start(0, REGION), start(1, REGION)
    cleared = start(1, uuid.UUID(int=8))  # with the iteration before, so it no longer exists
    looked = cluster.sweep()
    assert {name: cells[-2:] for name, cells in rows(looked.stdout).items()} == {
        failed: ["failed", "orphan"],
        deferred: ["deferred", "in use"],
        cleared: ["gone", "orphan"],
    }


def test_namespaces_are_swept_together_if_asked(cluster: Cluster) -> None:
    job = cluster.start("failed", ti_id="ti-all")
    elsewhere = cluster.sweep("--namespace", "default")
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert elsewhere.stdout == "no unfinished jobs of ml-production\n"
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
    swept = subprocess.run(
        [sys.executable, "-m", "airflow_kftrain", "sweep", "--conn-id", "cluster", "--yes"],
        env=settings_of(tmp_path) | cluster.settings,
        capture_output=True,
        text=True,
    )
    assert swept.returncode == 2
    assert [(name, *cells[-2:]) for name, cells in rows(swept.stdout).items()] == [
        (job, "?", "unknown")
    ]
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
