"""One pod: from the moment when it is placed on the node until it is gone from the API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import time

from kftrain_local.agent.container import Container
from kftrain_local.agent.environment import CannotStart, Sources
from kftrain_local.agent.machine import Machine
from kftrain_local.agent.remote_shell import ENTRY
from kftrain_local.agent.sandbox import Sandbox
from kftrain_local.agent.status import (
    ContainerStatus,
    Verdict,
    build_status,
)
from kftrain_local.agent.unsupported import unsupported
from kftrain_local.agent.volumes import make_volumes
from kftrain_local.api_client import ApiFailure, Object, core
from kftrain_local.times import now_text, time_of

log = logging.getLogger(__name__)

ANNOTATION = "kftrain.local/cluster-env"
"""The rewritten variables with the values of a real cluster: {container: {name: value}}."""
_OPERATORS_INIT = ("init-pytorch", "kubectl-delivery")
"""Init containers with which operators wait until names resolve, which never happens here."""
_DELETED = Verdict()
_DEADLINE = Verdict(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)
_NODE_ENDS = Verdict("Terminated", "The agent of this node has stopped")
_LAST_GRACE = 10.0
"""How many seconds a pod has at most when the agent ends."""
_RETRY = 0.5


class Pod(Sandbox):
    """Created together with a task that lasts for the whole life of the pod. Cancelling the task
    ends everything at once."""

    def __init__(self, machine: Machine, found: Object) -> None:
        super().__init__(machine, found)
        self.containers = [Container(self, status) for status in _statuses(found)]
        self._path = core(self.namespace, "pods", self.name)
        self._started = (found.get("status") or {}).get("startTime") or now_text()
        self._verdict: Verdict | None = None
        self._grace = float(found["spec"].get("terminationGracePeriodSeconds", 30))
        self._ended_before = (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        self._over = False
        # True: remove it from the API. False: leave it there.
        self._leaving: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._work = asyncio.create_task(self._run_containers())
        self.task = machine.spawn(self._live())

    # ----- called by others

    def update(self, found: Object) -> None:
        self._know(found)
        metadata, status = found["metadata"], found.get("status") or {}
        if status.get("phase") == "Failed":  # and stays so, for the reason of who has ended it
            self._end(Verdict(status.get("reason") or "", status.get("message") or ""), 0)
        if metadata.get("deletionTimestamp"):
            self._leave(_DELETED, metadata.get("deletionGracePeriodSeconds") or 0, remove=True)

    def _know(self, found: Object) -> None:
        """Keeps the newest version: events of the watch and answers to calls may overtake each
        other."""
        if _version(found) >= _version(self.object):
            self.object = found

    def end_with_node(self) -> None:
        grace = min(self._grace, _LAST_GRACE)
        self._leave(_NODE_ENDS, grace, remove=False)

    def _leave(self, verdict: Verdict, grace: float, remove: bool) -> None:
        if not self._leaving.done():
            self._leaving.set_result(remove)
            if self._end(verdict, grace) and verdict.reason:
                self.tell("Warning", verdict.reason, verdict.message)
        if grace < self._grace:  # a later request may have a shorter grace period
            self._grace = grace
            asyncio.get_running_loop().call_later(grace, self._kill)

    def _end(self, verdict: Verdict, grace: float) -> bool:
        """The first caller decides how the pod ends; containers that have ended before are not
        affected. Returns whether this call has decided."""
        if self._verdict is not None or self._work.done():
            return False
        self._verdict, self._grace = verdict, grace
        self._work.cancel()
        return True

    def _miss_deadline(self) -> None:
        if self._end(_DEADLINE, self._grace):
            self.tell("Warning", _DEADLINE.reason, _DEADLINE.message)

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
            # To the end, even if the API server reports meanwhile that the pod is gone.
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
            asyncio.get_running_loop().call_later(left, self._miss_deadline)

    async def _see_to_end(self) -> None:
        await asyncio.wait([self._work])
        if self._work.cancelled():
            await self._end_containers(self._grace)
        elif fault := self._work.exception():
            # The author must see an end, and the pod must be removable.
            log.error("pod %s: a bug in the agent", self._path, exc_info=fault)
            await self._end_containers(0)
            self._verdict = Verdict("AgentFault", f"The agent failed: {fault!r}"[:500])
        # Removes everything that no process needs any more, such as secrets. The logs stay.
        with contextlib.suppress(OSError):
            (self.folder / ENTRY).write_text("")
        for folder in (self.folder / "volumes", self.scratch):
            shutil.rmtree(folder, ignore_errors=True)

    async def _end_containers(self, grace: float) -> None:
        await asyncio.gather(*(container.end(grace) for container in self.containers))

    async def _run_containers(self) -> None:
        """Volumes, init containers in order, then the others. Returns when all have ended."""
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
                        break  # no other container starts, and the sidecars before it end
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
                self.volumes = await make_volumes(
                    self.object,
                    self.folder / "volumes",
                    sources,
                    lambda claim: self.machine.claim(self.namespace, claim),
                )
                return
            except (CannotStart, OSError) as error:
                if told != str(error):
                    told = str(error)
                    self.tell("Warning", "FailedMount", told)
            await asyncio.sleep(self.machine.settings.shortest_backoff / 5)

    # ----- what it reports to the API

    async def _report(self) -> None:
        """Writes every change of the status, until the end is written or the pod is gone from the
        API."""
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
                    # A list is replaced as a whole, so the version protects what others have
                    # written meanwhile.
                    known = {"resourceVersion": self.object["metadata"]["resourceVersion"]}
                    await self._patch(f"{self._path}/status", known, status=status)
                    told = status
                except ApiFailure as error:
                    if error.code == 404:
                        return
                    log.debug("the status of %s cannot be written yet: %s", self._path, error)
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
        """Nothing of the pod runs any more: removes it from the API."""
        while True:
            try:
                await self.machine.api.delete(self._path, uid=self.uid, grace=0)
                return
            except ApiFailure as error:
                # It is gone, or another pod has its name.
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
