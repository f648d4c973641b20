"""Where the fault matrix runs: a real Airflow, and fault proxies in front of a cluster.

Both are in an event loop in a thread of their own; many rows run there at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from kftrain_local.agent.agent import state_folder
from kftrain_local.api_client import ApiClient, read_kubeconfig
from kftrain_local.faults.proxy import FaultProxy
from tests.cluster.statsd import Receiver
from tests.e2e.breakable import BreakableAirflow, TaskInstance

T = TypeVar("T")
Object = dict[str, Any]

_HERE = Path(__file__).parent
_LOOK_EVERY = 0.3
PATIENCE = 480.0
"""Nothing may fail because the machine is slow or busy."""

_SETTINGS = {
    # Nothing should wait longer than the test needs.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "45",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "3",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "DAG_PROCESSOR__PRINT_STATS_INTERVAL": "0",
    "CORE__PARALLELISM": "12",
}
_PATIENT = {
    # The speed of the machine must not matter. By default a worker that waits 5 s for an answer
    # asks again, which makes a slow API server slower; here a file may be read for 30 s.
    "WORKERS__EXECUTION_API_TIMEOUT": "60",
    "CORE__DAGBAG_IMPORT_TIMEOUT": "180",
    "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "240",
}
SQLITE = {
    "DATABASE__SQL_ALCHEMY_POOL_SIZE": "64",
    "DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "airflow_local_settings.connect_args",
}


class Stage:
    def __init__(self, folder: Path, *kubeconfigs: Path) -> None:
        """Jobs run on the first cluster, unless a row moves them to another one."""
        self.folder = folder
        self.kubeconfigs = kubeconfigs
        self.files = folder / "rows"
        self.states: dict[tuple[str, str], list[TaskInstance]] = {}
        """By DAG and run."""
        self.proxies: dict[str, FaultProxy] = {}
        self.frozen: set[int] = set()
        """Processes."""
        self.second: BreakableAirflow | None = None

    async def open(
        self, tasks: Mapping[str, Object], connections: set[str], ending: AsyncExitStack
    ) -> None:
        """`tasks` by DAG; each of the `connections` has a fault proxy of its own."""
        self.files.mkdir()
        self._ending = ending
        self.metrics = Receiver()
        ending.callback(self.metrics.close)
        state = ending.enter_context(state_folder(self.folder / "state"))
        clients = [ApiClient(read_kubeconfig(each)) for each in self.kubeconfigs]
        self.clusters = [await ending.enter_async_context(client) for client in clients]
        self.api = self.clusters[0]
        for name in sorted(connections | {"kubernetes_default"}):
            proxy = FaultProxy(self.kubeconfigs[0])
            self.proxies[name] = await ending.enter_async_context(proxy)
        self.tasks = dict(tasks)
        await self._make_namespaces()
        self.write_tasks()
        self.airflow = await self.start_airflow(state, "first")
        await self._keep(self._look())
        await until(lambda: self._all_dags(self.airflow), "Airflow knows the DAGs")

    async def start_airflow(self, state: Path, instance: str) -> BreakableAirflow:
        database, connections = self.in_environment()
        metrics = {f"METRICS__{name}": value for name, value in self.metrics.options.items()}
        metrics["METRICS__METRICS_ALLOW_LIST"] = "kftrain"
        settings = {
            **patiently({**_SETTINGS, **database, **metrics}),
            **{f"AIRFLOW_CONN_{name.upper()}": text for name, text in connections.items()},
            "AIRFLOW__KFTRAIN__INSTANCE": instance,
            "FAULTS_HOME": str(self.files),
            "FAULTS_PYTHON": sys.executable,
        }
        airflow = BreakableAirflow(state, _HERE / "dags", settings, say)
        await self._ending.enter_async_context(airflow)
        return airflow

    def in_environment(self) -> tuple[dict[str, str], dict[str, str]]:
        """Settings for the database, and connections."""
        return SQLITE, {
            name: json.dumps(connection_to(proxy.kubeconfig))
            for name, proxy in self.proxies.items()
        }

    async def start_second(self) -> None:
        """Another Airflow with the same DAGs and the same cluster, under another name."""
        state = self._ending.enter_context(state_folder(self.folder / "second"))
        self.second = second = await self.start_airflow(state, "second")
        await until(lambda: self._all_dags(second), "the second Airflow knows the DAGs")

    def write_tasks(self) -> None:
        """As they are from now on, when a worker reads them."""
        file = self.files / "tasks.json"
        file.with_suffix(".new").write_text(json.dumps(self.tasks))
        file.with_suffix(".new").replace(file)

    async def _make_namespaces(self) -> None:
        for name in {task["namespace"] for task in self.tasks.values()}:
            for cluster in self.clusters:
                await cluster.create("/api/v1/namespaces", {"metadata": {"name": name}})
        for name in self.tasks:
            (self.files / name).mkdir()

    async def _all_dags(self, airflow: BreakableAirflow) -> bool:
        errors = (await airflow.get("importErrors"))["import_errors"]
        assert not errors, errors[0]["stack_trace"]
        return bool((await airflow.get("dags?limit=1"))["total_entries"] == len(self.tasks))

    async def _look(self) -> None:
        while True:
            found: dict[tuple[str, str], list[TaskInstance]] = {}
            for each in await asyncio.to_thread(self.airflow.task_instances):
                found.setdefault((each.dag_id, each.run_id), []).append(each)
            self.states = found
            self.metrics.read()
            await asyncio.sleep(_LOOK_EVERY)

    async def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it in the background until the end; a failure is shown at the end."""
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            (error,) = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(error, asyncio.CancelledError) and error is not None:
                raise error

        self._ending.push_async_callback(end)


def patiently(settings: Mapping[str, str]) -> dict[str, str]:
    """Variables for an Airflow with these settings that does not fail because it is slow."""
    return {
        **{f"AIRFLOW__{name}": value for name, value in {**_PATIENT, **settings}.items()},
        "PYTHONPATH": os.pathsep.join([str(_HERE / "patience"), str(_HERE.parents[1])]),
    }


def connection_to(kubeconfig: Path) -> Object:
    return {"conn_type": "kubernetes", "extra": {"kube_config_path": str(kubeconfig)}}


async def until(look: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Returns what `look` returns, as soon as it is something."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:.0f} s in vain until {what}")
        await asyncio.sleep(0.1)


class Background:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_BEGAN = time.monotonic()


def say(text: str) -> None:
    """Shows progress in spite of pytest's capture: a run takes minutes."""
    if sys.__stderr__ is not None:
        sys.__stderr__.write(f"{time.monotonic() - _BEGAN:6.1f} s  {text}\n")
