"""The calls of the Kubernetes API that this package makes, as values. Nothing is sent here.
Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import KUEUE_GROUP, JobKind

MANAGER = "airflow-kftrain"
"""The name in `managedFields` under which our changes appear."""

ALL_NAMESPACES = "*"
"""Only for lists."""

_LONGEST_TAIL = 16 << 20
_NAME = re.compile("[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_QUERY: Mapping[str, str] = MappingProxyType({})
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"


class OtherKind(NamedTuple):
    """A kind that is no kind of job. It has the same fields as JobKind."""

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    operator: str = ""
    """Which operator has to be installed; "" for a kind that every cluster has."""


POD = OtherKind("Pod", "pods")
EVENT = OtherKind("Event", "events")
WORKLOAD = OtherKind("Workload", "workloads", KUEUE_GROUP, "v1beta2", "Kueue")
"""Its fields that we read are the same in both versions."""
WORKLOAD_VERSIONS = (WORKLOAD.version, "v1beta1")
"""Those that we can read, the newest first."""

AnyKind = JobKind | OtherKind


class Call(NamedTuple):
    """One request."""

    method: str
    path: str
    doing: str
    """For errors, after "cannot": "create PyTorchJob ml/train-1"."""
    query: Mapping[str, str] = _NO_QUERY
    body: Any = None
    content_type: str = _JSON
    last_bytes: int | None = None
    """If set, only so many bytes at the end of the response are kept."""
    kind: str = ""
    """The kind that may not be served, and the operator that serves it."""
    operator: str = ""
    verb: str = "get"
    """That of Kubernetes, as in a Role."""


class LogQuery(NamedTuple):
    """Which part of a container's log to read."""

    namespace: str
    pod: str
    container: str
    previous: bool = False
    """The log of the container before its last restart."""
    tail_lines: int | None = None
    limit_bytes: int | None = None
    """Keeps the first bytes, or with `tail_lines` the last ones."""
    since: datetime | None = None
    timestamps: bool = False
    follow: bool = False


def create_job(kind: JobKind, manifest: Mapping[str, Any]) -> Call:
    """Strict: the cluster rejects unknown fields instead of dropping them. A manifest without a
    name needs a `generateName`."""
    metadata = manifest["metadata"]
    namespace, name = metadata["namespace"], metadata.get("name")
    query = {"fieldValidation": "Strict", "fieldManager": MANAGER}
    return _call("create", kind, namespace, name, query=query, body=dict(manifest))


def get_job(kind: JobKind, namespace: str, name: str) -> Call:
    return _call("get", kind, namespace, name)


def patch_job(kind: JobKind, namespace: str, name: str, patch: Mapping[str, Any]) -> Call:
    query = {"fieldValidation": "Strict", "fieldManager": MANAGER}
    call = _call("patch", kind, namespace, name, query=query, body=dict(patch))
    return call._replace(content_type=_MERGE_PATCH)


def delete_job(
    kind: JobKind,
    namespace: str,
    name: str,
    *,
    uid: str,
    resource_version: str | None = None,
    foreground: bool = False,
) -> Call:
    """All conditions are in the body: if there is a body, the server ignores the query."""
    preconditions = {"uid": uid}
    if resource_version:
        preconditions["resourceVersion"] = resource_version
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": preconditions,
        "propagationPolicy": "Foreground" if foreground and not kind.recreates else "Background",
    }
    return _call("delete", kind, namespace, name, body=options)


def list_page(
    kind: AnyKind,
    namespace: str,
    selector: str = "",
    field_selector: str = "",
    *,
    limit: int,
    token: str = "",
) -> Call:
    """One page of a list. `token` is the continue token of the page before."""
    query = _selection(selector, field_selector) | {"limit": str(limit)}
    if token:
        query["continue"] = token
    return _call("list", kind, namespace, query=query)


def watch(
    kind: AnyKind,
    namespace: str,
    selector: str,
    field_selector: str,
    resource_version: str,
    seconds: float,
) -> Call:
    query = _selection(selector, field_selector) | {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(max(int(seconds), 1)),
    }
    return _call("watch", kind, namespace, query=query)


