"""JobSet 0.12, as far as Kubeflow Trainer needs it: batch Jobs that start, fail and end
together."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from hashlib import sha1
from typing import Any

from kftrain_local.api_client import ApiClient, ApiError, core
from kftrain_local.controllers.controller import (
    Children,
    Controller,
    collection,
    is_going,
    set_condition,
)
from kftrain_local.server.resources import BATCH_JOBS, JOB_SETS

Object = dict[str, Any]

_LABELS = "jobset.sigs.k8s.io"
_ATTEMPT = f"{_LABELS}/restart-attempt"
_STEP = f"{_LABELS}/replicatedjob-name"
_AGAIN = 5.0
_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")


class JobSetController(Controller):
    resource = JOB_SETS

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def reconcile(self, found: Object) -> float | None:
        return None if is_going(found) else await _Look(self._api, found).work()


class _Look:
    """One pass over one JobSet."""

    def __init__(self, api: ApiClient, job_set: Object) -> None:
        self._api = api
        self._job_set = job_set
        self._spec = job_set["spec"]
        self._name: str = job_set["metadata"]["name"]
        self._namespace: str = job_set["metadata"]["namespace"]
        self._steps: list[Object] = self._spec["replicatedJobs"]
        self._children = Children(api, job_set, "jobset")
        self._status: Object = copy.deepcopy(job_set.get("status") or {})
        self._conditions: list[Object] = self._status.setdefault("conditions", [])
        self._news: list[tuple[str, str, str]] = []

    async def work(self) -> float | None:
        jobs = await self._children.listed(
            collection(BATCH_JOBS, self._namespace), {f"{_LABELS}/jobset-name": self._name}
        )
        attempt = str(self._status.get("restarts", 0))
        present = [job for job in jobs if job["metadata"]["labels"][_ATTEMPT] == attempt]
        past = [job for job in jobs if job["metadata"]["labels"][_ATTEMPT] != attempt]
        self._count(present)
        try:
            await self._advance(present, past)
        except ApiError as error:
            if error.code != 422:
                raise
            # In that case its status is not stored, so it stays empty.
            await self._children.tell("Warning", "JobCreationFailed", str(error.message))
            return _AGAIN
        path = f"{collection(JOB_SETS, self._namespace)}/{self._name}"
        await self._children.write_status(path, self._status)
        for news in self._news:
            await self._children.tell(*news)
        return None

    async def _advance(self, jobs: list[Object], past: list[Object]) -> None:
        if self._is("Completed") or self._is("Failed"):
            await self._delete(job for job in jobs if not _end_of(job))
            return
        await self._delete(past)
        counts = self._status["replicatedJobsStatus"]
        if sum(each["ready"] + each["succeeded"] for each in counts) == len(self._job_names()):
            self._set("RestartingJobSet", "JobsReady", "all jobs are ready", "Normal", "False")
        failed = [job for job in jobs if _end_of(job) == "Failed"]
        if failed:
            self._fail(min(failed, key=_end_time)["metadata"]["name"])
        elif not self._succeed(jobs):
            await self._start(jobs, past)

    def _count(self, jobs: list[Object]) -> None:
        by_step: dict[str, Object] = {
            step["name"]: {"name": step["name"], **dict.fromkeys(_COUNTS, 0)}
            for step in sorted(self._steps, key=lambda step: str(step["name"]), reverse=True)
        }
        for job in jobs:
            counts = by_step[job["metadata"]["labels"][_STEP]]
            for word in _words(job):
                counts[word] += 1
        self._status["replicatedJobsStatus"] = [*by_step.values()]

    # ---- the end

    def _succeed(self, jobs: list[Object]) -> bool:
        policy = self._spec["successPolicy"]
        wanted = policy.get("targetReplicatedJobs") or [step["name"] for step in self._steps]
        done = [job for job in jobs if _end_of(job) == "Complete"]
        done = [job for job in done if job["metadata"]["labels"][_STEP] in wanted]
        needed = sum(step["replicas"] for step in self._steps if step["name"] in wanted)
        if not done or len(done) < (1 if policy["operator"] == "Any" else needed):
            return False
        text = "jobset completed successfully"
        self._set("Completed", "AllJobsCompleted", text)
        self._set("RestartingJobSet", "JobSetCompleted", text, "Normal", "False")
        self._status["terminalState"] = "Completed"
        return True

    def _fail(self, first: str) -> None:
        policy, restarts = self._spec.get("failurePolicy"), self._status.get("restarts", 0)
        which = f"(first failed job: {first})"
        if policy is not None and restarts < policy.get("maxRestarts", 0):
            self._status |= {"restarts": restarts + 1, "restartsCountTowardsMax": restarts + 1}
            text = f"applying RestartJobSet failure policy action {which}"
            self._news.append(("Warning", "RestartJobSetFailurePolicyAction", text))
            self._set("RestartingJobSet", "DefaultFailurePolicy", text, "Warning")
            return
        reason, why = "FailedJobs", "one or more job failures"
        if policy is not None:
            reason, why = "ReachedMaxRestarts", "reaching max number of restarts"
        self._set("Failed", reason, f"jobset failed due to {why} {which}", "Warning")
        self._set("RestartingJobSet", "JobSetFailed", "jobset failed", "Normal", "False")
        self._status["terminalState"] = "Failed"

    def _is(self, type_: str) -> bool:
        return any(each["type"] == type_ and each["status"] == "True" for each in self._conditions)

    def _set(
        self, type_: str, reason: str, message: str, kind: str = "Normal", value: str = "True"
    ) -> None:
        if set_condition(self._conditions, type_, value, reason, message):
            self._news.append((kind, reason, message))

    # ---- Jobs

    async def _start(self, jobs: list[Object], past: list[Object]) -> None:
        await self._create_service()
        present = {job["metadata"]["name"] for job in (*jobs, *past)}
        for step in self._steps:
            if self._may_start(step):
                for index in range(step["replicas"]):
                    if f"{self._name}-{step['name']}-{index}" not in present:
                        await self._create_job(step, index)
        suspend = bool(self._spec.get("suspend"))
        for job in jobs:
            if not _end_of(job) and bool(job["spec"].get("suspend")) != suspend:
                await self._suspend(job, suspend)
        if suspend:
            self._set("Suspended", "SuspendedJobs", "jobset is suspended")
        else:
            self._set("Suspended", "ResumeJobs", "jobset is resumed", value="False")

    def _may_start(self, step: Object) -> bool:
        counts = {each["name"]: each for each in self._status["replicatedJobsStatus"]}
        replicas = {each["name"]: each["replicas"] for each in self._steps}
        for needed in step.get("dependsOn") or ():
            is_ready = needed["status"] == "Ready"
            words = ("succeeded", "ready", "failed") if is_ready else ("succeeded",)
            if sum(counts[needed["name"]][word] for word in words) != replicas[needed["name"]]:
                return False
        return True

    async def _create_service(self) -> None:
        selector = {f"{_LABELS}/jobset-name": self._name}
        service = {
            "metadata": {"name": self._subdomain()},
            "spec": {
                "clusterIP": "None",
                "selector": selector,
                "publishNotReadyAddresses": self._spec["network"]["publishNotReadyAddresses"],
            },
        }
        await self._children.create(core(self._namespace, "services"), service)

    def _subdomain(self) -> str:
        return str(self._spec["network"].get("subdomain") or self._name)

    async def _create_job(self, step: Object, index: int) -> None:
        job = copy.deepcopy(step["template"])
        name = f"{self._name}-{step['name']}-{index}"
        labels, metadata = self._labels(step, name, index), job.setdefault("metadata", {})
        metadata["name"] = name
        pod = job["spec"]["template"]
        pod["spec"]["subdomain"] = self._subdomain()
        for each in (metadata, pod.setdefault("metadata", {})):
            for key in ("labels", "annotations"):
                each[key] = {**(each.get(key) or {}), **labels}
        pod["metadata"]["labels"][f"{_LABELS}/priority"] = str(pod["spec"].get("priority", 0))
        job["spec"]["suspend"] = bool(self._spec.get("suspend"))
        try:
            await self._children.create(collection(BATCH_JOBS, self._namespace), job)
        except ApiError as error:
            error.message = f'job "{name}" creation failed with error: {error.message}'
            raise

    def _labels(self, step: Object, name: str, index: int) -> dict[str, str]:
        names, group = self._job_names(), [*self._job_names(step["groupName"])]
        labels = {
            "jobset-name": self._name,
            "jobset-uid": self._job_set["metadata"]["uid"],
            "replicatedjob-name": step["name"],
            "restart-attempt": self._status.get("restarts", 0),
            "replicatedjob-replicas": step["replicas"],
            "global-replicas": len(names),
            "job-index": index,
            "job-key": sha1(f"{self._namespace}/{name}".encode()).hexdigest(),
            "job-global-index": names.index(name),
            "group-name": step["groupName"],
            "group-replicas": len(group),
            "job-group-index": group.index(name),
        }
        return {f"{_LABELS}/{key}": str(value) for key, value in labels.items()}

    def _job_names(self, group: str = "") -> list[str]:
        return [
            f"{self._name}-{step['name']}-{index}"
            for step in self._steps
            if group in ("", step["groupName"])
            for index in range(step["replicas"])
        ]

    async def _suspend(self, job: Object, suspend: bool) -> None:
        spec: Object = {"suspend": suspend}
        if not suspend:
            # Kueue writes this while a job waits. It is added to what was there before, as in
            # JobSet.
            by_name = {step["name"]: step for step in self._steps}
            pod = by_name[job["metadata"]["labels"][_STEP]]["template"]["spec"]["template"]
            fields = ("nodeSelector", "tolerations", "schedulingGates")
            kept = {key: pod["spec"][key] for key in fields if pod["spec"].get(key)}
            metadata = pod.get("metadata") or {}
            kinds = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
            spec["template"] = {"metadata": kinds, "spec": kept}
        path = f"{collection(BATCH_JOBS, self._namespace)}/{job['metadata']['name']}"
        await self._api.merge_patch(path, {"spec": spec})

    async def _delete(self, jobs: Iterator[Object] | list[Object]) -> None:
        for job in jobs:
            if not is_going(job):
                path = f"{collection(BATCH_JOBS, self._namespace)}/{job['metadata']['name']}"
                # So a new JobSet of that name has to wait until the pods of the old one have ended.
                await self._children.delete(path, "Foreground")


def _end_condition(job: Object) -> Object:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return dict(condition)
    return {}


def _end_of(job: Object) -> str:
    """Complete, Failed, or "" while it is unfinished."""
    return str(_end_condition(job).get("type", ""))


def _end_time(job: Object) -> str:
    return str(_end_condition(job).get("lastTransitionTime", ""))


def _words(job: Object) -> Iterator[str]:
    """The words by which a Job is counted."""
    if end := _end_of(job):
        yield "succeeded" if end == "Complete" else "failed"
        return
    status, spec = job.get("status") or {}, job["spec"]
    pods = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
    if status.get("succeeded", 0) + status.get("ready", 0) >= pods:
        yield "ready"
    if status.get("active"):
        yield "active"
    if spec.get("suspend"):
        yield "suspended"
