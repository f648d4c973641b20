"""Every example DAG succeeds, deferred, on a real Airflow and the embedded cluster."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from airflow_kftrain.local.agent.agent import state_folder
from airflow_kftrain.local.agent.machine import Settings
from airflow_kftrain.local.cluster import LocalCluster
from tests.e2e.breakable import BreakableAirflow
from tests.e2e.stage import Background, say, until

_FOLDER = Path(__file__).parents[2] / "example_dags"
EXAMPLES = sorted(file.stem for file in _FOLDER.glob("*.py"))
_ENDS = ("success", "failed")

pytestmark = pytest.mark.timeout(600)


class Stage:
    """A cluster and an Airflow, in an event loop of their own."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._ending = AsyncExitStack()

    async def open(self, folder: Path) -> None:
        state = self._ending.enter_context(state_folder(folder))
        cluster = await self._ending.enter_async_context(LocalCluster(state, Settings(cpu="64")))
        # Its failure shows itself by what fails for want of it.
        running = asyncio.create_task(cluster.run_until(asyncio.Event()))
        self._ending.callback(running.cancel)
        extra = {"kube_config_path": str(cluster.kubeconfig), "namespace": "default"}
        settings = {
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(
                {"conn_type": "kubernetes", "extra": extra}
            ),
            "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "5",
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
        """The state of its run, when that is over."""

        async def state() -> str:
            path = f"dags/{name}/dagRuns/run"

            async def ended() -> str:
                found = str((await self.airflow.get(path))["state"])
                return found if found in _ENDS else ""

            return str(await until(ended, f"the run of {name} is over", 400))

        return self._background.start(state()).result()

    async def close(self) -> None:
        await self._ending.aclose()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    # Not one of pytest's own, which other runs of pytest remove.
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
def test_an_example_succeeds(stage: Stage, name: str) -> None:
    assert stage.end_of(name) == "success"
