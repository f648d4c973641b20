"""One pod: from the moment it is placed on the node until it is gone from the API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import time
from pathlib import Path

from airflow_kftrain.local.agent.addresses import Peers, scope_of
from airflow_kftrain.local.agent.container import Container
from airflow_kftrain.local.agent.environment import CannotStart, Sources
from airflow_kftrain.local.agent.machine import Machine
from airflow_kftrain.local.agent.remote_shell import DOOR, folder_of
from airflow_kftrain.local.agent.status import (
    ContainerStatus,
    Verdict,
    build_status,
)
from airflow_kftrain.local.agent.unsupported import unsupported
from airflow_kftrain.local.agent.volumes import make_volumes
from airflow_kftrain.local.api_client import ApiFailure, Object, core
from airflow_kftrain.local.times import now_text, time_of

log = logging.getLogger(__name__)

ANNOTATION = "kftrain.local/cluster-env"
"""Variables that were rewritten, as a real cluster would have them: {container: {name: value}}."""
_OPERATORS_INIT = ("init-pytorch", "kubectl-delivery")
"""Init containers by which operators wait for names to resolve, which they never do here."""
_DELETED = Verdict()
_DEADLINE = Verdict(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)
_NODE_ENDS = Verdict("Terminated", "The agent of this node has ended")
_LAST_GRACE = 10.0
"""At most so many seconds remain to a pod when the agent ends."""
_RETRY = 0.5


class Pod:
    """Made with a task that is the whole life of the pod; cancelled, it ends everything at once."""

    def __init__(self, machine: Machine, found: Object) -> None:
        metadata = found["metadata"]
        self.machine = machine
        self.object = found
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.folder = folder_of(machine.pods, self.namespace, self.name, self.uid)
        # Short: what programs make in it are sockets, too, whose paths have 107 bytes at most.
        self.scratch = machine.scratch / self.uid[:8]
        self.scope = scope_of(found)
        self.peers = Peers(found, lambda host, port: machine.ports.port(self.scope, host, port))
        self.volumes: dict[str, Path] = {}
        self.containers = [Container(self, status) for status in _statuses(found)]
        self._path = core(self.namespace, "pods", self.name)
        self._started = (found.get("status") or {}).get("startTime") or now_text()
        self.cluster_env: dict[str, dict[str, str]] = {}
        self.changed = asyncio.Event()
        self._verdict: Verdict | None = None
        self._grace = float(found["spec"].get("terminationGracePeriodSeconds", 30))
        self._ended_before = (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        self._over = False
        # True: it is to be removed from the API. False: it stays there.
        self._leaving: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._work = asyncio.create_task(self._run_containers())
        self.task = machine.spawn(self._live())

    def tell(self, kind: str, reason: str, message: str) -> None:
        self.machine.tell(self.object, kind, reason, message)

    # ----- what others tell it

    def update(self, found: Object) -> None:
        self._know(found)
        metadata = found["metadata"]
        if metadata.get("deletionTimestamp"):
            self._leave(_DELETED, metadata.get("deletionGracePeriodSeconds") or 0, remove=True)

    def _know(self, found: Object) -> None:
        """The newest: the watch and the answers to calls overtake each other."""
        if _version(found) >= _version(self.object):
            self.object = found

    def end_with_node(self) -> None:
        grace = min(self._grace, _LAST_GRACE)
        self._leave(_NODE_ENDS, grace, remove=False)

    def _leave(self, verdict: Verdict, grace: float, remove: bool) -> None:
        if not self._leaving.done():
            self._leaving.set_result(remove)
            self._end(verdict, grace)
        if grace < self._grace:  # whoever asks again may be less patient
            self._grace = grace
            asyncio.get_running_loop().call_later(grace, self._kill)

    def _end(self, verdict: Verdict, grace: float) -> None:
        """Whoever comes first says how; what has ended before has ended well."""
        if self._verdict is None and not self._work.done():
            self._verdict, self._grace = verdict, grace
            self._work.cancel()
            if verdict.reason:
                self.tell("Warning", verdict.reason, verdict.message)

    def _kill(self) -> None:
        for container in self.containers:
            container.kill()

    # ----- its life

    async def _live(self) -> None:
        reporting = asyncio.create_task(self._report())
        try:
            if not self._ended_before:
                self._set_deadline()
                await self._see_to_end()
                self._over = True
                self.changed.set()
                await reporting
            if await self._leaving:
                await self._finalise()
        finally:
            # Whole, although the API server tells meanwhile that the pod is gone.
            await asyncio.shield(self.machine.spawn(self._clean_up(reporting)))

    async def _clean_up(self, reporting: asyncio.Task[None]) -> None:
        self._work.cancel()
        reporting.cancel()
        await asyncio.wait([self._work, reporting])
        await self._end_containers(0)
        for folder in (self.folder, self.scratch):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _set_deadline(self) -> None:
        seconds = self.object["spec"].get("activeDeadlineSeconds")
        if seconds is not None:
            left = time_of(self._started).timestamp() + seconds - time.time()
            asyncio.get_running_loop().call_later(left, self._end, _DEADLINE, self._grace)

    async def _see_to_end(self) -> None:
        await asyncio.wait([self._work])
        if self._work.cancelled():
            await self._end_containers(self._grace)
        elif fault := self._work.exception():
            # The author has to see an end, and the pod has to be removable.
            log.error("pod %s: a fault of the agent", self._path, exc_info=fault)
            await self._end_containers(0)
            self._verdict = Verdict("AgentFault", f"The agent failed: {fault!r}"[:500])
        # What no process needs any more, secrets among it; the logs stay.
        with contextlib.suppress(OSError):
            (self.folder / DOOR).write_text("")
        for folder in (self.folder / "volumes", self.scratch):
            shutil.rmtree(folder, ignore_errors=True)

    async def _end_containers(self, grace: float) -> None:
        await asyncio.gather(*(container.end(grace) for container in self.containers))

    async def _run_containers(self) -> None:
        """Volumes, init containers in order, then the others; returns when all have ended."""
        if self._ended_before:
            return
        self.machine.tell_of_images(self.object)
        for field, text in unsupported(self.object).items():
            self.tell("Warning", "NotSupported", f"{field}: {text}")
        self.changed.set()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._make_volumes()
        sidecars, mains = list[asyncio.Task[None]](), list[asyncio.Task[None]]()
        try:
            for container in self.containers:
                if container.status.sidecar:
                    sidecars.append(asyncio.create_task(container.run()))
                elif not container.status.init:
                    mains.append(asyncio.create_task(container.run()))
                else:
                    await container.run()
                    if container.status.exit_code != 0:
                        break  # no other starts, and the sidecars before it end
            await asyncio.gather(*mains)
        finally:
            if tasks := sidecars + mains:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        for container in self.containers:
            await container.end(self._grace)

    async def _make_volumes(self) -> None:
        told = ""
        while True:
            try:
                sources = Sources(self.machine.api, self.namespace)
                self.volumes = await make_volumes(self.object, self.folder / "volumes", sources)
                return
            except (CannotStart, OSError) as error:
                if told != str(error):
                    told = str(error)
                    self.tell("Warning", "FailedMount", f"MountVolume.SetUp failed: {told}")
            await asyncio.sleep(self.machine.settings.shortest_backoff / 5)

    # ----- what it tells the API

    async def _report(self) -> None:
        """Every change; until the end is told, or the API server has no such pod."""
        told: Object = {}
        told_env: dict[str, dict[str, str]] = {}
        while True:
            await self.changed.wait()
            self.changed.clear()
            if told_env != self.cluster_env:
                told_env = dict(self.cluster_env)
                with contextlib.suppress(ApiFailure):
                    annotations = {ANNOTATION: json.dumps(told_env, sort_keys=True)}
                    await self._patch(self._path, {"annotations": annotations})
            while (status := self._status()) != told:
                try:
                    # A list is replaced whole: the version guards what others wrote meanwhile.
                    known = {"resourceVersion": self.object["metadata"]["resourceVersion"]}
                    await self._patch(f"{self._path}/status", known, status=status)
                    told = status
                except ApiFailure as error:
                    if error.code == 404:
                        return
                    log.debug("status of %s has to wait: %s", self._path, error)
                    await asyncio.sleep(_RETRY)
            if self._over:
                return

    def _status(self) -> Object:
        statuses = [container.status for container in self.containers]
        return build_status(self.object, statuses, self._started, self._verdict)

    async def _patch(self, path: str, metadata: Object, **fields: Object) -> None:
        body = {"metadata": {"uid": self.uid, **metadata}, **fields}
        self._know(await self.machine.api.merge_patch(path, body))

    async def _finalise(self) -> None:
        """Nothing of the pod runs any more: let it go from the API."""
        while True:
            try:
                await self.machine.api.delete(self._path, uid=self.uid, grace=0)
                return
            except ApiFailure as error:
                # Gone, or another pod of that name.
                if error.code in (404, 409):
                    return
                log.debug("pod %s cannot be removed yet: %s", self._path, error)
            await asyncio.sleep(_RETRY)


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _statuses(pod: Object) -> list[ContainerStatus]:
    spec, status = pod["spec"], pod.get("status") or {}
    before = {
        entry["name"]: entry
        for group in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(group) or []
    }
    inits, statuses = spec.get("initContainers") or [], []
    for container in [*inits, *spec["containers"]]:
        made = ContainerStatus(container, init=container in inits)
        made.wait("PodInitializing" if inits else "ContainerCreating")
        if made.init and container["name"] in _OPERATORS_INIT:
            made.terminate(0, "Completed")
        elif container["name"] in before:
            made.take_over(before[container["name"]])
        statuses.append(made)
    return statuses
