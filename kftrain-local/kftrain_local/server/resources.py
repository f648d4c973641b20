"""The resources that the embedded cluster serves, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kftrain_local.kinds import BATCH_JOB, KINDS, JobKind
from kftrain_local.times import seconds_since

Object = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Resource:
    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    has_status: bool = False
    """Whether the status is a subresource: then a write to the object does not change it, and the
    other way round."""
    short: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Fields that a field selector may name, besides name and namespace."""
    job: JobKind | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name in errors."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def full_kind(self) -> str:
        """The name in errors about the content of an object."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def counts_generations(self) -> bool:
        return self.has_status and self.kind not in ("Namespace", "Node")

    @property
    def is_custom(self) -> bool:
        return self.group.endswith("kubeflow.org") or self.group == "jobset.x-k8s.io"


def _of_job(job: JobKind) -> Resource:
    return Resource(job.kind, job.plural, job.group, job.version, has_status=True, job=job)


NAMESPACES = Resource("Namespace", "namespaces", namespaced=False, has_status=True, short=("ns",))
NODES = Resource("Node", "nodes", namespaced=False, has_status=True, short=("no",))
_POD_FIELDS = (
    *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    *("status.phase", "status.podIP"),
)
PODS = Resource("Pod", "pods", has_status=True, short=("po",), fields=_POD_FIELDS)
SERVICES = Resource("Service", "services", short=("svc",))
CONFIG_MAPS = Resource("ConfigMap", "configmaps", short=("cm",))
SECRETS = Resource("Secret", "secrets")
SERVICE_ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", short=("sa",))
_ABOUT = tuple(f"involvedObject.{field}" for field in ("kind", "name", "namespace", "uid"))
_EVENT_FIELDS = (*_ABOUT, "reason", "type", "reportingComponent")
EVENTS = Resource("Event", "events", short=("ev",), fields=_EVENT_FIELDS)
LEASES = Resource("Lease", "leases", "coordination.k8s.io")
REVIEWS = Resource(
    "SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io", namespaced=False
)
JOBS = tuple(_of_job(job) for job in KINDS)
BATCH_JOBS = next(each for each in JOBS if each.job is BATCH_JOB)
_TRAINER = ("trainer.kubeflow.org", "v1alpha1")
CLUSTER_RUNTIMES = Resource(
    "ClusterTrainingRuntime", "clustertrainingruntimes", *_TRAINER, namespaced=False
)
RUNTIMES = Resource("TrainingRuntime", "trainingruntimes", *_TRAINER)
JOB_SETS = Resource("JobSet", "jobsets", "jobset.x-k8s.io", "v1alpha2", has_status=True)

RESOURCES = (
    *(NAMESPACES, NODES, PODS, SERVICES, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, EVENTS),
    *(LEASES, REVIEWS, *JOBS, CLUSTER_RUNTIMES, RUNTIMES, JOB_SETS),
)
BY_PLACE: Mapping[tuple[str, str], Resource] = {
    (resource.api_version, resource.plural): resource for resource in RESOURCES
}


# ----- the output of `kubectl get`

Column = tuple[str, Callable[[Object], object]]


def _age(found: Object) -> str:
    created = found["metadata"].get("creationTimestamp")
    if not created:
        return "<unknown>"
    seconds = int(seconds_since(created))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _status(found: Object) -> Object:
    return found.get("status") or {}


def _containers(pod: Object) -> list[Object]:
    return _status(pod).get("containerStatuses") or []


def _pod_status(pod: Object) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    for container in _containers(pod):
        for state in ("waiting", "terminated"):
            if reason := container.get("state", {}).get(state, {}).get("reason"):
                return str(reason)
    return str(_status(pod).get("reason") or _status(pod).get("phase") or "Pending")


def _ready(pod: Object) -> str:
    ready = sum(bool(container.get("ready")) for container in _containers(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _restarts(pod: Object) -> str:
    return str(sum(container.get("restartCount", 0) for container in _containers(pod)))


def _last_condition(job: Object) -> str:
    true = [each for each in _status(job).get("conditions") or () if each.get("status") == "True"]
    return str(true[-1]["type"]) if true else ""


def _completions(job: Object) -> str:
    return f"{_status(job).get('succeeded', 0)}/{job['spec'].get('completions', 1)}"


def _about(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_NAME: Column = ("Name", lambda found: found["metadata"]["name"])
_AGE: Column = ("Age", _age)
_COLUMNS: dict[Resource, tuple[Column, ...]] = {
    PODS: (
        ("Ready", _ready),
        ("Status", _pod_status),
        ("Restarts", _restarts),
        _AGE,
        ("Node", lambda pod: pod["spec"].get("nodeName", "<none>")),
    ),
    NODES: (("Status", lambda _: "Ready"), _AGE),
    NAMESPACES: (("Status", lambda found: _status(found).get("phase", "")), _AGE),
    EVENTS: (
        _AGE,
        ("Type", lambda event: event.get("type", "")),
        ("Reason", lambda event: event.get("reason", "")),
        ("Object", _about),
        ("Message", lambda event: event.get("message", "")),
    ),
    **{job: (("State", _last_condition), _AGE) for job in JOBS},
    BATCH_JOBS: (
        ("Status", lambda job: _last_condition(job) or "Running"),
        ("Completions", _completions),
        _AGE,
    ),
}


_WIDE = ("Node",)
"""Only in the wide output."""


def _shown(cell: Callable[[Object], object], found: Object) -> object:
    """Statuses and events may contain anything."""
    try:
        return cell(found)
    except (AttributeError, LookupError, TypeError, ValueError):
        return "<invalid>"


def table(resource: Resource, version: str, objects: list[Object]) -> Object:
    """A list as kubectl requests it for people."""
    columns = (_NAME, *_COLUMNS.get(resource, (_AGE,)))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [
            {"name": name, "type": "string", "priority": int(name in _WIDE)} for name, _ in columns
        ],
        "rows": [
            {
                "cells": [_shown(cell, found) for _, cell in columns],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": found["metadata"],
                },
            }
            for found in objects
        ],
    }


_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def discovery(path: str) -> Object | None:
    """The answer to a discovery request; None if the path is not served."""
    groups = {group["name"]: group for group in _groups()}
    fixed: dict[str, Object] = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "local"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*groups.values()]},
    }
    if path in fixed:
        return fixed[path]
    if group := groups.get(path.removeprefix("/apis/")):
        return {"kind": "APIGroup", "apiVersion": "v1", **group}
    roots = {each: f"/apis/{each.api_version}" if each.group else "/api/v1" for each in RESOURCES}
    # A kind that cannot be created is not listed, so that `doctor` and kubectl say so first.
    served = [
        each for each, root in roots.items() if root == path and (not each.job or each.job.runs)
    ]
    if not served:
        return None
    rows = [row for each in served for row in _rows(each)]
    head = {"kind": "APIResourceList", "apiVersion": "v1"}
    return {**head, "groupVersion": served[0].api_version, "resources": rows}


def _rows(resource: Resource) -> Iterator[Object]:
    row = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create"] if resource == REVIEWS else [*_VERBS],
    }
    everyday = resource in (PODS, SERVICES) or resource.job is not None
    yield {
        **row,
        "shortNames": [*resource.short],
        "categories": ["all"] if everyday else [],
    }
    if resource.has_status:
        yield {**row, "name": f"{resource.plural}/status", "verbs": ["get", "patch", "update"]}
    if resource == PODS:
        yield {**row, "name": "pods/log", "verbs": ["get"]}
        of_eviction = {"group": "policy", "version": "v1", "kind": "Eviction"}
        yield {**row, "name": "pods/eviction", **of_eviction, "verbs": ["create"]}


def _groups() -> Iterator[Object]:
    """Stable versions come first, since clients should prefer them."""
    served = {(each.group, each.version) for each in RESOURCES if each.group}
    for group in sorted({group for group, _ in served}):
        versions = sorted((v for g, v in served if g == group), key=lambda v: (len(v), v))
        entries = [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]
        yield {"name": group, "versions": entries, "preferredVersion": entries[0]}
