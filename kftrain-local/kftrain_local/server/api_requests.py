"""Parses a request: its path, its body and its options, and checks whether they are valid.

Everything that is not valid raises a Refusal.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import yaml
from aiohttp import web

from kftrain_local.agent.logs import LogOptions, read_options
from kftrain_local.server.protobuf import read_protobuf
from kftrain_local.server.refusals import (
    DNS_1035,
    Refusal,
    bad_request,
    conflict,
    invalid,
    invalid_options,
    unsupported_value,
)
from kftrain_local.server.resources import BY_PLACE, PODS, SERVICES, Resource
from kftrain_local.server.store import Key, Object

JSON, _YAML = "application/json", "application/yaml"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"
LARGEST_BODY = 3 * 1024 * 1024

POD_ACTIONS = ("binding", "eviction")
"""Parts of a pod that can only be created."""
_NO = ("0", "false")
_POLICIES = ("Background", "Foreground", "Orphan")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_NAME.pattern}')"
)


_LABEL = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_LETTERS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character, and be no more than 63 characters"
)
_KEY_WORDS = f"the name part of a label key {_LETTERS}; a part before it must be a DNS subdomain"
_LABEL_WORDS = f"a valid label must be an empty string or {_LETTERS.removeprefix('must ')}"


# ----- the path


class Target(NamedTuple):
    """What a path refers to."""

    resource: Resource
    namespace: str
    name: str
    part: str

    @property
    def key(self) -> Key:
        return Key(self.resource, self.namespace, self.name)


def parse(path: str) -> Target | None:
    """None if it is not served."""
    words = path.strip("/").split("/")
    if words[0] == "api" and len(words) > 2:
        version, rest = words[1], words[2:]
    elif words[0] == "apis" and len(words) > 3:
        version, rest = f"{words[1]}/{words[2]}", words[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = BY_PLACE.get((version, rest[0]))
    name, part = (*rest[1:], "", "")[:2]
    if resource is None or len(rest) > 3 or part not in _parts(resource):
        return None
    if namespace and not resource.namespaced:
        return None
    if name and resource.namespaced and not namespace:
        return None
    return Target(resource, namespace, name, part)


def _parts(resource: Resource) -> tuple[str, ...]:
    parts = ("", "status") if resource.has_status else ("",)
    return (*parts, "log", *POD_ACTIONS) if resource == PODS else parts


def allows(method: str, target: Target) -> bool:
    """A resource in all namespaces can only be read."""
    if method == "GET":
        return True
    if target.resource.namespaced and not target.namespace:
        return False
    if method == "POST":
        return not target.name or target.part in POD_ACTIONS
    return method == "DELETE" or bool(target.name)


# ----- the query


def says_yes(query: Mapping[str, str], name: str) -> bool:
    return name in query and query[name].lower() not in _NO


def version_of(query: Mapping[str, str]) -> int:
    """0 if there is none."""
    text = query.get("resourceVersion") or "0"
    if not text.isdigit():
        raise ValueError(f'resourceVersion: Invalid value: "{text}": must be a number')
    return int(text)


def number(options: Mapping[str, Any], name: str) -> int:
    """0 if there is none."""
    try:
        return int(options.get(name) or 0)
    except (ValueError, TypeError) as error:
        raise bad_request(f"{name}: Invalid value: {options[name]!r}: must be a number") from error


def check_words(kind: str, options: Mapping[str, Any]) -> None:
    """Checks the `options` of a write for their only valid spelling."""
    dry_run = options.get("dryRun") or []
    words: tuple[tuple[str, Sequence[str], tuple[str, ...]], ...] = (
        ("dryRun", [dry_run] if isinstance(dry_run, str) else dry_run, ("All",)),
        ("fieldValidation", [options.get("fieldValidation", "")], ("Ignore", "Strict", "Warn")),
        ("propagationPolicy", [options.get("propagationPolicy", "")], _POLICIES),
    )
    for field, given, known in words:
        for word in given:
            if word and word not in known:
                fault = unsupported_value(field, word, known)
                raise invalid_options(f"{kind}.meta.k8s.io", "", fault)


def is_dry(options: Mapping[str, Any]) -> bool:
    return "All" in (options.get("dryRun") or "")


def read_log_options(pod: str, query: Mapping[str, str]) -> LogOptions:
    try:
        return read_options(query, time.time())
    except ValueError as error:
        raise invalid_options("PodLogOptions", pod, str(error)) from error


class Place(NamedTuple):
    """Where a list continues: after that object, as it was in that version; 0: as it is now."""

    version: int
    namespace: str
    name: str
    number: int

    def token(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()

    @classmethod
    def read(cls, token: str) -> Place:
        try:
            version, namespace, name, number = json.loads(base64.urlsafe_b64decode(token))
            return cls(int(version), str(namespace), str(name), int(number))
        except (ValueError, TypeError) as error:
            raise bad_request(f"invalid continue token: {error}") from error


# ----- the body


class Body(NamedTuple):
    value: Any
    twice: list[str]
    """Fields that occur more than once; the last one counts."""


async def read_body(request: web.Request, resource: Resource) -> Body:
    """Accepts only types that a web page cannot send without a preflight, which nobody answers
    here."""
    kind, known = request.content_type, _media_types(request.method, resource)
    if kind not in known:
        if request.method == "PATCH":
            known = (*known, _APPLY)  # in Kubernetes
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise Refusal(415, "UnsupportedMediaType", text + ", ".join(known))
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        text = f"Request entity too large: limit is {LARGEST_BODY}"
        raise Refusal(413, "RequestEntityTooLarge", text) from error
    try:
        body = _decode(kind, data)
    # A client may send anything: broken data, or data nested deeper than Python can handle.
    except (ValueError, LookupError, RecursionError, yaml.YAMLError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error
    if not isinstance(body.value, list if kind == JSON_PATCH else dict):
        raise bad_request("the body of the request is not an object")
    return body


def _media_types(method: str, resource: Resource) -> tuple[str, ...]:
    if method == "PATCH":
        return (JSON_PATCH, MERGE) if resource.is_custom else (JSON_PATCH, MERGE, STRATEGIC)
    return (JSON, _YAML, _PROTOBUF)


def _decode(kind: str, data: bytes) -> Body:
    if kind == _PROTOBUF:
        return Body(read_protobuf(data), [])
    if kind == _YAML:  # converted to JSON, which has no dates
        data = json.dumps(yaml.safe_load(data), default=str).encode()
    repeated: list[_Repeating] = []

    def made(pairs: list[tuple[str, Any]]) -> Object:
        found = _Repeating(pairs)
        if len(found) == len(pairs):
            return dict(found)
        keys = [key for key, _ in pairs]
        found.twice = [key for number, key in enumerate(keys) if key in keys[:number]]
        repeated.append(found)
        return found

    value = json.loads(data, object_pairs_hook=made, parse_float=_finite, parse_constant=_finite)
    return Body(value, [*_places(value, "")] if repeated else [])


def _finite(text: str) -> float:
    """Values that are not finite could not be sent to any client."""
    if not isfinite(number := float(text)):
        raise ValueError(f"{text} is no number of JSON")
    return number


class _Repeating(dict[str, Any]):
    """An object with a field that occurs twice."""

    twice: Sequence[str] = ()


def _places(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _places(item, f"{path}[{number}]")
    if isinstance(value, dict):
        below = f"{path}." if path else ""
        yield from (f"{below}{key}" for key in getattr(value, "twice", ()))
        for key, item in value.items():
            yield from _places(item, f"{below}{key}")


# ----- the object in the body


def check_identity(target: Target, given: Object) -> None:
    """The object must match the path to which it was sent."""
    resource, metadata = target.resource, given.setdefault("metadata", {})
    if given.setdefault("kind", "" if resource.is_custom else resource.kind) == "":
        raise bad_request("Object 'Kind' is missing in the body of the request")
    if given.setdefault("apiVersion", resource.api_version) != resource.api_version:
        raise bad_request(
            f"the API version in the data ({given['apiVersion']}) does not match the expected API "
            f"version ({resource.api_version})"
        )
    if not isinstance(metadata, dict):
        raise bad_request("metadata is not an object")
    name = metadata.get("name") or ""
    if given["kind"] != resource.kind:
        said = f'kind: Invalid value: "{given["kind"]}": must be {resource.kind}'
        raise invalid(resource, name, said)
    if (metadata.get("namespace") or target.namespace) != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if target.name and name != target.name:
        text = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise bad_request(text)


def check_metadata(resource: Resource, metadata: Object) -> None:
    """Names and labels must be valid."""
    name = metadata.get("name") or ""
    faults = [*_name_faults(resource, name)] if name else []
    if not name and not metadata.get("generateName"):
        faults = ["metadata.name: Required value: name or generateName is required"]
    faults += _label_faults(metadata.get("labels") or {})
    if faults:
        raise invalid(resource, name, *faults)


def _name_faults(resource: Resource, name: str) -> Iterator[str]:
    pattern, words = (_SERVICE, DNS_1035) if resource == SERVICES else (_NAME, _NAME_WORDS)
    if len(name) > 253:
        yield f'metadata.name: Invalid value: "{name}": must be no more than 253 characters'
    elif not pattern.fullmatch(name):
        yield f'metadata.name: Invalid value: "{name}": {words}'


def _label_faults(labels: Mapping[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL.fullmatch(name) or (slash and not _NAME.fullmatch(prefix)):
            yield f"metadata.labels: Invalid value: {json.dumps(key)}: {_KEY_WORDS}"
        if value and not _LABEL.fullmatch(value):
            yield f"metadata.labels: Invalid value: {json.dumps(value)}: {_LABEL_WORDS}"


def check_change(target: Target, old: Object, new: Object, *, is_patch: bool) -> None:
    """Name, namespace and uid cannot change."""
    resource, name = target.resource, target.name
    before, now = old["metadata"], new["metadata"]
    if now.get("uid") not in (None, before["uid"]):
        if is_patch:
            text = f'metadata.uid: Invalid value: "{now["uid"]}": field is immutable'
            raise invalid(resource, name, text)
        why = f"UID in precondition: {now['uid']}, UID in object meta: {before['uid']}"
        raise conflict(resource, name, f"Precondition failed: {why}")
    if resource.is_custom and not now.get("resourceVersion"):
        text = 'metadata.resourceVersion: Invalid value: "": must be specified for an update'
        raise invalid(resource, name, text)
    added = {*(now.get("finalizers") or ())} - {*(before.get("finalizers") or ())}
    if added and "deletionTimestamp" in before:
        text = (
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
            f"deleted, found new finalizers {json.dumps(sorted(added))}"
        )
        raise invalid(resource, name, text)
