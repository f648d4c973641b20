"""What the fields of the kinds are: unknown ones and wrong types, in Kubernetes' words.

The fields stand in specs/shapes.py, which also holds what authors write to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
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
    SERVICES,
    Resource,
)
from airflow_kftrain.local.server.train_admission import check_numbers
from airflow_kftrain.specs.shapes import SHAPES, fields_of
from airflow_kftrain.specs.values import quantity

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
    "DeleteOptions": (
        "apiVersion:str kind:str dryRun:[str] gracePeriodSeconds:int orphanDependents:bool "
        "propagationPolicy:str preconditions:Preconditions "
        "ignoreStoreReadErrorWithClusterBreakingPotential:bool"
    ),
    "Preconditions": "uid:str resourceVersion:str",
    "ServiceSpec": (
        "type:str selector:{str} ports:[ServicePort] clusterIP:str clusterIPs:[str] "
        "ipFamilies:[str] ipFamilyPolicy:str externalIPs:[str] externalName:str "
        "sessionAffinity:str sessionAffinityConfig:mapping publishNotReadyAddresses:bool "
        "loadBalancerIP:str loadBalancerClass:str loadBalancerSourceRanges:[str] "
        "allocateLoadBalancerNodePorts:bool externalTrafficPolicy:str internalTrafficPolicy:str "
        "healthCheckNodePort:int trafficDistribution:str"
    ),
    "PodFailurePolicy": "rules:[PodFailureRule]",
    "PodFailureRule": "action!:str onExitCodes:ExitCodes onPodConditions:[ConditionPattern]",
    "ExitCodes": "containerName:str operator!:str values!:[int]",
    "ConditionPattern": "type!:str status:str",
    "ServicePort": ("port:int name:str protocol:str targetPort:any nodePort:int appProtocol:str"),
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
        "replicatedJobs:[ReplicatedJob] network:mapping successPolicy:JobSetSuccess "
        "failurePolicy:JobSetFailure startupPolicy:mapping coordinator:mapping suspend:bool "
        "managedBy:str ttlSecondsAfterFinished:count volumeClaimPolicies:[mapping]"
    ),
    "JobSetSuccess": "operator!:str targetReplicatedJobs:[str]",
    "JobSetFailure": "maxRestarts:int restartStrategy:str rules:[mapping]",
    "Dependency": "name!:str status!:str",
    "ReplicatedJob": (
        "name!:str groupName:str replicas:count template!:ChildJob dependsOn:[Dependency]"
    ),
    "ChildJob": f"metadata:PatchMeta spec!:{_spec_of(BATCH_JOB)}",
}
_SHAPES[_spec_of(BATCH_JOB)] = _SHAPES[_spec_of(BATCH_JOB)].replace(
    "podFailurePolicy:mapping", "podFailurePolicy:PodFailurePolicy"
)
_HEAD = "apiVersion:str kind:str metadata:Metadata"
_FIELDS: dict[Resource, str] = {
    PODS: f"{_HEAD} spec!:PodSpec status:mapping",
    SERVICES: f"{_HEAD} spec:ServiceSpec status:mapping",
    CONFIG_MAPS: f"{_HEAD} data:{{str}} binaryData:{{str}} immutable:bool",
    JOB_SETS: f"{_HEAD} spec!:JobSet status:mapping",
    **dict.fromkeys((RUNTIMES, CLUSTER_RUNTIMES), f"{_HEAD} spec!:TrainingRuntime"),
    SECRETS: f"{_HEAD} data:{{str}} stringData:{{str}} type:str immutable:bool",
}
"""Of the other kinds only the metadata is looked at."""
_FIELDS |= {each: f"{_HEAD} spec!:{_spec_of(each.job)} status:mapping" for each in JOBS if each.job}

_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("str", "name", "env_name", "env_value"), ("string", (str,))),
    **dict.fromkeys(("int", "count", "positive"), ("integer", (int,))),
    "bool": ("boolean", (bool,)),
    "quantity": ("string", (str, int, float)),
    "mapping": ("object", (dict,)),
}
_QUANTITY = "quantity"
_GO_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_MISSING = "Required value"
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
    else:  # what is there twice may be
        for fault in faults:
            if fault.wanted:
                raise _not_handled(resource, _go_words(fault))
        if missing := [f"{fault.field}: {_MISSING}" for fault in faults if fault.what == _MISSING]:
            raise invalid(resource, found["metadata"].get("name", ""), *missing)
    return warnings if validation != "Ignore" else []


def check_status(resource: Resource, found: Object) -> None:
    """Before a write to the status alone; what is in it, operators know."""
    parts = {"metadata": found["metadata"], "status": found.get("status")}
    for fault in [*_object(parts, "metadata:Metadata status:mapping", "")]:
        if fault.wanted:
            raise _not_handled(resource, _go_words(fault))


def check_options(options: Object) -> None:
    """Of a deletion: drops nulls and what is not known."""
    for fault in [*_object(options, _SHAPES["DeleteOptions"], "")]:
        if fault.wanted:
            kind = "DeleteOptions"
            text = f'{kind} in version "v1" cannot be handled as a {kind}: '
            raise bad_request(text + _go_words(fault))


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
    if fault.wanted == _QUANTITY:
        return f"quantities must match the regular expression '{_GO_QUANTITY}'"
    got = fault.what.rpartition(": ")[2].strip('"')
    return (
        f"json: cannot unmarshal {got} into Go struct field .{fault.field} of type {fault.wanted}"
    )


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
            yield _Fault(f"{path}.{key}" if path else key, _MISSING)


def _value(value: Any, shape: str, path: str) -> Iterator[_Fault]:
    shape = _MAPPINGS.get(shape, shape)
    wanted, types = _type(shape)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        got = _JSON_NAMES[type(value)]
        text = f'Invalid value: "{got}": {path} in body must be of type {wanted}: "{got}"'
        yield _Fault(path, text, wanted)
    elif shape == _QUANTITY and not _is_quantity(value):
        text = f"Invalid value: \"{value}\": {path} in body should match '{_GO_QUANTITY}'"
        yield _Fault(path, text, _QUANTITY)
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


def _is_quantity(value: Any) -> bool:
    try:
        quantity("", value)
    except InvalidSpec:
        return False
    return True


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
