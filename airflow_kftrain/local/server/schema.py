"""What the fields of the kinds are: unknown ones and wrong types, in Kubernetes' words.

The fields stand in specs/shapes.py, which also holds what authors write to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from airflow_kftrain.kinds import BATCH_JOB, KINDS, TRAIN_JOB, JobKind
from airflow_kftrain.local.server.refusals import Refusal, bad_request, invalid
from airflow_kftrain.local.server.resources import (
    CLUSTER_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    RESOURCES,
    RUNTIMES,
    SECRETS,
    Resource,
)
from airflow_kftrain.local.server.train_admission import check_numbers
from airflow_kftrain.specs.shapes import SHAPES, fields_of

Object = dict[str, Any]


def _spec_of(job: JobKind) -> str:
    """The name of a shape."""
    return f"{job.plural}.{job.api_version}"


def _needed_in(job: JobKind) -> str:
    """The map of roles has to be there; authors are told so by another check."""
    key = job.replicas_key
    return job.spec_fields.replace(f"{key}:", f"{key}!:") if key else job.spec_fields


_SHAPES = {
    **SHAPES,
    "Metadata": (
        "name:str generateName:str namespace:str uid:str resourceVersion:str generation:int "
        "creationTimestamp:str deletionTimestamp:str deletionGracePeriodSeconds:int "
        "labels:{str} annotations:{str} finalizers:[str] ownerReferences:[Owner] "
        "managedFields:any selfLink:str"
    ),
    "Owner": (
        "apiVersion!:str kind!:str name!:str uid!:str controller:bool blockOwnerDeletion:bool"
    ),
}
_SHAPES |= {_spec_of(job): _needed_in(job) for job in KINDS}
_SHAPES |= {
    "TrainingRuntime": "mlPolicy:MLPolicy podGroupPolicy:mapping template!:JobSetTemplate",
    "MLPolicy": "numNodes:count torch:mapping mpi:mapping jax:mapping xgboost:mapping flux:mapping",
    "JobSetTemplate": "metadata:PatchMeta spec!:JobSet",
    "JobSet": (
        "replicatedJobs:[ReplicatedJob] network:mapping successPolicy:mapping "
        "failurePolicy:mapping startupPolicy:mapping coordinator:mapping suspend:bool "
        "managedBy:str ttlSecondsAfterFinished:count volumeClaimPolicies:[mapping]"
    ),
    "ReplicatedJob": (
        "name!:str groupName:str replicas:count template!:ChildJob dependsOn:[mapping]"
    ),
    "ChildJob": f"metadata:PatchMeta spec:{_spec_of(BATCH_JOB)}",
}
_HEAD = "apiVersion:str kind:str metadata:Metadata"
_FIELDS: dict[Resource, str] = {
    PODS: f"{_HEAD} spec!:PodSpec status:any",
    CONFIG_MAPS: f"{_HEAD} data:{{str}} binaryData:{{str}} immutable:bool",
    JOB_SETS: f"{_HEAD} spec!:JobSet status:any",
    **dict.fromkeys((RUNTIMES, CLUSTER_RUNTIMES), f"{_HEAD} spec!:TrainingRuntime"),
    SECRETS: f"{_HEAD} data:{{str}} stringData:{{str}} type:str immutable:bool",
}
"""Of the other kinds only the metadata is looked at."""
_FIELDS |= {each: f"{_HEAD} spec!:{_spec_of(each.job)} status:any" for each in JOBS if each.job}

_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("str", "name", "env_name", "env_value"), ("string", (str,))),
    **dict.fromkeys(("int", "count", "positive"), ("integer", (int,))),
    "bool": ("boolean", (bool,)),
    "quantity": ("string", (str, int, float)),
    "mapping": ("object", (dict,)),
}
_MAPPINGS = {"labels": "{str}", "annotations": "{str}"}
_NAMED = ("[Container]", "[EnvVar]", "[Volume]")
"""Lists whose items are told apart by their names."""
_JSON_NAMES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}


class _Fault(NamedTuple):
    field: str
    what: str
    """"" for a field that is not known."""
    wanted: str = ""
    """The type, where it is another one."""


def check(
    resource: Resource, found: Object, validation: str, twice: Sequence[str] = (), patch: Any = None
) -> list[str]:
    """Drops nulls and unknown fields. Gives warnings of these and of what was given `twice`, which
    under Strict are a Refusal. With a `patch`, `found` is what has come of it."""
    fields = _FIELDS.get(resource)
    looked_at = found if fields else {"metadata": found["metadata"]}
    faults = [*_object(looked_at, fields or _HEAD, "")]
    warnings = sorted(f'unknown field "{fault.field}"' for fault in faults if not fault.what)
    warnings += [f'duplicate field "{field}"' for field in twice]
    if warnings and validation == "Strict":
        raise _strict(resource, found, f"strict decoding error: {', '.join(warnings)}", patch)
    if resource.job is TRAIN_JOB:
        check_numbers(found)
    if resource.is_custom:
        if wrong := [f"{fault.field}: {fault.what}" for fault in faults if fault.what]:
            raise invalid(resource, found["metadata"].get("name", ""), *wrong)
    else:  # what is missing or there twice is told with the values
        for fault in faults:
            if fault.wanted:
                raise _not_handled(resource, f"json: cannot unmarshal {_go_words(fault)}")
    return warnings if validation != "Ignore" else []


def _strict(resource: Resource, found: Object, why: str, patch: Any) -> Refusal:
    if patch is None:
        return _not_handled(resource, why)
    name = found["metadata"].get("name", "")
    return invalid(resource, name, f"patch: Invalid value: {json.dumps(patch)}: {why}")


def _not_handled(resource: Resource, why: str) -> Refusal:
    kind = resource.kind
    text = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: '
    return bad_request(text + why)


def _go_words(fault: _Fault) -> str:
    got = fault.what.rpartition(": ")[2].strip('"')
    return f"{got} into Go struct field .{fault.field} of type {fault.wanted}"


def _object(value: Object, fields: str, path: str) -> Iterator[_Fault]:
    known, needed = fields_of(fields)
    for key in [*value]:
        place = f"{path}.{key}" if path else key
        if key not in known:
            yield _Fault(place, "")
        if key not in known or value[key] is None:
            del value[key]
        else:
            yield from _value(value[key], known[key], place)
    for key in needed:
        if value.get(key) is None:
            yield _Fault(f"{path}.{key}" if path else key, "Required value")


def _value(value: Any, shape: str, path: str) -> Iterator[_Fault]:
    shape = _MAPPINGS.get(shape, shape)
    wanted, types = _type(shape)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        got = _JSON_NAMES[type(value)]
        text = f'Invalid value: "{got}": {path} in body must be of type {wanted}: "{got}"'
        yield _Fault(path, text, wanted)
    elif shape[0] == "[":
        for number, item in enumerate(value):
            yield from _value(item, shape[1:-1], f"{path}[{number}]")
        if shape in _NAMED:
            yield from _same_names(value, path)
    elif shape[0] == "{":
        for key in [*value]:
            if value[key] is None:
                del value[key]
            else:
                yield from _value(value[key], shape[1:-1], f"{path}.{key}")
    elif shape in _SHAPES:
        yield from _object(value, _SHAPES[shape], path)


def _type(shape: str) -> tuple[str, Any]:
    if shape[0] == "[":
        return "array", (list,)
    if shape[0] == "{" or shape in _SHAPES:
        return "object", (dict,)
    if "|" in shape:
        return "string", (str,)
    return _TYPES.get(shape, ("", (object, bool)))


def _same_names(items: list[Any], path: str) -> Iterator[_Fault]:
    seen: set[object] = set()
    for number, item in enumerate(items):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name in seen:
            what = f"Duplicate value: {json.dumps({'name': name})}"
            yield _Fault(f"{path}[{number}]", what)
        seen.add(name if isinstance(name, str) else None)


def openapi(path: str) -> Object:
    """As much as kubectl needs to see that the server validates fields itself."""
    versions = sorted({resource.api_version for resource in RESOURCES})
    places = {
        version: f"apis/{version}" if "/" in version else f"api/{version}" for version in versions
    }
    place = path.removeprefix("/openapi/v3").strip("/")
    if not place:
        urls = {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in places.values()}
        return {"paths": urls}
    paths = {}
    for resource in RESOURCES:
        if places[resource.api_version] == place:
            kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
            validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
            method = {"parameters": [validation], "x-kubernetes-group-version-kind": kind}
            scope = "namespaces/{namespace}/" if resource.namespaced else ""
            methods = {"post": method, "patch": method, "put": method}
            paths[f"/{place}/{scope}{resource.plural}"] = methods
    return {"openapi": "3.0.0", "info": {"title": "kftrain", "version": "1"}, "paths": paths}
