"""One pod: from the moment it is placed on the node until it is gone from the API."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import logging
import shutil
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from airflow_kftrain.local.addresses import Peers, scope_of
from airflow_kftrain.local.api_client import ApiError, ApiUnreachable, core
from airflow_kftrain.local.container import Container, PodContext
from airflow_kftrain.local.environment import ConfigError
from airflow_kftrain.local.log_server import FoundLog, NoLog
from airflow_kftrain.local.machine import Machine
from airflow_kftrain.local.pod_status import Record, Verdict, build_status, now_text, terminated
from airflow_kftrain.local.processes import Process
from airflow_kftrain.local.remote_shell import ENDED, ENVIRONMENT
from airflow_kftrain.local.unsupported import unsupported
from airflow_kftrain.local.volumes import make_volumes, sources_of_volumes

log = logging.getLogger(__name__)

Object = dict[str, Any]

ANNOTATION = "kftrain.local/cluster-env"
"""Variables that were rewritten, as a real cluster would have them: {container: {name: value}}."""
_OPERATORS_INIT = ("init-pytorch", "kubectl-delivery")
"""Init containers by which operators wait for names to resolve, which they never do here."""
_DEADLINE = Verdict(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)
_NODE_ENDS = Verdict("Terminated", "The agent of this node has ended")
_RETRY = 1.0


class End(NamedTuple):
    """Somebody wants the pod to end."""

    grace: float
    verdict: Verdict


class PodRunner:
    """`run` is the whole life of the pod; cancelled, it ends everything at once."""

    def __init__(self, machine: Machine, pod: Object, others: list[str]) -> None:
        metadata = pod["metadata"]
        self.pod = pod
        self.scope = scope_of(pod)
        self._machine = machine
        self._folder = machine.folder / "pods" / metadata["uid"]
        self._path = core(metadata["namespace"], "pods", metadata["name"])
        self._started = (pod.get("status") or {}).get("startTime") or now_text()
        self._end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._sent: Object = {}
        self._verdict: Verdict | None = None
        self._cluster_env: dict[str, dict[str, str]] = {}
        peers = Peers(pod, others, lambda host, port: machine.ports.port(self.scope, host, port))
        self._context = PodContext(
            machine, pod, self._folder, {}, peers, self._changed.set, self._keep_cluster_env
        )
        self.containers = [Container(self._context, record) for record in _records(pod)]

    # ----- what others tell it

    def update(self, pod: Object) -> None:
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self.end(End(pod["metadata"].get("deletionGracePeriodSeconds") or 0, Verdict()))

    def end_with_node(self) -> None:
        grace = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        self.end(End(min(grace, self._machine.settings.last_grace), _NODE_ENDS))

    def end(self, end: End) -> None:
        if not self._end.done():
            self._end.set_result(end)

    def look(self, processes: Mapping[int, Process]) -> None:
        for container in self.containers:
            container.look(processes)

    def find_log(self, name: str, previous: bool) -> FoundLog:
        """As a kubelet finds it; raises NoLog with a kubelet's words."""
        pod = self.pod["metadata"]["name"]
        container = next((c for c in self.containers if c.name == name), None)
        if container is None:
            raise NoLog(404, f'container "{name}" not found in pod "{pod}"')
        record = container.record
        ran = not record.running and "waiting" in record.state and record.last_state
        run = record.restarts - (1 if previous and not ran else 0)
        if previous and not record.last_state:
            raise NoLog(400, f'previous terminated container "{name}" in pod "{pod}" not found')
        path = container.log_path(run)
        if path.exists():
            return FoundLog(path, None if previous else container.log)
        raise NoLog(400, _why_no_log(f'container "{name}" in pod "{pod}"', record))

    # ----- its life

    async def run(self) -> None:
        reporting = asyncio.create_task(self._report())
        try:
            if (self.pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                await self._live()
            end = await self._end
            if end.verdict is not _NODE_ENDS:
                await self._finalise()
        finally:
            reporting.cancel()
            await self._end_all(0)
            await _ended([reporting])
            self._forget_name()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _live(self) -> None:
        """Until all containers have ended for good, and the API knows of it."""
        self._changed.set()
        working = asyncio.create_task(self._work())
        both: list[asyncio.Future[Any]] = [working, self._end]
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait(both, timeout=self._seconds_left(), return_when=first)
        try:
            if not working.done():
                end = self._end.result() if self._end.done() else None
                working.cancel()
                await _ended([working])
                await self._end_all(end.grace if end else self._grace())
                # Containers that had ended well before that are a success all the same.
                self._verdict = end.verdict if end else _DEADLINE
                if end is None:
                    self._context.tell("Warning", _DEADLINE.reason, _DEADLINE.message)
            elif fault := working.exception():
                # The author has to see an end, and the pod has to be removable.
                log.error("pod %s: a fault of the agent", self._path, exc_info=fault)
                await self._end_all(0)
                self._verdict = Verdict("AgentFault", f"The agent failed: {fault!r}"[:500])
        finally:
            working.cancel()
            await _ended([working])
        self._close_doors()
        await self._send_status()

    def _seconds_left(self) -> float | None:
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        if deadline is None:
            return None
        started = datetime.datetime.fromisoformat(self._started.replace("Z", "+00:00"))
        passed = datetime.datetime.now(datetime.timezone.utc) - started
        return float(max(0.0, deadline - passed.total_seconds()))

    def _grace(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def _work(self) -> None:
        """Volumes, init containers in order, then the containers."""
        self._machine.tell_of_images(self.pod)
        self._make_folder()
        await self._make_volumes()
        sidecars: list[asyncio.Task[None]] = []
        try:
            if await self._initialise(sidecars):
                await _all(c.run() for c in self.containers if not c.record.init)
        finally:
            for task in sidecars:
                task.cancel()
            await _ended(sidecars)
        for container in self.containers:
            if container.record.sidecar:
                await container.end(self._grace())

    async def _initialise(self, sidecars: list[asyncio.Task[None]]) -> bool:
        """False if an init container failed for good. Sidecars are started, and go on."""
        for container in self.containers:
            record = container.record
            if record.sidecar:
                sidecars.append(asyncio.create_task(container.run()))
            elif record.init and record.exit_code != 0:
                await container.run()
                if record.exit_code != 0:
                    return False
        return True

    def _make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        metadata = self.pod["metadata"]
        namespace = metadata["namespace"]
        self._machine.write_remote_shell(self._folder / "remote-shell", namespace)
        self._machine.names.mkdir(exist_ok=True, mode=0o700)
        self._name_link.unlink(missing_ok=True)
        self._name_link.symlink_to(self._folder)

    @property
    def _name_link(self) -> Path:
        metadata = self.pod["metadata"]
        return self._machine.names / f"{metadata['namespace']}.{metadata['name']}"

    def _forget_name(self) -> None:
        link = self._name_link
        with contextlib.suppress(OSError):
            if link.readlink() == self._folder:
                link.unlink()

    def _close_doors(self) -> None:
        """What no process needs any more, secrets among it; the logs stay."""
        with contextlib.suppress(OSError):
            (self._folder / ENVIRONMENT).unlink(missing_ok=True)
            (self._folder / ENDED).touch()
        for name in ("volumes", "tmp"):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    async def _make_volumes(self) -> None:
        found = unsupported(self.pod)
        for unable in found:
            self._context.tell("Warning", "NotSupported", f"{unable.field}: {unable.text}")
        if any(unable.refused for unable in found):
            await (
                asyncio.Event().wait()
            )  # until somebody deletes it, as for a volume that is missing
        namespace, told = self.pod["metadata"]["namespace"], ""
        while True:
            try:
                sources = await self._machine.fetch(namespace, sources_of_volumes(self.pod))
                made = make_volumes(self.pod, self._folder / "volumes", sources)
                self._context.volumes.update(made)
                return
            except ConfigError as error:
                if str(error) != told:
                    told = str(error)
                    self._context.tell(
                        "Warning", "FailedMount", f"MountVolume.SetUp failed: {told}"
                    )
            await asyncio.sleep(self._machine.settings.shortest_backoff / 5)

    async def _end_all(self, grace: float) -> None:
        await asyncio.gather(*(container.end(grace) for container in self.containers))

    # ----- what it tells the API

    def _keep_cluster_env(self, container: str, variables: dict[str, str]) -> None:
        if self._cluster_env.get(container) != variables:
            self._cluster_env[container] = variables
            self._machine.errand(self._annotate())

    async def _annotate(self) -> None:
        annotations = {ANNOTATION: json.dumps(self._cluster_env, sort_keys=True)}
        metadata = {"uid": self.pod["metadata"]["uid"], "annotations": annotations}
        with contextlib.suppress(ApiError, ApiUnreachable):
            await self._machine.api.merge_patch(self._path, {"metadata": metadata})

    async def _report(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._send_status()

    async def _send_status(self) -> None:
        """Until the API server has it, or has no such pod."""
        async with self._sending:
            while True:
                records = [container.record for container in self.containers]
                status = build_status(self.pod, records, self._started, self._verdict)
                if status == self._sent:
                    return
                try:
                    self.pod = await self._patch_status(status)
                    self._sent = status
                    return
                except ApiError as error:
                    if error.code == 404 or not await self._renew():
                        return
                    log.debug("status of %s: %s", self._path, error)
                except ApiUnreachable as error:
                    log.debug("status of %s has to wait: %s", self._path, error)
                    await asyncio.sleep(_RETRY)

    async def _patch_status(self, status: Object) -> Object:
        # A list is replaced whole: the version guards conditions that others wrote meanwhile.
        known = {key: self.pod["metadata"][key] for key in ("uid", "resourceVersion")}
        return await self._machine.api.merge_patch(
            f"{self._path}/status", {"metadata": known, "status": status}
        )

    async def _renew(self) -> bool:
        """Read the pod anew; False if it is not there any more."""
        try:
            pod = await self._machine.api.get(self._path)
        except (ApiError, ApiUnreachable) as error:
            await asyncio.sleep(_RETRY)
            return not (isinstance(error, ApiError) and error.code == 404)
        if pod["metadata"]["uid"] != self.pod["metadata"]["uid"]:
            return False
        if pod["metadata"]["resourceVersion"] == self.pod["metadata"]["resourceVersion"]:
            await asyncio.sleep(_RETRY)  # not a conflict: the server is in trouble
        self.update(pod)
        return True

    async def _finalise(self) -> None:
        """Nothing of the pod runs any more: let it go from the API."""
        while True:
            try:
                await self._machine.api.delete(self._path, uid=self.pod["metadata"]["uid"], grace=0)
                return
            except (ApiError, ApiUnreachable) as error:
                # Gone, or another pod of that name.
                if isinstance(error, ApiError) and error.code in (404, 409):
                    return
                log.debug("pod %s cannot be removed yet: %s", self._path, error)
            await asyncio.sleep(_RETRY)


def _records(pod: Object) -> list[Record]:
    spec, status = pod["spec"], pod.get("status") or {}
    before = {
        entry["name"]: entry
        for group in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(group) or []
    }
    inits, records = spec.get("initContainers") or [], []
    for container in [*inits, *spec["containers"]]:
        record = Record(container, init=container in inits)
        record.wait("PodInitializing" if inits else "ContainerCreating")
        if record.init and container["name"] in _OPERATORS_INIT:
            now = now_text()
            record.state = terminated(0, "Completed", "", now, now)
        elif container["name"] in before:
            record.take_over(before[container["name"]])
        records.append(record)
    return records


def _why_no_log(which: str, record: Record) -> str:
    if "terminated" in record.state or record.last_state:
        return f"{which} is terminated"
    reason = record.state.get("waiting", {}).get("reason", "")
    known = {
        "ErrImagePull": "image can't be pulled",
        "ImagePullBackOff": "trying and failing to pull image",
    }
    return f"{which} is waiting to start: {known.get(reason, reason)}"


async def _all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them; when one fails or this is cancelled, the others are cancelled too."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await _ended(tasks)


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for cancelled tasks; their errors have been told already."""
    if tasks:
        await asyncio.wait(tasks)
