"""What the browser looks at: examples that a real Airflow has run on an embedded cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from demo.airflow import Airflow
from kftrain_local.agent.agent import state_folder
from kftrain_local.agent.machine import Settings
from kftrain_local.cluster import LocalCluster, airflow_variables
from tests.e2e.stage import say, until

_DAGS = Path(__file__).parent / "examples"
_RUNS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("pytorch_job", "good", {}, "success"),
    ("pytorch_job", "bad", {"rate": "fast"}, "failed"),
    ("mapped_jobs", "good", {}, "success"),
)
"""The DAG, the run, its parameters, and how it must end."""


async def open_trained(folder: Path, ending: AsyncExitStack) -> Airflow:
    """An Airflow whose runs have ended; it and its cluster stay until `ending`."""
    state = ending.enter_context(state_folder(folder))
    cluster = await ending.enter_async_context(LocalCluster(state, Settings(cpu="64")))
    # A failure there shows itself by what is missing later.
    ending.callback(asyncio.create_task(cluster.run_until(asyncio.Event())).cancel)
    airflow = Airflow(state, _DAGS, airflow_variables(cluster.kubeconfig), say)
    await ending.enter_async_context(airflow)

    async def knows_all() -> bool:
        errors = (await airflow.get("importErrors"))["import_errors"]
        assert not errors, errors[0]["stack_trace"]
        return bool((await airflow.get("dags?limit=1"))["total_entries"] == 2)

    await until(knows_all, "Airflow knows the DAGs")
    for dag, run, conf, _ in _RUNS:
        body = {"dag_run_id": run, "logical_date": None, "conf": conf}
        await airflow.post(f"dags/{dag}/dagRuns", body)
    for dag, run, _, wanted in _RUNS:
        await _ends(airflow, f"dags/{dag}/dagRuns/{run}", wanted)
    return airflow


async def _ends(airflow: Airflow, path: str, wanted: str) -> None:
    async def state() -> str:
        found = str((await airflow.get(path))["state"])
        return found if found in ("success", "failed") else ""

    found = await until(state, f"{path} is over", 400)
    assert found == wanted, f"{path}: {found}, not {wanted}"
