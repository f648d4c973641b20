"""MPIJob v2beta1, like mpi-operator 0.8. Its launcher is a Job of batch/v1."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from kftrain_local.api_client import ApiClient, core
from kftrain_local.controllers.controller import (
    Children,
    Controller,
    collection,
    has_ended,
    is_going,
    phase_of,
)
from kftrain_local.controllers.mpi_objects import LAUNCHER, WORKER, MpiObjects
from kftrain_local.server.refusals import together
from kftrain_local.server.resources import BATCH_JOBS, Resource
from kftrain_local.times import now_text

Object = dict[str, Any]

_OURS = (None, "kubeflow.org/mpi-operator")
_LOOK_AGAIN = 5.0


class _Taken(Exception):
    """An object of another owner has a name that the job needs."""


class MpiController(Controller):
    def __init__(self, api: ApiClient, resource: Resource) -> None:
        self._api = api
        self.resource = resource

    async def reconcile(self, found: Object) -> float | None:
        policy = found["spec"].get("runPolicy") or {}
        if is_going(found) or policy.get("managedBy") not in _OURS:
            return None
        children = Children(self._api, found, "mpi-job-controller")
        objects = MpiObjects(found)
        if faults := [*objects.faults()]:
            text = f"Found validation errors: {together(faults)}"
            await children.tell("Warning", "ValidationError", text)
            return None
        path = f"{collection(self.resource, children.namespace)}/{objects.name}"
        try:
            await _Look(self._api, path, children, found, objects).work()
        except _Taken as taken:
            why = f'Resource "{taken}" of Kind "" already exists and is not managed by MPIJob'
            await children.tell("Warning", "ErrResourceExists", why)
            return _LOOK_AGAIN
        return None


class _Look:
    """One pass over one job."""

    def __init__(
        self, api: ApiClient, path: str, children: Children, job: Object, objects: MpiObjects
    ) -> None:
        self._api = api
        self._path = path
        self._children = children
        self._objects = objects
        self._full_name = f"{children.namespace}/{objects.name}"
        self._pods = core(children.namespace, "pods")
        self._clean_policy = objects.policy.get("cleanPodPolicy") or "None"
        self._suspended = bool(objects.policy.get("suspend"))
        self._at_startup = job["spec"]["launcherCreationPolicy"] == "AtStartup"
        self._status: Object = copy.deepcopy(job.get("status") or {})
        self._conditions: list[Object] = self._status.setdefault("conditions", [])

    async def work(self) -> None:
        if not self._conditions:
            await self._say("Created", f"MPIJob {self._full_name} is created.")
        if not (self._is_finished() and "completionTime" in self._status):
            await self._steps()
        elif self._clean_policy != "None":
            await self._delete_workers()
        await self._children.write_status(self._path, self._status)

    async def _steps(self) -> None:
        if not self._suspended:
            self._status.setdefault("startTime", now_text())
        jobs, name = collection(BATCH_JOBS, self._children.namespace), self._objects.launcher_name
        launcher = await self._own(jobs, name)
        workers: list[Object] = []
        if launcher is None or not _ended(launcher):
            workers = await self._children.pods(self._objects.labels(WORKER))
            await self._make_objects(workers)
            workers = [] if self._suspended else await self._mend_workers(workers)
            if launcher is None and (self._at_startup or all(map(_is_ready, workers))):
                launcher = await self._make_launcher(jobs)
        if launcher and bool(launcher["spec"].get("suspend")) != self._suspended:
            patch = {"spec": {"suspend": self._suspended}}
            launcher = await self._api.merge_patch(f"{jobs}/{name}", patch)
        if self._suspended:
            await self._delete_workers()
        await self._update_status(launcher, workers)

    # ---- what it creates

    async def _own(self, path: str, name: str) -> Object | None:
        found = await self._api.find(f"{path}/{name}")
        if found and not self._children.has(found):
            raise _Taken(name)
        return found

    async def _make(self, path: str, body: Object) -> Object:
        made = await self._children.create(path, body)
        if made is None:
            raise _Taken(body["metadata"]["name"])
        return made

    async def _make_objects(self, workers: list[Object]) -> None:
        running = [pod["metadata"]["name"] for pod in workers if phase_of(pod) == "Running"]
        await self._keep("services", self._objects.service(), "spec")
        await self._keep("configmaps", self._objects.config_map(running), "data")
        await self._keep("secrets", self._objects.secret(), "type")

    async def _keep(self, plural: str, wanted: Object, field: str) -> None:
        """Creates the object if it is missing, and corrects this field if it has changed."""
        path, name = core(self._children.namespace, plural), wanted["metadata"]["name"]
        found = await self._own(path, name)
        if found is None:
            await self._make(path, wanted)
        elif found.get(field) != wanted[field]:
            await self._api.merge_patch(f"{path}/{name}", {field: wanted[field]})

    async def _make_launcher(self, jobs: str) -> Object:
        if self._objects.sets_restart_policy_twice:
            why = "Restart policy in pod template overridden by restart policy in replica spec"
            await self._children.tell("Warning", "SetPodTemplateRestartPolicy", why)
        return await self._make(jobs, self._objects.launcher())

    # ---- workers

    async def _mend_workers(self, pods: list[Object]) -> list[Object]:
        """Creates missing workers, and deletes surplus ones."""
        present = {pod["metadata"]["name"]: pod for pod in pods}
        for name in present.keys() - set(self._objects.workers):
            await self._delete(present[name])
        for name in self._objects.workers:
            if name not in present:
                present[name] = await self._make(self._pods, self._objects.worker(name))
        return [present[name] for name in self._objects.workers]

    async def _delete(self, pod: Object) -> None:
        if not is_going(pod):
            await self._children.delete(f"{self._pods}/{pod['metadata']['name']}")

    async def _delete_workers(self) -> None:
        """Deletes workers by the clean pod policy. Those that have not started yet count as
        running."""
        for pod in await self._children.pods(self._objects.labels(WORKER)):
            is_over = has_ended(pod)
            if not is_over or self._clean_policy != "Running":
                await self._delete(pod)
        self._count(WORKER, [])

    # ---- status

    def _condition(self, type_: str) -> Object | None:
        return next((each for each in self._conditions if each["type"] == type_), None)

    def _is_finished(self) -> bool:
        ends = [self._condition(type_) or {} for type_ in ("Succeeded", "Failed")]
        return any(each.get("status") == "True" for each in ends)

    def _set(self, type_: str, message: str, reason: str, value: str = "True") -> bool:
        """Returns False if the condition is the same already: then it keeps its message and
        time."""
        now = now_text()
        since, before = now, self._condition(type_)
        if before and before["status"] == value:
            if before["reason"] == reason:
                return False
            since = before["lastTransitionTime"]
        if type_ in ("Succeeded", "Failed"):
            for each in self._conditions:
                if each["type"] in ("Running", "Failed"):
                    each["status"] = "False"
        added = {
            "type": type_,
            "status": value,
            "reason": reason,
            "message": message,
            "lastUpdateTime": now,
            "lastTransitionTime": since,
        }
        self._conditions[:] = [*(each for each in self._conditions if each is not before), added]
        return True

    async def _say(
        self, type_: str, message: str, reason: str = "", value: str = "True", kind: str = "Normal"
    ) -> bool:
        """Sets a condition, and creates an event if it is new."""
        reason = reason or f"MPIJob{type_}"
        is_new = self._set(type_, message, reason, value)
        if is_new:
            await self._children.tell(kind, reason, message)
        return is_new

    def _count(self, role: str, pods: list[Object]) -> Object:
        phases = Counter(map(phase_of, pods))
        words = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
        counts: Object = {word: phases[phase] for word, phase in words.items() if phases[phase]}
        self._status.setdefault("replicaStatuses", {})[role] = counts
        return counts

    async def _update_status(self, launcher: Object | None, workers: list[Object]) -> None:
        if self._suspended:
            await self._say("Suspended", "MPIJob suspended")
        elif self._condition("Suspended") and await self._say(
            "Suspended", "MPIJob resumed", "MPIJobResumed", "False"
        ):
            self._status["startTime"] = now_text()
        launched = await self._judge(launcher) if launcher else False
        self._count(WORKER, workers)
        if evicted := sum(map(_is_evicted, workers)):
            why = f"{evicted}/{len(workers)} workers are evicted"
            await self._say("Failed", why, "MPIJobEvicted", kind="Warning")
        await self._say_whether_it_runs(launched and all(map(_is_running, workers)))

    async def _say_whether_it_runs(self, runs: bool) -> None:
        text = f"MPIJob {self._full_name} is"
        if self._suspended:
            self._set("Running", f"{text} suspended.", "MPIJobSuspended", "False")
        elif self._is_finished():
            if self._condition("Running") is None:
                text += " finished but Running condition was never set."
                self._set("Running", text, "MPIJobRunning", "False")
        elif runs and self._set("Running", f"{text} running.", "MPIJobRunning"):
            await self._children.tell("Normal", "MPIJobRunning", f"{text} running")

    async def _judge(self, launcher: Object) -> bool:
        """Success or failure, as the launcher's Job says. Returns whether a pod of it runs."""
        labels = {"batch.kubernetes.io/job-name": self._objects.launcher_name}
        pods = await Children(self._api, launcher, "").pods(labels)
        status, counts = launcher.get("status") or {}, self._count(LAUNCHER, [])
        if status.get("failed"):
            counts["failed"] = status["failed"]
        # In a suspended job they are being deleted, like the workers.
        running = 0 if self._suspended else sum(map(_is_running, pods))
        end = _ended(launcher)
        if end is None and running:
            counts["active"] = running
        elif end and end["type"] == "Complete":
            counts["succeeded"] = 1
            self._status.setdefault("completionTime", status["completionTime"])
            await self._say("Succeeded", f"MPIJob {self._full_name} successfully completed.")
        elif end:
            self._status.setdefault("completionTime", now_text())
            reason, message = _why(end, pods)
            await self._say("Failed", message, reason, kind="Warning")
        return bool(running)


def _why(end: Object, pods: list[Object]) -> tuple[str, str]:
    """(reason, message) of a failed launcher. Those of its last pod, which are often empty,
    follow."""
    failed = [pod for pod in pods if phase_of(pod) == "Failed"]
    if end["reason"] != "BackoffLimitExceeded" or not failed:
        return end["reason"], end["message"]
    last = max(failed, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))["status"]
    return (
        f"{end['reason']}/{last.get('reason', '')}",
        f"{end['message']}: {last.get('message', '')}",
    )


def _ended(launcher: Object) -> Object | None:
    """The condition that ends the job."""
    for each in (launcher.get("status") or {}).get("conditions") or ():
        if each["status"] == "True" and each["type"] in ("Complete", "Failed"):
            return dict(each)
    return None


def _is_running(pod: Object) -> bool:
    return phase_of(pod) == "Running"


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_evicted(pod: Object) -> bool:
    return phase_of(pod) == "Failed" and pod["status"].get("reason") == "Evicted"
