"""The calls of the Kubernetes API that this package makes, as values: nothing is sent. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import JobKind

MANAGER = "airflow-kftrain"
"""Who changed a field, as `managedFields` tells it."""

ALL_NAMESPACES = "*"
"""For lists alone."""

_LONGEST_TAIL = 16 << 20
_NAME = re.compile("[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_QUERY: Mapping[str, str] = MappingProxyType({})
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"


class CoreKind(NamedTuple):
    """A kind that every cluster has, named by the same words as a JobKind."""

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    operator: str = ""
    """Nobody has to install them."""


POD = CoreKind("Pod", "pods")
EVENT = CoreKind("Event", "events")

AnyKind = JobKind | CoreKind


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
    """Of the answer only so much of its end is of interest."""
    kind: str = ""
    """What may not be served, and by whom it would be."""
    operator: str = ""


class LogQuery(NamedTuple):
    """Which part of a container's log."""

    namespace: str
    pod: str
    container: str
    previous: bool = False
    """Of the container before the last restart."""
    tail_lines: int | None = None
    limit_bytes: int | None = None
    """Without `tail_lines` the first bytes, with it the last."""
    since: datetime | None = None
    timestamps: bool = False
    follow: bool = False


def create_job(kind: JobKind, manifest: Mapping[str, Any]) -> Call:
    """Strict: a field that the cluster does not know is refused, not dropped."""
    metadata = manifest["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
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
    """All conditions stand in the body: beside a body the server ignores the query."""
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
    """One page; `token` says where the page before ended."""
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
        # The server would cut a tail at its end, which is what it was asked for.
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
    """Of one object, by its uid or its name."""
    field = "uid" if _UID.fullmatch(about) else "name"
    query = {"fieldSelector": f"involvedObject.{field}={about}", "limit": str(limit)}
    return _call("list", EVENT, namespace, query=query)


def served_kinds(group: str, version: str) -> Call:
    """What the cluster serves of a version of a group; 404 if nothing."""
    return Call("GET", _root(group, version), f"ask for the kinds of {group}/{version}".lstrip("/"))


def get_version() -> Call:
    return Call("GET", "/version", "ask for the version of the cluster")


def review_access(attributes: Mapping[str, str]) -> Call:
    """Whether we have a right: verb, group, resource, subresource, namespace."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": dict(attributes)},
    }
    path = f"{_root('authorization.k8s.io', 'v1')}/selfsubjectaccessreviews"
    return Call("POST", path, "ask for our own rights", body=review)


def served_versions(group: str) -> Call:
    """404 if the cluster does not know the group."""
    return Call("GET", f"/apis/{group}", f"ask for the versions of {group}")


def get_namespace(name: str) -> Call:
    _check_name("namespace", name)
    return Call("GET", f"/api/v1/namespaces/{name}", f"get namespace {name}")


def get_service(namespace: str, name: str) -> Call:
    return _call("get", CoreKind("Service", "services"), namespace, name)


def list_webhooks(plural: str) -> Call:
    path = f"{_root('admissionregistration.k8s.io', 'v1')}/{plural}"
    return Call("GET", path, f"list {plural}", query={"limit": "500"})


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
    """Without a name: about all of that kind."""
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
    )


def _check_name(field: str, value: str) -> None:
    """Names come from templates, and "" or ".." in a path would lead elsewhere."""
    if not _NAME.fullmatch(value):
        advice = "Lower-case letters, digits, '-' and '.', a letter or digit at both ends."
        raise InvalidSpec(field, "not a legal name", value=value, advice=advice)


def _root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _selection(selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": selector, "fieldSelector": field_selector}
    return {key: value for key, value in given.items() if value}
