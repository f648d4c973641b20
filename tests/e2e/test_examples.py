"""Every example DAG, unchanged, on a real Airflow and the embedded cluster: what its tasks return,
what their logs say, and what is left."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kftrain_local.agent.agent import state_folder
from kftrain_local.agent.machine import Settings
from kftrain_local.api_client import ApiClient, read_kubeconfig
from kftrain_local.cluster import LocalCluster
from tests.e2e.breakable import BreakableAirflow
from tests.e2e.stage import SQLITE, Background, patiently, say, until

_FOLDER = Path(__file__).parents[2] / "example_dags"
EXAMPLES = sorted(file.stem for file in _FOLDER.glob("*.py"))
_ENDS = ("success", "failed")

pytestmark = [pytest.mark.gate, pytest.mark.timeout(1200)]


_PLURALS = (
    "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
    "/apis/kubeflow.org/v1/namespaces/default/tfjobs",
    "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs",
    "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
    "/api/v1/namespaces/default/pods",
)
_LEFT = ("", "-master-0", "-worker-0")
"""The objects of the job that failed; all others are deleted."""
_FAIL_FIRST = {("training_pipeline", "attempt=1")}
"""Tries that fail on purpose, so that the next one can continue."""
_WRITTEN_BY_THE_AUTHOR = (" as it is submitted", "The function of the job")
"""The ends of titles."""
_OWN_LOG = "The end of the leader's log"
_SLOWLY = {
    # Airflow ends a worker that has deferred, but does not exit before its next heartbeat.
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "60",
    "CORE__TASK_SUCCESS_OVERTIME": "300",
}
"""On a slow machine a good run has no error either."""


class Said(NamedTuple):
    """One entry of a log."""

    level: str
    logger: str
    text: str

    @property
    def is_bad(self) -> bool:
        return self.level not in ("debug", "info")


class TaskLog:
    """What the author reads of one try: the worker's lines, and the trigger's."""

    def __init__(self, file: Path) -> None:
        self.task = str(file.parent)
        self.attempt = file.stem
        self.name = f"{file.parent.name} {file.stem}"
        files = [file, *sorted(file.parent.glob(f"{file.name}.trigger.*"))]
        lines = [line for each in files for line in each.read_text("utf-8").splitlines()]
        found = [json.loads(line) for line in lines]
        self.said = [
            Said(each["level"], each.get("logger", ""), each["event"])
            for each in sorted(found, key=lambda each: each["timestamp"])
        ]

    @property
    def text(self) -> str:
        return "\n".join(said.text for said in self.said)

    def own_lines(self) -> Iterator[str]:
        """The lines of this package, without the manifest and the function, which are the author's
        own."""
        before = ""
        for said in self.said:
            if "airflow_kftrain" in said.logger:
                if not before.endswith(_WRITTEN_BY_THE_AUTHOR):
                    yield from said.text.splitlines()
                before = said.text


class Stage:
    """A cluster and an Airflow, in an event loop of their own."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._ending = AsyncExitStack()

    async def open(self, folder: Path) -> None:
        state = self._ending.enter_context(state_folder(folder))
        cluster = await self._ending.enter_async_context(LocalCluster(state, Settings(cpu="64")))
        # A failure there shows itself by what is missing later.
        running = asyncio.create_task(cluster.run_until(asyncio.Event()))
        self._ending.callback(running.cancel)
        client = ApiClient(read_kubeconfig(cluster.kubeconfig))
        self._api = await self._ending.enter_async_context(client)
        extra = {"kube_config_path": str(cluster.kubeconfig), "namespace": "default"}
        settings = {
            **patiently({**SQLITE, **_SLOWLY, "OPERATORS__DEFAULT_DEFERRABLE": "True"}),
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(
                {"conn_type": "kubernetes", "extra": extra}
            ),
        }
        self.airflow = BreakableAirflow(state, _FOLDER, settings, say)
        await self._ending.enter_async_context(self.airflow)
        await until(self._knows_all, "Airflow knows the DAGs")
        body = {"dag_run_id": "run", "logical_date": None}
        for name in EXAMPLES:
            await self.airflow.post(f"dags/{name}/dagRuns", body)

    async def _knows_all(self) -> bool:
        errors = (await self.airflow.get("importErrors"))["import_errors"]
        assert not errors, errors[0]["stack_trace"]
        return bool((await self.airflow.get("dags?limit=1"))["total_entries"] == len(EXAMPLES))

    def end_of(self, name: str) -> str:
        """The state of its run when that has ended."""

        async def state() -> str:
            path = f"dags/{name}/dagRuns/run"

            async def ended() -> str:
                found = str((await self.airflow.get(path))["state"])
                return found if found in _ENDS else ""

            return str(await until(ended, f"the run of {name} is over"))

        return self._background.start(state()).result()

    def logs_of(self, name: str) -> list[TaskLog]:
        """The logs of all tries of its tasks."""
        runs = self.airflow.home / f"logs/dag_id={name}/run_id=run"
        return [TaskLog(file) for file in sorted(runs.glob("**/attempt=*.log"))]

    def text_of(self, name: str) -> str:
        return "\n".join(log.text for log in self.logs_of(name))

    def tasks_of(self, name: str) -> list[dict[str, Any]]:
        return list(self._get(f"dags/{name}/dagRuns/run/taskInstances")["task_instances"])

    def result(self, name: str, task: str = "train", index: int = -1) -> Any:
        """What the task has returned, after the whole run has succeeded."""
        assert self.end_of(name) == "success"
        found = self._get(f"{_place(name, task)}/xcomEntries/return_value?map_index={index}")
        return found["value"]

    def has_result(self, name: str) -> bool:
        return any(self._xcoms(name, "return_value"))

    def jobs_of(self, name: str) -> list[dict[str, str]]:
        return list(self._xcoms(name, "job"))

    def _xcoms(self, name: str, key: str) -> Iterator[Any]:
        """Those of all its tasks."""
        for each in self._get(f"{_place(name, '~')}/xcomEntries")["xcom_entries"]:
            if each["key"] == key:
                place = f"{_place(name, each['task_id'])}/xcomEntries/{key}"
                yield self._get(f"{place}?map_index={each['map_index']}")["value"]

    def links_of(self, name: str) -> dict[str, str]:
        return dict(self._get(f"{_place(name)}/links")["extra_links"])

    def left(self) -> set[str]:
        """The names of all jobs and pods, as soon as nothing else is left than is meant to: pods
        are deleted after their jobs."""
        found: set[str] = set()

        async def few() -> bool:
            lists = [await self._api.get(path) for path in _PLURALS]
            found.clear()
            found.update(item["metadata"]["name"] for each in lists for item in each["items"])
            return len(found) <= len(_LEFT)

        self._background.start(until(few, "the others are deleted")).result()
        return found

    def _get(self, path: str) -> Any:
        return self._background.start(self.airflow.get(path)).result()

    async def close(self) -> None:
        await self._ending.aclose()