def read_log(asked: LogQuery) -> Call:
    query = {"container": asked.container}
    if asked.previous:
        query["previous"] = "true"
    if asked.follow:
        query["follow"] = "true"
    if asked.timestamps:
        query["timestamps"] = "true"
    limit = asked.limit_bytes
    if asked.tail_lines is not None:
        # The server would cut the end of a tail, which is the part that is wanted.
        query["tailLines"] = str(asked.tail_lines)
        limit = _LONGEST_TAIL
    if limit is not None:
        query["limitBytes"] = str(limit)
    if asked.since is not None:
        query["sinceTime"] = f"{asked.since.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}"
    call = _call("get", POD, asked.namespace, asked.pod, query=query)
    return call._replace(
        path=f"{call.path}/log",
        doing=f"read the log of pod {asked.namespace}/{asked.pod}",
        last_bytes=asked.limit_bytes,
    )


def list_events(namespace: str, about: str, limit: int) -> Call:
    """The events of one object, by its uid or its name."""
    field = "uid" if _UID.fullmatch(about) else "name"
    query = {"fieldSelector": f"involvedObject.{field}={about}", "limit": str(limit)}
    return _call("list", EVENT, namespace, query=query)


def served_kinds(group: str, version: str) -> Call:
    """The kinds that the cluster serves in a version of a group; 404 if there are none."""
    return Call("GET", _root(group, version), f"ask for the kinds of {group}/{version}".lstrip("/"))


def get_version() -> Call:
    return Call("GET", "/version", "ask for the version of the cluster")


def review_access(attributes: Mapping[str, str]) -> Call:
    """Asks whether we have a permission: verb, group, resource, subresource, namespace."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": dict(attributes)},
    }
    path = f"{_root('authorization.k8s.io', 'v1')}/selfsubjectaccessreviews"
    return Call("POST", path, "check our permissions", body=review, verb="create")


def served_versions(group: str) -> Call:
    """The versions of a group; 404 if the cluster does not know the group."""
    return Call("GET", f"/apis/{group}", f"ask for the versions of {group}")


def get_namespace(name: str) -> Call:
    _check_name("namespace", name)
    return Call("GET", f"/api/v1/namespaces/{name}", f"get namespace {name}")


def get_service(namespace: str, name: str) -> Call:
    return _call("get", OtherKind("Service", "services"), namespace, name)


def list_webhooks(plural: str) -> Call:
    path = f"{_root('admissionregistration.k8s.io', 'v1')}/{plural}"
    return Call("GET", path, f"list {plural}", query={"limit": "500"}, verb="list")


_METHODS = {
    "create": "POST",
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "patch": "PATCH",
    "delete": "DELETE",
}


def _call(
    verb: str,
    kind: AnyKind,
    namespace: str,
    name: str | None = None,
    *,
    query: Mapping[str, str] = _NO_QUERY,
    body: Any = None,
) -> Call:
    """Without a name it is about all objects of the kind."""
    root, where = _root(kind.group, kind.version), f"namespace {namespace}"
    if namespace == ALL_NAMESPACES and name is None:
        path, where = f"{root}/{kind.plural}", "all namespaces"
    else:
        _check_name("namespace", namespace)
        path = f"{root}/namespaces/{namespace}/{kind.plural}"
    what = f"{kind.kind}s in {where}"
    if name is not None:
        _check_name("name", name)
        path += "" if verb == "create" else f"/{name}"
        what = f"{kind.kind} {namespace}/{name}"
    return Call(
        method=_METHODS[verb],
        path=path,
        doing=f"{verb} {what}",
        query=query,
        body=body,
        kind=f"{kind.kind} ({kind.group}/{kind.version})" if kind.group else kind.kind,
        operator=kind.operator,
        verb=verb,
    )


def _check_name(field: str, value: str) -> None:
    """Names come from templates, and "" or ".." in a path would lead elsewhere."""
    if not _NAME.fullmatch(value):
        advice = (
            "Use lower-case letters, digits, '-' and '.', starting and ending with a letter or "
            "digit."
        )
        raise InvalidSpec(field, "is not a valid name", value=value, advice=advice)


def _root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _selection(selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": selector, "fieldSelector": field_selector}
    return {key: value for key, value in given.items() if value}
