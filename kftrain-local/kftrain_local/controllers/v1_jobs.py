"""PyTorchJob and TFJob, like training-operator 1.9."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from kftrain_local.api_client import ApiClient, ApiError, core
from kftrain_local.controllers.controller import (
    Children,
    Controller,
    collection,
    has_ended,
    is_going,
    phase_of,
)
from kftrain_local.controllers.v1_pods import PREFIX, V1Job
from kftrain_local.kinds import TF_JOB
from kftrain_local.server.resources import Resource
from kftrain_local.times import now_text, seconds_since

Object = dict[str, Any]

_OURS = ("", None, "kubeflow.org/training-operator")
_RETRYABLE = 128
# The exit code of a pod that failed as a whole, for example by eviction: retryable.
_NO_EXIT_CODE = 0xBEEF
_TF_ORDER = ("Chief", "Evaluator", "Master", "PS", "Worker")


class V1Controller(Controller):
    def __init__(self, api: ApiClient, resource: Resource) -> None:
        self._api = api
        self.resource = resource

    async def reconcile(self, found: Object) -> float | None:
        policy = found["spec"].get("runPolicy") or {}
        if is_going(found) or policy.get("managedBy") not in _OURS:
            return None
        return await _Look(self._api, self.resource, found).work()


class _Look:
    """One pass over one job."""

    def __init__(self, api: ApiClient, resource: Resource, found: Object) -> None:
        assert resource.job is not None
        self._api = api
        self._job = V1Job(resource.job, found)
        self._kind = resource.kind
        self._name = self._job.name
        namespace = self._job.namespace
        self._path = f"{collection(resource, namespace)}/{self._name}"
        self._pods = core(namespace, "pods")
        self._services = core(namespace, "services")
        self._children = Children(api, found, f"{self._kind.lower()}-controller")
        self._status: Object = copy.deepcopy(found.get("status") or {})
        self._conditions: list[Object] = self._status.setdefault("conditions", [])

    async def work(self) -> float | None:
        """Does what is missing. The status is written only if all of it succeeds."""
        delay = await self._steps(await self._children.pods(self._job.labels))
        await self._children.write_status(self._path, self._status)
        return delay

    async def _steps(self, pods: list[Object]) -> float | None:
        """Nobody looks again when a deadline expires: training-operator does not either."""
        policy = self._job.policy
        if not self._conditions:
            self._set("Created", f"{self._kind} {self._name} is created.")
        if self._is("Succeeded") or self._is("Failed"):
            return await self._finish(pods)
        if policy.get("suspend"):
            await self._suspend(pods)
            return None
        if self._is("Suspended"):
            text = f"{self._kind} {self._name} is resumed."
            self._set("Suspended", text, "Resumed", "False")
            self._status["startTime"] = now_text()
            await self._tell("Resumed", text)
        await self._tell_of_trouble(pods)
        if why := self._limit_reached(pods):
            text = f"Job {self._name} has failed because it {why}"
            await self._end("Failed", text)
            return await self._finish(pods)
        for role in self._job.roles:
            await self._work_on_role(role, [pod for pod in pods if _role(pod) == role.lower()])
        await self._judge(pods)
        return None

    # ---- pods and services

    async def _work_on_role(self, role: str, pods: list[Object]) -> None:
        job = self._job
        indexes = {_index(pod) for pod in pods}
        for pod in pods:
            if _index(pod) >= job.count(role):
                await self._delete_pod(pod)
            await self._look_at_end(role, pod)
        for index in sorted({*range(job.count(role))} - indexes):
            if "restartPolicy" in job.roles[role]["template"]["spec"]:
                await self._children.tell(
                    "Warning",
                    "SetPodTemplateRestartPolicy",
                    "Restart policy in pod template will be overwritten by restart policy in "
                    "replica spec",
                )
            await self._create("pod", self._pods, job.pod(role, index))
        self._count(role, pods)
        selector = {"labelSelector": _selector(job.role_labels(role))}
        listed, _ = await self._api.list(self._services, **selector)
        there = {service["metadata"]["name"] for service in listed}
        wanted = {job.pod_name(role, index): index for index in range(job.count(role))}
        for name in wanted.keys() - there:
            await self._create("service", self._services, job.service(role, wanted[name]))
        for name in there - wanted.keys():
            await self._delete("service", f"{self._services}/{name}")

    async def _look_at_end(self, role: str, pod: Object) -> None:
        """A failed pod is replaced, unless its policy or its exit code says that this is the
        end."""
        code, name = _exit_code(pod, self._job.kind.container), pod["metadata"]["name"]
        if code is not None:
            text = f"Pod: {self._job.namespace}.{name} exited with code {code}"
            await self._children.tell("Normal", "ExitedWithCode", text)
        policy = self._job.restart_policy(role)
        if phase_of(pod) != "Failed" or policy == "Never":
            return
        if policy == "ExitCode" and (_NO_EXIT_CODE if code is None else code) < _RETRYABLE:
            text = f'job "{self._name}" is failing because "{role}" replica(s) failed.'
            await self._tell("Failed", text, "Warning")
            self._set("Failed", text)
            return
        await self._delete_pod(pod)
        text = f"job {self._name} is restarting because {role} replica(s) failed."
        await self._tell("Restarting", text, "Warning")
        self._set("Restarting", text)

    async def _create(self, what: str, path: str, body: Object) -> None:
        try:
            made = await self._children.create(path, body)
        except ApiError as error:
            reason = f"FailedCreate{what.title()}"
            await self._children.tell("Warning", reason, f"Error creating: {error.message}")
            raise
        if made is not None:
            text = f"Created {what}: {body['metadata']['name']}"
            await self._children.tell("Normal", f"SuccessfulCreate{what.title()}", text)

    async def _delete(self, what: str, path: str) -> None:
        if await self._children.delete(path):
            text = f"Deleted {what}: {path.rpartition('/')[2]}"
            await self._children.tell("Normal", f"SuccessfulDelete{what.title()}", text)

    async def _delete_pod(self, pod: Object) -> None:
        if not is_going(pod):
            await self._delete("pod", f"{self._pods}/{pod['metadata']['name']}")

    async def _clean_up(self, pods: list[Object], policy: str) -> None:
        for pod in pods:
            is_alive = phase_of(pod) in ("Running", "Pending")
            if policy != "None" and (policy != "Running" or is_alive):
                await self._delete_pod(pod)
                await self._delete("service", f"{self._services}/{pod['metadata']['name']}")

    async def _tell_of_trouble(self, pods: list[Object]) -> None:
        """Creates events on the job for what keeps a pod from starting or running."""
        for pod in pods:
            if has_ended(pod) or is_going(pod):
                continue
            name, status = pod["metadata"]["name"], pod.get("status") or {}
            containers = status.get("containerStatuses") or status.get("initContainerStatuses")
            for each in containers or ():
                await self._tell_of_container(name, each)
            conditions = status.get("conditions")
            if conditions and not containers:
                last = max(conditions, key=lambda each: str(each.get("lastTransitionTime")))
                if last["status"] != "True":
                    text = f"Error pod {name} condition message: {last.get('message', '')}"
                    await self._children.tell("Warning", last.get("reason", ""), text)

    async def _tell_of_container(self, pod: str, status: Object) -> None:
        state, place = status.get("state") or {}, f"Error pod {pod} container {status['name']}"
        ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
        if ended.get("exitCode"):
            said = f"exitCode: {ended['exitCode']} terminated message: {ended.get('message', '')}"
            await self._children.tell("Warning", ended["reason"], f"{place} {said}")
        if waiting.get("message"):
            text = f"{place} waiting message: {waiting['message']}"
            await self._children.tell("Warning", waiting["reason"], text)

    # ---- the status

    def _is(self, type_: str) -> bool:
        return any(each["type"] == type_ and each["status"] == "True" for each in self._conditions)

    def _set(self, type_: str, message: str, reason: str = "", value: str = "True") -> None:
        """Nothing changes after a failure. A condition that is the same keeps its message and
        time."""
        if self._is("Failed"):
            return
        reason = f"{self._kind}{reason or type_}"
        for each in self._conditions:
            if (each["type"], each["status"], each["reason"]) == (type_, value, reason):
                return
        rivals = {"Running": "Restarting", "Restarting": "Running"}
        kept = [each for each in self._conditions if each["type"] not in (type_, rivals.get(type_))]
        if type_ in ("Succeeded", "Failed"):
            kept = [
                {**each, "status": "False"} if each["type"] == "Running" else each for each in kept
            ]
        now = now_text()
        times = {"lastUpdateTime": now, "lastTransitionTime": now}
        added = {"type": type_, "status": value, "reason": reason, "message": message, **times}
        self._conditions[:] = [*kept, added]

    async def _tell(self, reason: str, message: str, kind: str = "Normal") -> None:
        await self._children.tell(kind, f"{self._kind}{reason}", message)

    async def _end(self, type_: str, message: str) -> None:
        await self._tell(type_, message)
        self._status.setdefault("completionTime", now_text())
        self._set(type_, message)

    def _count(self, role: str, pods: list[Object]) -> None:
        """A pod that is deleted while it runs counts as failed."""
        words = [
            "failed" if is_going(pod) and phase_of(pod) == "Running" else _COUNTED[phase_of(pod)]
            for pod in pods
            if phase_of(pod) in _COUNTED
        ]
        counts: Object = {word: words.count(word) for word in sorted(set(words))}
        if self._job.kind is not TF_JOB:
            counts["selector"] = _selector(self._job.role_labels(role))
        self._status.setdefault("replicaStatuses", {})[role] = counts

    async def _suspend(self, pods: list[Object]) -> None:
        await self._clean_up(pods, "All")
        for counts in self._status.get("replicaStatuses", {}).values():
            counts.pop("active", None)
        text = f"{self._kind} {self._name} is suspended."
        if self._is("Running"):
            self._set("Running", text, "Suspended", "False")
        if not self._is("Suspended"):
            self._set("Suspended", text)
            await self._tell("Suspended", text)

    async def _finish(self, pods: list[Object]) -> float | None:
        await self._clean_up(pods, self._job.policy["cleanPodPolicy"])
        for counts in self._status.get("replicaStatuses", {}).values():
            if self._is("Succeeded") and counts.get("active"):
                counts["succeeded"] = counts.get("succeeded", 0) + counts.pop("active")
        seconds = self._job.policy.get("ttlSecondsAfterFinished")
        completed = self._status.get("completionTime")
        if seconds is None or completed is None:
            return None
        if (left := float(seconds) - seconds_since(completed)) <= 0:
            if await self._children.delete(self._path):
                what = "Job" if self._job.kind is TF_JOB else "Pod"
                text = f"Deleted job: {self._name}"
                await self._children.tell("Normal", f"SuccessfulDelete{what}", text)
            return None
        return left

    # ---- what follows from the pods

    def _limit_reached(self, pods: list[Object]) -> str:
        policy, job = self._job.policy, self._job
        limit, seconds = policy.get("backoffLimit"), policy.get("activeDeadlineSeconds")
        counted = {role.lower() for role in job.roles if job.restart_policy(role) != "Never"}
        restarts = sum(
            container.get("restartCount", 0)
            for pod in pods
            if _role(pod) in counted and phase_of(pod) == "Running"
            for container in _containers(pod)
        )
        counts = (self._status.get("replicaStatuses") or {}).values()
        failed = sum(phase_of(pod) == "Failed" for pod in pods)
        is_new = failed > sum(each.get("failed", 0) for each in counts)
        if limit is not None and (restarts >= max(limit, 1) or (is_new and limit < 1)):
            return "has reached the specified backoff limit"
        started = self._status.get("startTime")
        if seconds is not None and started and seconds_since(started) >= seconds:
            return "was active longer than specified deadline"
        return ""

    async def _judge(self, pods: list[Object]) -> None:
        self._status.setdefault("startTime", now_text())
        judge = self._judge_tensorflow if self._job.kind is TF_JOB else self._judge_torch
        counts = self._status["replicaStatuses"]
        restarting = [each for each in self._conditions if each["type"] == "Restarting"]
        order = _TF_ORDER if self._job.kind is TF_JOB else tuple(self._job.roles)
        for role in order:
            if role in self._job.roles:
                is_done = self._is_done(role, counts[role], pods)
                if await self._judge_success(role, counts[role], is_done):
                    return
                if counts[role].get("failed"):
                    await judge(role, counts[role], restarting)

    async def _judge_success(self, role: str, counts: Object, is_done: bool) -> bool:
        """Returns True if everything is decided."""
        job = self._job
        if role not in (job.leaders or {"Worker"}):
            return False
        place = f"{job.namespace}/{self._name}"
        in_short = bool(job.leaders) and job.kind is not TF_JOB
        if is_done:
            done = f"{self._name} is successfully" if in_short else f"{place} successfully"
            await self._end("Succeeded", f"{self._kind} {done} completed.")
            return in_short
        if counts.get("active"):
            self._set("Running", f"{self._kind} {self._name if in_short else place} is running.")
        return False

    def _is_done(self, role: str, counts: Mapping[str, int], pods: list[Object]) -> bool:
        job, done = self._job, counts.get("succeeded", 0)
        if done == job.count(role):
            return True
        if job.leaders:
            return False
        if job.kind is not TF_JOB:
            return job.spec.get("elasticPolicy") is not None and done > 0
        first = [pod for pod in pods if (_role(pod), _index(pod)) == ("worker", 0)]
        by_all = job.spec.get("successPolicy") == "AllWorkers"
        return not by_all and bool(first) and phase_of(first[0]) == "Succeeded"

    async def _judge_torch(self, role: str, counts: Object, _: list[Object]) -> None:
        failed = counts["failed"]
        if self._job.count(role) <= counts.get("succeeded", 0) + counts.get("active", 0):
            return
        if self._job.restart_policy(role) == "Never":
            text = f"is failed because {failed} {role} replica(s) failed."
            await self._end("Failed", f"{self._kind} {self._name} {text}")
            return
        text = f"is restarting because {failed} {role} replica(s) failed."
        text = f"{self._kind} {self._name} {text}"
        await self._tell("Restarting", text, "Warning")
        self._set("Restarting", text)

    async def _judge_tensorflow(self, role: str, counts: Object, restarting: list[Object]) -> None:
        """`restarting`: whether the job was restarting before this pass."""
        if restarting:
            self._set("Restarting", restarting[0]["message"])
        elif role != "Worker" or not self._job.spec.get("enableDynamicWorker"):
            text = f"has failed because {counts['failed']} {role} replica(s) failed."
            await self._end("Failed", f"{self._kind} {self._job.namespace}/{self._name} {text}")


_COUNTED = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}


def _role(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(f"{PREFIX}/replica-type", ""))


def _index(pod: Object) -> int:
    return int(pod["metadata"]["labels"].get(f"{PREFIX}/replica-index", -1))


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]


def _exit_code(pod: Object, container: str) -> int | None:
    for status in _containers(pod):
        if status["name"] == container and "terminated" in status.get("state", {}):
            return int(status["state"]["terminated"]["exitCode"])
    return None
