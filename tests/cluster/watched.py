"""Jobs that are watched, and what their watches log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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


def start(world: World, manifest: Manifest, labels: Mapping[str, str] | None = None) -> Job:
    """A job of this Airflow."""
    return world.start(ours(manifest, labels))


def ours(manifest: Manifest, labels: Mapping[str, str] | None = None) -> Manifest:
    """With the label of this Airflow, also on the pods; `labels` are further ones of the job."""
    label = {INSTANCE_LABEL: INSTANCE}
    manifest["metadata"]["labels"] = {**(labels or {}), **label}
    kind = find_kind(manifest["apiVersion"], manifest["kind"])
    for template in pod_templates(kind, manifest):
        template.setdefault("metadata", {})["labels"] = label
    return manifest


def order_for(world: World, job: Job, **fields: Any) -> WatchOrder:
    created = job.created
    uid = created["metadata"]["uid"]
    reference = JobReference(created["kind"], world.namespace, job.name, uid)
    given = {"connection": "cluster", "instance": INSTANCE, "owner": OWNER, **fields}
    return WatchOrder(reference, created["apiVersion"], **given)


class Told:
    """What a watch has logged. Lines that were wrapped are one line again."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pods: list[tuple[ReplicaPod, ...]] = []

    async def pods_known(self, pods: Sequence[ReplicaPod]) -> None:
        self.pods.append(tuple(pods))

    async def watch(self, order: WatchOrder, **more: Any) -> Outcome:
        return await watch_job(order, tell=self._tell, pods_known=self.pods_known, **more)

    def _tell(self, line: str) -> None:
        self.lines.append(line.replace("\n  ", " "))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def whole_lines(self) -> list[str]:
        """As they were before they were wrapped."""
        return [" ".join(line.split()) for line in self.lines]

    def about(self, words: str) -> list[str]:
        """The lines with these words."""
        return [line for line in self.whole_lines if words in line]


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