def _place(name: str, task: str = "train") -> str:
    return f"dags/{name}/dagRuns/run/taskInstances/{task}"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    # Not a folder of pytest, which other runs of pytest remove.
    folder = tempfile.mkdtemp(prefix="kftrain-examples-")
    background = Background()
    stage = Stage(background)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{_FOLDER / 'stand_ins'}{os.pathsep}{before}"
    try:
        background.start(stage.open(Path(folder))).result()
        yield stage
    finally:
        os.environ["PATH"] = before
        background.start(stage.close()).result()
        background.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_task_of_an_example_succeeds_and_its_jobs_are_watched_by_a_trigger(
    stage: Stage, name: str
) -> None:
    logs = stage.logs_of
    assert stage.end_of(name) == "success", [
        (log.name, said) for log in logs(name) for said in log.said if said.is_bad
    ]
    assert {task["state"] for task in stage.tasks_of(name)} == {"success"}
    submitting = [log for log in logs(name) if re.search(r"Created \w+ default/", log.text)]
    assert submitting
    assert all("Pausing task as DEFERRED" in log.text for log in submitting)
    created = set(re.findall(r"Created \w+ default/(\S+)\.", stage.text_of(name)))
    jobs = stage.jobs_of(name)
    assert len(jobs) == len({log.task for log in submitting})
    assert {job["name"] for job in jobs} <= created
    assert all(job["namespace"] == "default" and job["uid"] for job in jobs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_log_of_a_good_run_has_no_error_no_text_twice_and_no_long_line(
    stage: Stage, name: str
) -> None:
    assert stage.end_of(name) == "success"
    logs = [log for log in stage.logs_of(name) if (name, log.attempt) not in _FAIL_FIRST]
    assert any(list(log.own_lines()) for log in logs)
    for log in logs:
        bad = [each for each in log.said if each.is_bad]
        assert not bad, f"{log.name}: {bad}"
        lines = [line for line in log.own_lines() if not line.startswith("::endgroup")]
        twice = [line for line, count in Counter(lines).items() if count > 1]
        assert not twice, f"{log.name}: {twice}"
        before = itertools.takewhile(lambda line: _OWN_LOG not in line, lines)
        long = [line for line in before if len(line) >= 120]
        assert not long, f"{log.name}: {long}"


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        ("pytorch_job", 3),
        ("pytorch_roles", 4),
        ("pytorch_elastic", 3),
        ("tf_job", 4),
        ("train_job", 2),
        ("function_elastic", 3),
        ("function_mpi", 4),
        ("function_files", 2),
        ("function_roles", 2),
    ],
)
def test_all_processes_take_part_and_the_leaders_result_is_the_tasks(
    stage: Stage, name: str, processes: int
) -> None:
    assert stage.result(name)["processes"] == processes


