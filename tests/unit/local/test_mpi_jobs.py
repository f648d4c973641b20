"""MPIJobs of mpi-operator in cases without a scenario: a controller with an API server, and no
node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kftrain_local.api_client import ApiClient, Cluster, core
from kftrain_local.controllers.mpi_jobs import MpiController
from kftrain_local.kinds import MPI_JOB_V2
from kftrain_local.server.admission import admit
from kftrain_local.server.api_server import ApiServer
from kftrain_local.server.resources import JOBS, NAMESPACES
from kftrain_local.server.store import Store

Object = dict[str, Any]

_JOBS = "/apis/kubeflow.org/v2beta1/namespaces/ml/mpijobs"


class Bench:
    def __init__(self, api: ApiClient) -> None:
        self.api = api
        resource = next(each for each in JOBS if each.job is MPI_JOB_V2)
        self._controller = MpiController(api, resource)

    async def create(self, name: str = "job", **spec: Any) -> None:
        role = {"template": {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}}
        roles = {"Launcher": role, "Worker": {**role, "replicas": 1}}
        head = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name}}
        await self.api.create(_JOBS, {**head, "spec": {"mpiReplicaSpecs": roles, **spec}})

    async def look(self, name: str = "job") -> float | None:
        return await self._controller.reconcile(await self.api.get(f"{_JOBS}/{name}"))

    async def events(self, reason: str) -> list[Object]:
        listed, _ = await self.api.list(core("ml", "events"))
        return [event for event in listed if event["reason"] == reason]


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    store = Store()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    store.add(NAMESPACES, store.create(NAMESPACES, "", namespace))
    server = ApiServer(store, "secret", "page", admit(store))
    async with server, ApiClient(Cluster(server.url)) as api:
        yield Bench(api)


def test_all_faults_are_told_at_once_and_counted() -> None:
    async def work() -> None:
        async with bench() as at:
            policy = {"cleanPodPolicy": "Never", "backoffLimit": -1}
            await at.create("1-job", runPolicy=policy, slotsPerWorker=-1)
            assert [await at.look("1-job"), await at.look("1-job")] == [None, None]
            (event,) = await at.events("ValidationError")
            assert event["count"] == 2
            assert event["message"].startswith("Found validation errors: [metadata.name: Invalid")
            assert event["message"].endswith(
                ", spec.slotsPerWorker: Invalid value: -1: must be greater than or equal to 0,"
                ' spec.runPolicy.cleanPodPolicy: Unsupported value: "Never": supported values:'
                ' "All", "None", "Running",'
                " spec.runPolicy.backoffLimit: Invalid value: -1: must be greater than or equal"
                " to 0]"
            )

    asyncio.run(work())


def test_a_job_starts_when_the_foreign_object_is_gone() -> None:
    async def work() -> None:
        async with bench() as at:
            await at.create()
            pods = core("ml", "pods")
            main = {"name": "mpi", "image": "x"}
            head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job-worker-0"}}
            await at.api.create(pods, {**head, "spec": {"containers": [main]}})
            assert await at.look()
            assert [event["count"] for event in await at.events("ErrResourceExists")] == [1]
            await at.api.delete(f"{pods}/job-worker-0")
            assert await at.look() is None
            job = await at.api.get(f"{_JOBS}/job")
            assert job["status"]["replicaStatuses"] == {"Launcher": {}, "Worker": {}}

    asyncio.run(work())


def test_what_somebody_changed_is_mended() -> None:
    async def work() -> None:
        async with bench() as at:
            await at.create()
            await at.look()
            config = core("ml", "configmaps", "job-config")
            made = await at.api.get(config)
            await at.api.merge_patch(config, {"data": {"hostfile": "elsewhere slots=9"}})
            await at.look()
            assert (await at.api.get(config))["data"] == made["data"]

    asyncio.run(work())
