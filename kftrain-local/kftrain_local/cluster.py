"""The embedded cluster: API server, scheduler, controllers and one node, in one process."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import yaml

from kftrain_local.agent.agent import Agent
from kftrain_local.agent.machine import Settings
from kftrain_local.api_client import ApiClient, Cluster
from kftrain_local.controllers.batch_jobs import BatchJobController
from kftrain_local.controllers.controller import Controller, Controllers
from kftrain_local.controllers.job_sets import JobSetController
from kftrain_local.controllers.mpi_jobs import MpiController
from kftrain_local.controllers.scheduler import Scheduler
from kftrain_local.controllers.train_jobs import TrainJobController
from kftrain_local.controllers.v1_jobs import V1Controller
from kftrain_local.kinds import MPI_JOB_V2, PYTORCH_JOB, TF_JOB, JobKind
from kftrain_local.server.admission import admit
from kftrain_local.server.api_server import ApiServer
from kftrain_local.server.page import LINKS
from kftrain_local.server.resources import (
    CLUSTER_RUNTIMES,
    JOBS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    Resource,
)
from kftrain_local.server.store import HISTORY, Store
from kftrain_local.server.train_runtimes import preinstalled

Object = dict[str, Any]

_NAMESPACES = ("default", "kube-system")


class LocalCluster:
    """`async with LocalCluster(folder) as cluster: cluster.kubeconfig`

    `folder` belongs to the cluster and is private to its user. Its content is removed at the end.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings | None = None,
        port: int = 0,
        history: int = HISTORY,
    ) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._folder = folder
        self._settings = settings or Settings()
        store = Store(history)
        for name in _NAMESPACES:
            _add(store, NAMESPACES, "", name, status={"phase": "Active"})
            _add(store, SERVICE_ACCOUNTS, name, "default")
        for runtime in preinstalled():
            _add(store, CLUSTER_RUNTIMES, "", runtime["metadata"]["name"], **runtime)
        secret, page_secret = secrets.token_hex(16), secrets.token_hex(16)
        self._server = ApiServer(store, secret, page_secret, admit(store), port)
        self._ending = AsyncExitStack()

    async def __aenter__(self) -> LocalCluster:
        """Raises LocalError or OSError, with nothing left behind."""
        async with AsyncExitStack() as ending:
            await ending.enter_async_context(self._server)
            ending.callback(self.kubeconfig.unlink, missing_ok=True)
            self.kubeconfig.touch(0o600)
            self.kubeconfig.write_text(_kubeconfig(self._server.url, self._server.page_url))
            api = await ending.enter_async_context(ApiClient(Cluster(self._server.url)))
            self._agent = Agent(api, self._settings, self._folder, serves_logs=False)
            self._server.reader.find_log = self._agent.find_log
            await ending.enter_async_context(self._agent)
            self._workers = [
                asyncio.create_task(work)
                for work in (Scheduler(api).run(), Controllers(api, _controllers(api)).run())
            ]
            ending.push_async_callback(self._end_workers)
            self._ending = ending.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.aclose()

    async def run_until(self, stop: asyncio.Event) -> None:
        """Raises if a part of the cluster fails, which is a bug."""
        running = asyncio.create_task(self._agent.run_until(stop))
        done, _ = await asyncio.wait([running, *self._workers], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _end_workers(self) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.wait(self._workers)


def _controllers(api: ApiClient) -> Iterator[Controller]:
    yield BatchJobController(api)
    for job in (PYTORCH_JOB, TF_JOB):
        yield V1Controller(api, _resource(job))
    yield MpiController(api, _resource(MPI_JOB_V2))
    yield JobSetController(api)
    yield TrainJobController(api)


def _resource(job: JobKind) -> Resource:
    return next(resource for resource in JOBS if resource.job is job)


def _add(store: Store, resource: Resource, namespace: str, name: str, **fields: Any) -> None:
    given = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        **fields,
    }
    store.add(resource, store.create(resource, namespace, given))


def page_of(kubeconfig: Path) -> str:
    """The URL of the web page of the cluster that wrote this kubeconfig."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    return str(cluster["extensions"][0]["extension"]["page"])


def airflow_variables(kubeconfig: Path) -> dict[str, str]:
    """What connects Airflow to the cluster that wrote this: its connection, then its links."""
    extra = {"kube_config_path": str(kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    page = page_of(kubeconfig)
    links = {f"AIRFLOW__KFTRAIN__{field.upper()}_URL": page + path for field, path in LINKS.items()}
    return {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection, **links}


def _kubeconfig(server: str, page: str) -> str:
    """The URL of the page is stored in the extensions of the kubeconfig, which clients ignore."""
    context = {"cluster": "local", "user": "local", "namespace": "default"}
    extension = {"name": "airflow-kftrain", "extension": {"page": page}}
    cluster = {"server": server, "extensions": [extension]}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "clusters": [{"name": "local", "cluster": cluster}],
        "contexts": [{"name": "local", "context": context}],
        "users": [{"name": "local", "user": {}}],
    }
    return yaml.safe_dump(config, sort_keys=False)
