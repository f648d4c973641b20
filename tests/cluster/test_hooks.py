"""Hooks"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.kinds import PYTORCH_JOB
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.world import World
from tests.control_plane.api import Manifest

T = TypeVar("T")


@pytest.fixture(autouse=True)
def connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"kube_config_path": str(world.target.kubeconfig), "namespace": world.namespace}
    said = {"conn_type": "kubernetes", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(said))


def in_a_loop(work: Callable[[AsyncTrainingJobHook], Awaitable[T]]) -> T:
    async def run() -> T:
        return await work(AsyncTrainingJobHook("cluster"))

    return asyncio.run(run())


def job_of(world: World, script: str = "true", **metadata: Any) -> Manifest:
    job = pytorch_job({"Master": replica("pytorch", script)})
    job["metadata"] |= {"namespace": world.namespace, "labels": {"for": "test"}, **metadata}
    return job


def test_a_worker_creates_reads_changes_and_deletes_a_job(world: World) -> None:
    hook = TrainingJobHook("cluster")
    created = hook.submit(PYTORCH_JOB, job_of(world, "echo hello; sleep 60"))
    world_of = (PYTORCH_JOB, world.namespace, "job")
    assert hook.namespace() == world.namespace
    found = hook.get(*world_of)
    assert found is not None
    assert found["metadata"]["uid"] == created["metadata"]["uid"]
    assert [each["metadata"]["name"] for each in hook.list(*world_of[:2], "for=test")] == ["job"]
    patched = hook.patch(*world_of, {"metadata": {"annotations": {"a": "b"}}})
    assert patched["metadata"]["annotations"]["a"] == "b"
    assert hook.delete(*world_of, uid=created["metadata"]["uid"])
    assert hook.get(*world_of) is None
    assert not hook.delete(*world_of, uid=created["metadata"]["uid"])


def test_a_loop_sees_what_happens_after_a_snapshot(world: World) -> None:
    async def work(hook: AsyncTrainingJobHook) -> list[str]:
        version, items = await hook.snapshot(PYTORCH_JOB, world.namespace, "for=test")
        assert [item async for item in items] == []
        await hook.submit(PYTORCH_JOB, job_of(world))
        seen = []
        events = hook.watch(PYTORCH_JOB, world.namespace, "for=test", version, 30)
        async with contextlib.aclosing(events):
            async for kind, _ in events:
                seen.append(kind)
                if len(seen) == 2:
                    break
        return seen

    assert in_a_loop(work) == ["ADDED", "MODIFIED"]
