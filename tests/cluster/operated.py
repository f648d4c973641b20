"""Operators on a target, without an Airflow around them.

The task instance is replaced, since Airflow has none outside of a run: it stores XComs, and each
try has a new one. Everything else is real: the operator, its trigger as Airflow stores and
recreates it, the hooks and the cluster. tests/local/test_operators.py runs them in Airflow.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from importlib import import_module
from typing import Any

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_kftrain import PyTorchJobOperator
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator
from airflow_kftrain.ownership import TaskState
from tests.cluster.jobs import shell
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest

ERRORS = exceptions()
PYTORCH = ("PyTorchJob", "kubeflow.org/v1")


class Instance:
    """Replaces Airflow's task instance of one try."""

    map_index = -1
    dag_id = "dag"
    run_id = "run"
    task_id = "train"

    def __init__(self, *, retries: int = 0, before: Instance | None = None) -> None:
        self.id = str(uuid.uuid4())
        self.try_number: int = 1 if before is None else before.try_number + 1
        self.max_tries: int = retries if before is None else before.max_tries
        self.start_date = datetime.now(timezone.utc)
        self.xcoms: dict[str, Any] = {}
        self.outlet_events = OutletEventAccessors()

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, task_ids: str, key: str, map_indexes: int) -> Any:
        assert (task_ids, map_indexes) == (self.task_id, self.map_index)
        return self.xcoms.get(key)


class Operated:
    """The tries of one task."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.connect(str(world.target.kubeconfig), monkeypatch)
        # Airflow's actions with links, and its answer about the task: that it has accepted the
        # success.
        monkeypatch.setattr(
            "airflow_kftrain.operators.showing.push_link",
            lambda instance, key, url: instance.xcom_push(key, url),
        )
        monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(_succeeded))
        monkeypatch.setattr(
            "airflow_kftrain.operators.lineage.stored_value",
            lambda instance, key: instance.xcoms.get(key),
        )
        # No worker has to exit before an event.
        monkeypatch.setattr("airflow_kftrain.triggers.training_job.link_is_stored", _stored)
        monkeypatch.setattr("airflow_kftrain.triggers.holding.LEAST", timedelta())
        monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", world.namespace)

    def connect(self, kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
        extra = {"kube_config_path": kubeconfig, "namespace": self.world.namespace}
        said = json.dumps({"conn_type": "kubernetes", "extra": extra})
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", said)

    def jobs(self) -> list[Manifest]:
        return self.world.listed(*PYTORCH)

    def job(self) -> Manifest:
        (job,) = self.jobs()
        return job

    def runs(self) -> Manifest:
        """The only job, as soon as it runs."""

        def look() -> Manifest | None:
            for job in self.jobs():
                for condition in (job.get("status") or {}).get("conditions") or []:
                    if condition["type"] == "Running" and condition["status"] == "True":
                        return job
            return None

        return eventually(look, self.jobs)

    def ended(self) -> Manifest:
        """The only job, as soon as it has ended."""

        def look() -> Manifest | None:
            job = self.job()
            conditions = (job.get("status") or {}).get("conditions") or []
            ends = {item["type"] for item in conditions if item["status"] == "True"}
            return job if ends & {"Succeeded", "Failed"} else None

        return eventually(look, self.jobs)


async def _stored(*_: object) -> bool:
    return True


def _succeeded(**asked: Any) -> dict[str, dict[str, str]]:
    return {run: dict.fromkeys(asked["task_ids"], "success") for run in asked["run_ids"]}


def operator(script: str = "true", **more: Any) -> PyTorchJobOperator:
    given: dict[str, Any] = {
        "task_id": "train",
        "image": "x",
        "command": shell(script),
        "workers": 0,
        "deferrable": False,
        **more,
    }
    return PyTorchJobOperator(**given)


def context_of(task: BaseTrainingJobOperator, instance: Instance) -> Any:
    return {"ti": instance, "task": task, "outlet_events": instance.outlet_events}


def execute(task: BaseTrainingJobOperator, instance: Instance) -> Any:
    with _as_in_a_run(task):
        value = task.execute(context_of(task, instance))
    return _finalized(task, instance, value)


def deferring(task: BaseTrainingJobOperator, instance: Instance) -> Any:
    task.deferrable = True
    with pytest.raises(ERRORS.TaskDeferred) as caught:
        execute(task, instance)
    return caught.value


def resume(
    task: BaseTrainingJobOperator, instance: Instance, method: str, arguments: dict[str, Any]
) -> Any:
    with _as_in_a_run(task):
        value = task.resume_execution(method, arguments, context_of(task, instance))
    return _finalized(task, instance, value)


def _finalized(task: BaseTrainingJobOperator, instance: Instance, value: Any) -> Any:
    """Airflow's actions in the worker after it has reported a success, accepted or not."""
    for callback in task.on_success_callback or ():
        callback(context_of(task, instance))
    return value


@contextmanager
def _as_in_a_run(task: BaseTrainingJobOperator) -> Iterator[None]:
    """Airflow warns about operators that call each other's execute."""
    token = ExecutorSafeguard.tracker.set(task)
    try:
        yield
    finally:
        ExecutorSafeguard.tracker.reset(token)


def event_of(deferred: Any) -> dict[str, Any]:
    """The event of the trigger, recreated from what Airflow stores of it."""
    path, arguments = deferred.trigger.serialize()
    module, _, name = path.rpartition(".")
    stored = json.loads(json.dumps(arguments))
    trigger = getattr(import_module(module), name)(**stored)

    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        raise AssertionError("no event")

    return dict(json.loads(json.dumps(asyncio.run(first()))))


def airflow_says(monkeypatch: pytest.MonkeyPatch, state: str | None) -> None:
    async def stands_in(*_: object) -> TaskState:
        if state is None:
            raise RuntimeError("no answer")
        return TaskState(True, state)

    monkeypatch.setattr("airflow_kftrain.airflow_compat.task_state", stands_in)
