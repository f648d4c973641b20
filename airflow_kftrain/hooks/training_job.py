"""The hook for code that blocks, such as operators: AsyncTrainingJobHook, call by call."""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from airflow_kftrain.hooks.api_calls import Call
from airflow_kftrain.hooks.credentials import leads_elsewhere
from airflow_kftrain.hooks.operations import Objects
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.loops import Interruptible, LoopThread

T = TypeVar("T")


class TrainingJobHook:
    """The jobs of one cluster. All methods raise ClusterError. The hook has its own client: it
    reads the connection once, with the first call."""

    def __init__(self, connection: str | None, interruptible: Interruptible | None = None) -> None:
        """A `connection` of None means the default kubeconfig, or the pod's own ServiceAccount.
        With `interruptible`, SIGTERM can end a call."""
        self.connection = connection
        self._hook = AsyncTrainingJobHook(connection)
        self._interruptible = interruptible or Interruptible()
        self._thread = LoopThread("kftrain-hook")
        weakref.finalize(self, self._thread.stop).atexit = False  # LoopThread does that

    def namespace(self) -> str:
        """The namespace of jobs whose author sets none."""
        return self._result(self._hook.namespace())

    def source(self) -> str:
        """Says where the credentials come from."""
        return self._result(self._hook.source())

    def server(self) -> str:
        """The address that the credentials lead to. Sends nothing."""
        return self._result(self._hook.server())

    def cluster(self) -> str:
        """The fingerprint of the cluster that the credentials lead to. Sends nothing."""
        return self._result(self._hook.fingerprint())

    def leads_elsewhere(self, cluster: str) -> str:
        """A sentence if the connection leads to another cluster than the one with this fingerprint,
        else ""."""
        found = self.cluster()
        return "" if found == cluster else leads_elsewhere(self.connection, cluster, found)

    def mpi_version(self) -> str:
        """Which version of MPIJob the cluster serves: "v2beta1" or "v1". Raises NotServed."""
        return self._result(self._hook.mpi_version())

    def submit(self, kind: JobKind, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The job that this call has created, or an earlier call for the same owner."""
        return self._result(self._hook.submit(kind, manifest))

    def get(self, kind: JobKind, namespace: str, name: str) -> dict[str, Any] | None:
        return self._result(self._hook.get(kind, namespace, name))

    def list(
        self, kind: JobKind, namespace: str, selector: str = ""
    ) -> builtins.list[dict[str, Any]]:
        async def all_of_them() -> builtins.list[dict[str, Any]]:
            return [item async for item in self._hook.list(kind, namespace, selector)]

        return self._result(all_of_them())

    def patch(
        self, kind: JobKind, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Sends a merge patch. If it contains `metadata.resourceVersion`, a job that has changed
        raises Conflict."""
        return self._result(self._hook.patch(kind, namespace, name, patch))

    def delete(
        self,
        kind: JobKind,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        foreground: bool = False,
    ) -> bool:
        """Returns False if that job is gone already. Raises Conflict if it has another version by
        now."""
        return self._result(
            self._hook.delete(
                kind,
                namespace,
                name,
                uid=uid,
                resource_version=resource_version,
                foreground=foreground,
            )
        )

    def pods(self, kind: JobKind, namespace: str, name: str) -> Objects:
        """The pods of a job, at most a thousand."""
        return self._result(self._hook.pods(kind, namespace, name))

    def ask(self, call: Call) -> dict[str, Any]:
        """The answer to one call of api_calls."""
        return self._result(self._hook.ask(call))

    def _result(self, work: Coroutine[Any, Any, T]) -> T:
        return self._interruptible.result(self._thread, work)
