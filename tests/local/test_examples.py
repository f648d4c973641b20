"""The examples, as they are, on the embedded cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster.targets import LocalTarget
from tests.cluster.world import eventually

# Airflow takes its time to start.
pytestmark = pytest.mark.timeout(600)

_ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES = _ROOT / "example_dags"
_TOGETHER = (
    ("pytorch_job", "pytorch_roles", "pytorch_elastic", "training_pipeline", "horovod_job"),
    ("mapped_jobs", "tf_job", "mpi_job", "train_job", "raw_manifest"),
)
"""Which run one after the other in one Airflow; the groups run side by side."""
_PATIENCE = 480
_KINDS = (
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v1", "TFJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("v1", "Pod"),
)


class Ran(NamedTuple):
    tasks: dict[tuple[str, int], dict[str, Any]]
    """By id and map index."""
    log: str

    def result(self, task: str = "train", index: int = -1) -> Any:
        return self.tasks[task, index]["xcoms"]["return_value"]

    @property
    def states(self) -> set[str]:
        return {task["state"] for task in self.tasks.values()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalTarget]:
    """Of its own, with stand-ins for what is not installed everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{_EXAMPLES / 'stand_ins'}{os.pathsep}{os.environ['PATH']}")
        target = LocalTarget()
        target.__enter__()
    yield target
    target.__exit__()


@pytest.fixture(scope="module")
def examples(cluster: LocalTarget, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """How each of them went."""
    found = {}
    with ExitStack() as undo:
        started = []
        for names in _TOGETHER:
            home = tmp_path_factory.mktemp("airflow")
            log = undo.enter_context(open(home / "log", "w+", encoding="utf-8"))
            process = _airflow(home, cluster, names, log)
            undo.callback(process.wait)
            undo.callback(process.kill)
            started.append((process, log))
        for process, log in started:
            ended = process.wait(_PATIENCE)
            log.seek(0)
            output = log.read()
            assert ended == 0, output
            for name, tasks in json.loads(output.splitlines()[-1]).items():
                by_id = {(task["task"], task["index"]): task for task in tasks}
                own = output.partition(f"----- {name}\n")[2].partition("\n----- ")[0]
                found[name] = Ran(by_id, own)
    return found


def _airflow(
    home: Path, cluster: LocalTarget, names: tuple[str, ...], log: Any
) -> subprocess.Popen[bytes]:
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(_EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # A deferred task waits for as long as that before it goes on; see docs/limitations.md.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "PYTHONPATH": str(_ROOT),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.local.run_examples", *names],
        env={**os.environ, **settings, **cluster.airflow()},
        stdout=log,
        stderr=log,
    )


def test_every_example_is_run() -> None:
    files = {path.stem for path in _EXAMPLES.glob("*.py")}
    assert {name for names in _TOGETHER for name in names} == files


@pytest.mark.parametrize("name", sorted(name for names in _TOGETHER for name in names))
def test_every_task_of_an_example_succeeds_after_it_was_deferred(
    examples: dict[str, Ran], name: str
) -> None:
    ran = examples[name]
    assert ran.states == {"success"}, ran.log
    jobs = [task["xcoms"]["job"] for task in ran.tasks.values() if task["task"] == "train"]
    assert ran.log.count("Pausing task as DEFERRED") >= len(jobs) >= 1
    assert all(job["namespace"] == "default" and job["uid"] for job in jobs)


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        ("pytorch_job", 3),
        ("pytorch_roles", 4),
        ("pytorch_elastic", 3),
        ("tf_job", 4),
        ("train_job", 2),
    ],
)
def test_all_processes_take_part_and_the_leaders_result_is_the_tasks(
    examples: dict[str, Ran], name: str, processes: int
) -> None:
    assert examples[name].result()["processes"] == processes


def test_ranks_of_mpi_compute_what_the_launcher_returns(examples: dict[str, Ran]) -> None:
    assert examples["mpi_job"].result() == pytest.approx(3.14159)


def test_ranks_of_horovod_tell_the_launcher_who_has_no_result(examples: dict[str, Ran]) -> None:
    ran = examples["horovod_job"]
    assert ran.result() is None
    assert "1.5708" in ran.log
    assert "1.5707" in ran.log


def test_a_manifest_from_a_file_is_rendered(examples: dict[str, Ran]) -> None:
    assert examples["raw_manifest"].result() == {"words": 3}


def test_each_mapped_job_has_its_own_result_and_the_best_is_found(examples: dict[str, Ran]) -> None:
    ran = examples["mapped_jobs"]
    losses = [ran.result(index=index)["loss"] for index in range(3)]
    assert len(set(losses)) == 3
    assert ran.result("best")["loss"] == min(losses)


def test_a_second_attempt_goes_on_where_the_first_has_failed(examples: dict[str, Ran]) -> None:
    ran = examples["training_pipeline"]
    assert ran.tasks["train", -1]["tries"] == 2
    assert ran.result("report").endswith("begun at step 60")
    assert "attempt 1 breaks off at step 60" in ran.log


def test_buttons_lead_to_the_job_and_to_its_leaders_log(examples: dict[str, Ran]) -> None:
    xcoms = examples["training_pipeline"].tasks["train", -1]["xcoms"]
    job = xcoms["job"]["name"]
    place = "https://kubernetes.example.com/default/pytorchjobs"
    assert xcoms["_link_TrainingJobLink"] == f"{place}/{job}"
    logs = f"https://logs.example.com/default/{job}-master-0?from="
    assert xcoms["_link_LeaderLogsLink"].startswith(logs)
    assert "{" not in xcoms["_link_LeaderLogsLink"]


def test_of_all_jobs_only_the_one_that_failed_is_left_to_be_looked_at(
    examples: dict[str, Ran], cluster: LocalTarget
) -> None:
    def left() -> set[str]:
        paths = [cluster.api.path(*kind, "default") for kind in _KINDS]
        lists = [cluster.api.call("GET", path).required("a list") for path in paths]
        return {item["metadata"]["name"] for found in lists for item in found["items"]}

    pipeline = examples["training_pipeline"]
    (failed,) = re.findall(r"Created PyTorchJob default/(\S+)\.", pipeline.log)[:-1]
    pods = {f"{failed}-master-0", f"{failed}-worker-0"}
    # Pods go after their jobs.
    eventually(lambda: left() == {failed, *pods}, lambda: sorted(left()))
