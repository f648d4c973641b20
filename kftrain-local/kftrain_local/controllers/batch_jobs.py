"""Job of batch/v1, like Kubernetes' own controller.

When a pod has ended, its uid is first recorded in the status, then the pod loses the finalizer that
tracks it, and then it is counted in the status. So each pod is counted once, whatever happens in
between. Every write wakes the controller again, and each pass does everything that is possible at
once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import islice
from time import monotonic

from kftrain_local.api_client import ApiClient, ApiError, core
from kftrain_local.controllers.controller import (
    Children,
    Controller,
    Object,
    collection,
    has_ended,
    is_going,
    phase_of,
    set_condition,
)
from kftrain_local.server.resources import BATCH_JOBS
from kftrain_local.times import now_text, seconds_since

_LABEL = "batch.kubernetes.io/job-name"
_INDEX = "batch.kubernetes.io/job-completion-index"
_TRACKING = "batch.kubernetes.io/job-tracking"
_OURS = (None, "kubernetes.io/job-controller")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 10.0, 600.0
_TIME_TO_BE_SEEN = 1.5  # set by the creator of the Job, next to a TTL of 0; times have no fractions

_Failures = dict[str, float]
"""Pods that have failed since the last one succeeded: uid -> when."""


class BatchJobController(Controller):
    resource = BATCH_JOBS

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._failures: dict[tuple[str, str], _Failures] = {}

    async def reconcile(self, found: Object) -> float | None:
        metadata = found["metadata"]
        if found["spec"].get("managedBy") not in _OURS:
            return None
        pods = await self._pods(metadata["namespace"], metadata["name"], metadata["uid"])
        failures = self._failures.setdefault((metadata["namespace"], metadata["name"]), {})
        return await _Look(self._api, found, pods, failures).work()

    async def gone(self, namespace: str, name: str) -> None:
        self._failures.pop((namespace, name), None)
        await self._pods(namespace, name, "")

    async def _pods(self, namespace: str, name: str, uid: str) -> list[Object]:
        """The pods of the job. Pods of an earlier job of the same name are released."""
        pods, _ = await self._api.list(core(namespace, "pods"), labelSelector=f"{_LABEL}={name}")
        own = [pod for pod in pods if uid in _owners(pod)]
        await _release(self._api, [pod for pod in pods if pod not in own])
        return own


class _Look:
    """One pass over one job."""

    def __init__(
        self, api: ApiClient, job: Object, pods: list[Object], failures: _Failures
    ) -> None:
        self._api = api
        self._job = job
        self._spec: Object = job["spec"]
        self._failures = failures
        self._name: str = job["metadata"]["name"]
        self._namespace: str = job["metadata"]["namespace"]
        self._path = f"{collection(BATCH_JOBS, self._namespace)}/{self._name}"
        self._children = Children(api, job, "job-controller")
        self._pods = pods
        self._active = [pod for pod in pods if not is_going(pod) and not has_ended(pod)]
        self._terminating = [pod for pod in pods if is_going(pod) and not has_ended(pod)]
        self._is_indexed = self._spec["completionMode"] == "Indexed"
        self._is_patient = (
            self._spec["podReplacementPolicy"] == "Failed" or "podFailurePolicy" in self._spec
        )
        """A pod that is being deleted is replaced when it has ended, not before."""
        self._status: Object = copy.deepcopy(job.get("status") or {})
        self._conditions: list[Object] = self._status.setdefault("conditions", [])
        self._uncounted: dict[str, list[str]] = self._status.setdefault(
            "uncountedTerminatedPods", {}
        )
        self._done = set(_numbers(self._status.get("completedIndexes", "")))
        self._news: list[tuple[str, str, str]] = []

    async def work(self) -> float | None:
        if self._condition("Complete") or self._condition("Failed"):
            await _release(self._api, self._pods)
            return await self._live_on()
        delays: list[float] = []
        self._count()
        verdict = self._verdict()
        if verdict is not None:
            self._note(self._pods if verdict["type"] == "FailureTarget" else ())
            await self._delete(self._active)
        elif not is_going(self._job):
            delays = [*await self._manage(), *self._time_left()]
            verdict = self._success()
        self._finish(verdict)
        await self._write()
        is_over = verdict is not None or is_going(self._job)
        await _release(self._api, [pod for pod in self._pods if is_over or self._counts(pod)])
        return min(delays, default=None)

    # ---- counting

    def _count(self) -> None:
        tracked = {pod["metadata"]["uid"] for pod in self._pods if _is_tracked(pod)}
        for word, uids in [*self._uncounted.items()]:
            left = [uid for uid in uids if uid in tracked]
            if len(left) < len(uids):
                self._status[word] = self._status.get(word, 0) + len(uids) - len(left)
            self._uncounted[word] = left
        self._note(pod for pod in self._pods if self._counts(pod))
        if self._is_indexed:
            self._done.intersection_update(range(self._spec["completions"]))
            self._status["completedIndexes"] = _ranges(sorted(self._done))
            self._status["succeeded"] = len(self._done)

    def _counts(self, pod: Object) -> bool:
        """Whether the pod has ended as far as the job is concerned, even if its node does not say
        so."""
        return has_ended(pod) or (is_going(pod) and not self._is_patient)

    def _note(self, pods: Iterable[Object]) -> None:
        for pod in filter(_is_tracked, pods):
            uid, has_succeeded = pod["metadata"]["uid"], phase_of(pod) == "Succeeded"
            if not has_succeeded:
                self._failures.setdefault(uid, monotonic())
            else:
                self._failures.clear()
            if has_succeeded and self._is_indexed:
                self._done.add(_index(pod))
            elif has_succeeded or self._rule(pod)[0] != "Ignore":
                noted = self._uncounted.setdefault("succeeded" if has_succeeded else "failed", [])
                noted += [uid] if uid not in noted else []

    def _total(self, word: str) -> int:
        return int(self._status.get(word, 0)) + len(self._uncounted.get(word, ()))

    # ---- the end

    def _verdict(self) -> Object | None:
        for type_ in ("SuccessCriteriaMet", "FailureTarget"):
            if found := self._condition(type_):
                return found
        for pod in self._pods:
            action, message = self._rule(pod) if self._counts(pod) else ("", "")
            if action == "FailJob":
                return self._set("FailureTarget", "PodFailurePolicy", message)
        if self._total("failed") > self._spec["backoffLimit"] or self._restarts_too_often():
            text = "Job has reached the specified backoff limit"
            return self._set("FailureTarget", "BackoffLimitExceeded", text)
        if any(left <= 0 for left in self._time_left()):
            text = "Job was active longer than specified deadline"
            return self._set("FailureTarget", "DeadlineExceeded", text)
        return None

    def _rule(self, pod: Object) -> tuple[str, str]:
        """The action of the pod failure policy for a pod, and why; empty if there is none."""
        name = f"{self._namespace}/{pod['metadata']['name']}"
        for number, rule in enumerate((self._spec.get("podFailurePolicy") or {}).get("rules", ())):
            action = str(rule["action"])
            if why := _match(pod, rule, name):
                return action, f"{why} matching {action} rule at index {number}"
        return "", ""

    def _restarts_too_often(self) -> bool:
        if self._spec["template"]["spec"]["restartPolicy"] != "OnFailure":
            return False
        restarts = sum(
            container.get("restartCount", 0)
            for pod in self._pods
            if not has_ended(pod)
            for container in _containers(pod)
        )
        return bool(restarts >= max(self._spec["backoffLimit"], 1))

    def _time_left(self) -> Iterator[float]:
        seconds, started = self._spec.get("activeDeadlineSeconds"), self._status.get("startTime")
        if seconds is not None and started and not self._spec["suspend"]:
            yield seconds - seconds_since(started)

    def _success(self) -> Object | None:
        wanted = self._spec.get("completions", 1)
        if self._active or self._total("succeeded") < wanted:
            return None
        text = "Reached expected number of succeeded pods"
        return self._set("SuccessCriteriaMet", "CompletionsReached", text)

    def _finish(self, verdict: Object | None) -> None:
        """Finishes the job when all pods are counted and none is being deleted."""
        if verdict is None or any(self._uncounted.values()) or self._terminating:
            return
        if verdict["type"] == "SuccessCriteriaMet":
            self._set("Complete", verdict["reason"], verdict["message"])
            self._status["completionTime"] = now_text()
            self._news.append(("Normal", "Completed", "Job completed"))
        else:
            self._set("Failed", verdict["reason"], verdict["message"])
            self._news.append(("Warning", verdict["reason"], verdict["message"]))
        self._failures.clear()

    async def _live_on(self) -> float | None:
        seconds = self._spec.get("ttlSecondsAfterFinished")
        end = self._condition("Complete") or self._condition("Failed")
        if seconds is None or end is None or is_going(self._job):
            return None
        left = float(seconds - seconds_since(end["lastTransitionTime"])) + _TIME_TO_BE_SEEN
        if left <= 0:
            await self._children.delete(self._path, policy="Foreground")
        return left if left > 0 else None

    # ---- pods

    async def _manage(self) -> list[float]:
        """Creates or deletes pods. Returns the seconds until the next ones may be created."""
        if self._spec["suspend"]:
            if not self._condition("Suspended"):
                self._set("Suspended", "JobSuspended", "Job suspended")
                self._status.pop("startTime", None)
                self._news.append(("Normal", "Suspended", "Job suspended"))
            await _release(self._api, self._active)
            await self._delete(self._active)
            return []
        if self._condition("Suspended"):
            self._set("Suspended", "JobResumed", "Job resumed", "False")
            self._status["startTime"] = now_text()
            self._news.append(("Normal", "Resumed", "Job resumed"))
        self._status.setdefault("startTime", now_text())
        wanted = self._wanted()
        surplus = self._surplus(wanted)
        await _release(self._api, surplus)
        await self._delete(surplus)
        missing = wanted - len(self._active)
        missing -= len(self._terminating) if self._is_patient else 0
        pause = self._pause() if missing > 0 else 0
        if pause > 0:
            return [pause]
        if missing > 0 and await self._is_deleted_by_now():
            return []
        for index in self._free_indexes(missing):
            await self._create(index)
        return []

    async def _is_deleted_by_now(self) -> bool:
        """If the job was deleted and its pods orphaned, they only seem to be missing in an older
        version of the job."""
        job = await self._api.find(self._path)
        return job is None or is_going(job)

    def _wanted(self) -> int:
        completions, succeeded = self._spec.get("completions"), self._total("succeeded")
        if completions is None:
            return len(self._active) if succeeded else int(self._spec["parallelism"])
        return max(min(int(self._spec["parallelism"]), int(completions) - succeeded), 0)

    def _surplus(self, wanted: int) -> list[Object]:
        """Pods of indexes that no longer exist, then those that have come least far."""
        far = sorted(self._active, key=lambda pod: (phase_of(pod) == "Running", _is_ready(pod)))
        # A pod without an index has -1, so it is never too high.
        beyond = [pod for pod in far if _index(pod) >= self._spec.get("completions", 0)]
        within = [pod for pod in far if pod not in beyond]
        return [*beyond, *within[: max(len(within) - wanted, 0)]]

    def _pause(self) -> float:
        if not self._failures:
            return 0
        pause: float = min(_SHORTEST_PAUSE * 2 ** (len(self._failures) - 1), _LONGEST_PAUSE)
        return pause - (monotonic() - max(self._failures.values()))

    def _free_indexes(self, count: int) -> list[int]:
        """The indexes without a pod; -1 for each missing pod of a job without indexes."""
        if not self._is_indexed:
            return [-1] * count
        taken = self._done | {_index(pod) for pod in self._active}
        taken |= {_index(pod) for pod in self._terminating if self._is_patient}
        free = (index for index in range(self._spec["completions"]) if index not in taken)
        return [*islice(free, max(count, 0))]

    async def _create(self, index: int) -> None:
        template = copy.deepcopy(self._spec["template"])
        start, metadata, spec = f"{self._name}-", template["metadata"], template["spec"]
        if index >= 0:
            end = f"-{index}-"
            start = f"{self._name[: 58 - len(end)]}{end}"
            for key in ("labels", "annotations"):
                metadata[key] = {**(metadata.get(key) or {}), _INDEX: str(index)}
            spec["hostname"] = f"{self._name}-{index}"
            _add_index_variable(spec)
        kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        own = {"generateName": start, **kept, "finalizers": [_TRACKING]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec}
        made = await self._children.create(core(self._namespace, "pods"), body)
        if made is not None:
            self._active.append(made)
            text = f"Created pod: {made['metadata']['name']}"
            await self._children.tell("Normal", "SuccessfulCreate", text)

    async def _delete(self, pods: list[Object]) -> None:
        for pod in [*pods]:
            name = pod["metadata"]["name"]
            if await self._children.delete(core(self._namespace, "pods", name)):
                await self._children.tell("Normal", "SuccessfulDelete", f"Deleted pod: {name}")
            self._active.remove(pod)
            self._terminating.append(pod)

    # ---- the status

    async def _write(self) -> None:
        numbers = {
            "active": len(self._active),
            "ready": sum(map(_is_ready, self._active)),
            "terminating": len(self._terminating),
        }
        noted = {word: uids for word, uids in self._uncounted.items() if uids}
        self._status = {**self._status, **numbers, "uncountedTerminatedPods": noted}
        for word in ("active", "succeeded", "failed", "completedIndexes", "conditions"):
            if not self._status.get(word):
                self._status.pop(word, None)
        await self._children.write_status(self._path, self._status)
        for news in self._news:
            await self._children.tell(*news)

    def _condition(self, type_: str) -> Object | None:
        true = (each for each in self._conditions if each["status"] == "True")
        return next((each for each in true if each["type"] == type_), None)

    def _set(self, type_: str, reason: str, message: str, value: str = "True") -> Object:
        set_condition(self._conditions, type_, value, reason, message)
        condition = next(each for each in self._conditions if each["type"] == type_)
        condition["lastProbeTime"] = condition["lastTransitionTime"]
        return condition


async def _release(api: ApiClient, pods: Iterable[Object]) -> None:
    for metadata in (pod["metadata"] for pod in pods if _is_tracked(pod)):
        path = core(metadata["namespace"], "pods", metadata["name"])
        left = [each for each in metadata["finalizers"] if each != _TRACKING]
        change = {"finalizers": left, "resourceVersion": metadata["resourceVersion"]}
        try:
            await api.merge_patch(path, {"metadata": change})
        except ApiError as error:
            if error.code not in (404, 409):  # it is gone, or its change triggers the next pass
                raise


def _owners(pod: Object) -> list[str]:
    return [each["uid"] for each in pod["metadata"].get("ownerReferences") or ()]


def _is_tracked(pod: Object) -> bool:
    return _TRACKING in (pod["metadata"].get("finalizers") or ())


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(_INDEX, -1))


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    found = (status.get("containerStatuses"), status.get("initContainerStatuses"))
    return [container for group in found for container in group or ()]


def _match(pod: Object, rule: Object, name: str) -> str:
    """Why this rule of a pod failure policy matches the pod; empty if it does not."""
    if codes := rule.get("onExitCodes"):
        for container in _containers(pod):
            code = container["state"].get("terminated", {}).get("exitCode", 0)
            is_named = codes.get("containerName") in (None, container["name"])
            if code and is_named and (code in codes["values"]) == (codes["operator"] == "In"):
                return f"Container {container['name']} for pod {name} failed with exit code {code}"
        return ""
    wanted = [
        (each["type"], each.get("status", "True")) for each in rule.get("onPodConditions") or ()
    ]
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if (condition["type"], condition["status"]) in wanted:
            return f"Pod {name} has condition {condition['type']}"
    return ""


def _add_index_variable(spec: Object) -> None:
    field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{_INDEX}']"}
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        env = container.setdefault("env", [])
        if all(each["name"] != variable["name"] for each in env):
            env.append(variable)


def _numbers(text: str) -> Iterator[int]:
    """The numbers in a list such as "0,2-4"."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _ranges(numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ",".join(
        f"{each[0]}-{each[-1]}" if len(each) > 2 else ",".join(map(str, each)) for each in ranges
    )