def test_ranks_of_mpi_compute_what_the_launcher_returns(stage: Stage) -> None:
    assert stage.result("mpi_job") == pytest.approx(3.14159)


def test_ranks_of_horovod_tell_the_launcher_who_has_no_result(stage: Stage) -> None:
    assert stage.end_of("horovod_job") == "success"
    assert not stage.has_result("horovod_job")
    assert "1.5708" in stage.text_of("horovod_job")
    assert "1.5707" in stage.text_of("horovod_job")


def test_a_manifest_from_a_file_is_rendered(stage: Stage) -> None:
    assert stage.result("raw_manifest") == {"words": 3}


def test_each_mapped_job_has_its_own_result_and_the_best_is_found(stage: Stage) -> None:
    losses = [stage.result("mapped_jobs", index=index)["loss"] for index in range(3)]
    assert len(set(losses)) == 3
    assert stage.result("mapped_jobs", "best")["loss"] == min(losses)


def test_a_function_that_is_mapped_has_a_value_for_each_of_its_arguments(stage: Stage) -> None:
    found = [stage.result("function_job", index=index) for index in range(3)]
    assert [each["rate"] for each in found] == [0.001, 0.01, 0.1]
    assert {each["processes"] for each in found} == {3}
    assert stage.result("function_job", "best")["rate"] == 0.1
    assert '{"rank": 0, "step": 40' in stage.text_of("function_job")


def test_functions_and_programs_find_the_files_that_they_take_along(stage: Stage) -> None:
    assert stage.result("function_files")["slope"] == pytest.approx(3, abs=0.1)
    assert stage.result("function_files", "program")["processes"] == 2


def test_the_chief_of_tensorflow_and_rank_0_of_horovod_give_the_value(stage: Stage) -> None:
    chief = stage.result("function_roles", "with_chief")
    assert chief == {"role": "chief", "epochs": 3, "processes": 3}
    assert stage.result("function_mpi", "average") == {"mine": 0.5, "processes": 2}


def test_a_runtime_with_mpi_starts_the_ranks_of_a_function(stage: Stage) -> None:
    found = stage.result("function_roles", "train_with_mpi")
    assert found == {"rank": 0, "epochs": 3, "processes": 4}


def test_a_second_attempt_goes_on_where_the_first_has_failed(stage: Stage) -> None:
    name = "training_pipeline"
    assert stage.result(name, "report").endswith("begun at step 60")
    assert [task["try_number"] for task in stage.tasks_of(name) if task["task_id"] == "train"] == [
        2
    ]
    assert "attempt 1 breaks off at step 60" in stage.text_of(name)


def test_buttons_lead_to_the_job_and_to_its_leaders_log(stage: Stage) -> None:
    name = "training_pipeline"
    (job,) = (each["name"] for each in stage.jobs_of(name))
    links = stage.links_of(name)
    place = "https://kubernetes.example.com/default/pytorchjobs"
    assert links["Training job"] == f"{place}/{job}"
    logs = f"https://logs.example.com/default/{job}-master-0?from="
    assert links["Leader logs"].startswith(logs)
    assert "{" not in links["Leader logs"]


def test_of_all_jobs_only_the_one_that_failed_is_left_to_be_looked_at(stage: Stage) -> None:
    assert {stage.end_of(name) for name in EXAMPLES} == {"success"}
    created = re.findall(r"Created PyTorchJob default/(\S+)\.", stage.text_of("training_pipeline"))
    (failed,) = created[:-1]
    assert stage.left() == {f"{failed}{end}" for end in _LEFT}
