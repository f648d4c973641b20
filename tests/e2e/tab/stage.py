"""An Airflow under a path, whose tasks tell of training jobs in all states, or have some on an
embedded cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from demo.airflow import Airflow
from kftrain_local.agent.agent import state_folder
from kftrain_local.agent.machine import Settings
from kftrain_local.cluster import LocalCluster, airflow_variables
from tests.e2e.stage import patiently, say, until

_DAGS = Path(__file__).parent / "dags"
_SETTINGS = patiently(
    {
        "KFTRAIN__TASK_TAB": "True",  # Airflow 3.3 has no tab otherwise
        "CORE__AUTH_MANAGER": "tests.e2e.tab.guard.Guard",
    }
)
_RUNS = {
    ("churn", "running"): "deferred",
    ("churn", "queued"): "deferred",
    ("churn", "failed"): "failed",
    ("churn", "succeeded"): "success",
    ("churn", "stale"): "deferred",
    ("churn", "hostile"): "deferred",
    ("churn", "little"): "success",
    ("churn", "nothing"): "deferred",
    ("churn", "nothing-at-the-end"): "success",
    ("churn", "another-try"): "deferred",
    ("secret", "running"): "deferred",
    ("regions", "mapped"): "deferred",
}
"""The state in which the task `train` of each run stays. What it tells is the name of the run."""


def place(dag: str, run: str) -> str:
    return f"dags/{dag}/dagRuns/{run}/taskInstances/train"


async def open_told(folder: Path, ending: AsyncExitStack) -> Airflow:
    """Airflow, when all tasks have told, and the one that hangs has begun; it and its cluster stay
    until `ending`."""
    state = ending.enter_context(state_folder(folder))
    cluster = await ending.enter_async_context(LocalCluster(state, Settings(cpu="64")))
    # A failure there shows itself by what is missing later.
    ending.callback(asyncio.create_task(cluster.run_until(asyncio.Event())).cancel)
    settings = {**_SETTINGS, **airflow_variables(cluster.kubeconfig)}
    airflow = Airflow(state, _DAGS, settings, say, path="/team")
    await ending.enter_async_context(airflow)

    async def knows_all() -> bool:
        errors = (await airflow.get("importErrors"))["import_errors"]
        assert not errors, errors[0]["stack_trace"]
        wanted = len({dag for dag, _ in _RUNS} | {"pi", "hangs"})
        return bool((await airflow.get("dags?limit=1"))["total_entries"] == wanted)

    await until(knows_all, "Airflow knows the DAGs")
    await airflow.post("dags/hangs/dagRuns", {"dag_run_id": "silent", "logical_date": None})
    for dag, run in _RUNS:
        conf = {"tells": run} if dag == "churn" else {}
        body = {"dag_run_id": run, "logical_date": None, "conf": conf}
        await airflow.post(f"dags/{dag}/dagRuns", body)
    for (dag, run), wanted in _RUNS.items():
        path = place(dag, run) + ("/1" if run == "mapped" else "")
        least = 2 if run == "another-try" else 1

        async def is_there(path: str = path, wanted: str = wanted, least: int = least) -> bool:
            found = await airflow.find(path)
            return bool(found and found["state"] == wanted and found["try_number"] >= least)

        await until(is_there, f"{path} is {wanted}")
    return airflow
