"""TrainJob, like Kubeflow Trainer 2.3: a JobSet does the work."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from kftrain_local.api_client import ApiClient, ApiError, core
from kftrain_local.controllers.controller import (
    Children,
    Controller,
    collection,
    is_going,
    set_condition,
)
from kftrain_local.kinds import TRAIN_JOB
from kftrain_local.server.resources import (
    CLUSTER_RUNTIMES,
    JOB_SETS,
    JOBS,
    RUNTIMES,
)
from kftrain_local.server.train_admission import MANAGERS
from kftrain_local.server.train_runtimes import Plan
from kftrain_local.times import seconds_since

Object = dict[str, Any]

_DEADLINE = "DeadlineExceeded"
_AGAIN = 5.0
_COUNTS = ("active", "failed", "name", "ready", "succeeded", "suspended")


class TrainJobController(Controller):
    resource = next(resource for resource in JOBS if resource.job is TRAIN_JOB)

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def reconcile(self, found: Object) -> float | None:
        if is_going(found) or found["spec"]["managedBy"] != MANAGERS[0]:
            return None
        return await _Look(self._api, found).work()


class _Look:
    """One pass over one job."""

    def __init__(self, api: ApiClient, job: Object) -> None:
        self._api = api
        self._job = job
        self._spec = job["spec"]
        self._name: str = job["metadata"]["name"]
        self._namespace: str = job["metadata"]["namespace"]
        self._children = Children(api, job, "trainer-trainjob-controller")
        self._status: Object = copy.deepcopy(job.get("status") or {})
        # A failure is read from the JobSet each time: without the JobSet the job is no longer
        # failed.
        self._conditions: list[Object] = [
            each
            for each in self._status.get("conditions") or ()
            if each["type"] != "Failed" or each["reason"] == _DEADLINE
        ]
        self._job_set_path = f"{collection(JOB_SETS, self._namespace)}/{self._name}"

    async def work(self) -> float | None:
        self._tell_suspension()
        job_set = await self._api.find(self._job_set_path)
        delay: float | None = None
        try:
            if not self._is_over() and not self._runs(job_set):
                job_set = await self._make(job_set)
        except ApiError as error:
            if error.code == 409:
                raise
            text = f"TrainJob resources reconciliation failed: {error.message}"
            await self._children.tell("Warning", "TrainJobResourcesCreationFailed", text)
            delay = _AGAIN
        if job_set is not None:
            self._read(job_set)
        left = await self._keep_deadline()
        self._status.pop("conditions", None)
        if self._conditions:
            self._status["conditions"] = self._conditions
        path = f"{collection(TrainJobController.resource, self._namespace)}/{self._name}"
        await self._children.write_status(path, self._status)
        return min(filter(None, (delay, left)), default=None)

    def _is_over(self) -> bool:
        return any(
            each["type"] in ("Complete", "Failed") and each["status"] == "True"
            for each in self._conditions
        )

    # ---- the objects of a job

    def _runs(self, job_set: Object | None) -> bool:
        """Whether there is a JobSet that is not suspended: it is not changed."""
        suspended = self._spec.get("suspend") or (job_set and job_set["spec"].get("suspend"))
        return job_set is not None and not suspended

    async def _make(self, found: Object | None) -> Object | None:
        """Creates the JobSet."""
        plan = Plan(self._job, await self._runtime())
        for plural, body in plan.of_mpi():
            await self._children.create(core(self._namespace, plural), body)
        wanted = plan.job_set()
        if found is None:
            return await self._children.create(collection(JOB_SETS, self._namespace), wanted)
        return await self._api.merge_patch(self._job_set_path, {"spec": wanted["spec"]})

    async def _runtime(self) -> Object:
        """The runtime as it was at the first pass."""
        name = f"{self._name}-runtime-snapshot"
        path = core(self._namespace, "configmaps")
        if snapshot := await self._api.find(f"{path}/{name}"):
            return dict(yaml.safe_load(snapshot["data"]["runtime"]))
        reference = self._spec["runtimeRef"]
        place = collection(CLUSTER_RUNTIMES)
        if reference["kind"] == RUNTIMES.kind:
            place = collection(RUNTIMES, self._namespace)
        runtime = await self._api.get(f"{place}/{reference['name']}")
        body = {"metadata": {"name": name}, "data": {"runtime": yaml.safe_dump(runtime)}}
        await self._children.create(path, body)
        return runtime

    # ---- its status

    def _tell_suspension(self) -> None:
        if self._spec.get("suspend"):
            self._set("Suspended", "Suspended", "TrainJob is suspended")
        else:
            self._set("Suspended", "Resumed", "TrainJob is resumed", "False")

    def _read(self, job_set: Object) -> None:
        status = job_set.get("status") or {}
        for condition in status.get("conditions") or ():
            type_ = {"Completed": "Complete", "Failed": "Failed"}.get(condition["type"])
            if type_ and condition["status"] == "True":
                reason, message = condition["reason"], condition["message"]
                self._set(type_, reason, message, moment=condition["lastTransitionTime"])
        if steps := status.get("replicatedJobsStatus"):
            self._status["jobsStatus"] = [{key: step[key] for key in _COUNTS} for step in steps]
        else:
            self._status.pop("jobsStatus", None)

    def _set(
        self, type_: str, reason: str, message: str, value: str = "True", moment: str = ""
    ) -> None:
        set_condition(self._conditions, type_, value, reason, message, moment)

    async def _keep_deadline(self) -> float | None:
        """Returns the seconds that are left."""
        seconds = self._spec.get("activeDeadlineSeconds")
        if seconds is None or self._is_over() or self._spec.get("suspend"):
            return None
        resumed = [each for each in self._conditions if each["type"] == "Suspended"]
        start = self._job["metadata"]["creationTimestamp"]
        if resumed:
            start = resumed[0]["lastTransitionTime"]
        left = float(seconds) - seconds_since(start)
        if left > 0:
            return left
        self._set("Failed", _DEADLINE, "TrainJob exceeded its active deadline")
        await self._children.delete(self._job_set_path)
        return None
