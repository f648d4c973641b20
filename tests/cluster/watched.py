"""Jobs that are watched, and what those who watch them are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from airflow_kftrain.kinds import JobReference, find_kind
from airflow_kftrain.manifests.identity import INSTANCE_LABEL
from airflow_kftrain.manifests.places import pod_templates
from airflow_kftrain.messages import Outcome, ReplicaPod, WatchOrder
from airflow_kftrain.watching.watcher import watch_job
from tests.cluster.world import Job, World
from tests.control_plane.api import Manifest

INSTANCE = "airflow-under-test"
OWNER = "0199a0b2-0000-7000-8000-000000000001"


def start(world: World, manifest: Manifest) -> Job:
    """A job of this Airflow, with its label on the pods, too."""
    label = {INSTANCE_LABEL: INSTANCE}
    manifest["metadata"]["labels"] = label
    kind = find_kind(manifest["apiVersion"], manifest["kind"])
    for template in pod_templates(kind, manifest):
        template.setdefault("metadata", {})["labels"] = label
    return world.start(manifest)


def order_for(world: World, job: Job, **fields: Any) -> WatchOrder:
    created = job.created
    uid = created["metadata"]["uid"]
    reference = JobReference(created["kind"], world.namespace, job.name, uid)
    given = {"connection": "cluster", "instance": INSTANCE, "owner": OWNER, **fields}
    return WatchOrder(reference, created["apiVersion"], **given)


class Told:
    """What one who watches was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pods: list[tuple[ReplicaPod, ...]] = []

    async def pods_known(self, pods: Sequence[ReplicaPod]) -> None:
        self.pods.append(tuple(pods))

    async def watch(self, order: WatchOrder, **more: Any) -> Outcome:
        return await watch_job(order, tell=self.lines.append, pods_known=self.pods_known, **more)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@asynccontextmanager
async def watched(
    told: Told, order: WatchOrder, **more: Any
) -> AsyncIterator[asyncio.Task[Outcome]]:
    task = asyncio.create_task(told.watch(order, **more))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(seen: Callable[[], object], seconds: float = 60) -> None:
    async def look() -> None:
        while not seen():  # noqa: ASYNC110  # it is others who change it
            await asyncio.sleep(0.05)

    await asyncio.wait_for(look(), seconds)
