"""Describes the objects in a manifest; `conform` checks a value against its description.

An API server reports a wrong field only when everything else is done. For some kinds it never does:
where it has no schema, it silently drops the field. So the fields that authors write are listed
here, in a small language:

    name!:str labels:labels ports:[Port] limits:{quantity} affinity:mapping

`!` marks a required field that may not be empty, `[X]` a list, `{X}` a mapping with any keys, `a|b`
one of these words or "", and a capital letter another row of the table. Fields that are deeper than
authors usually go are `mapping` or `any`: the server checks these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import isfinite
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs import values
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import Check

_VOLUME_SOURCES = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir "
    "ephemeral fc flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi nfs "
    "persistentVolumeClaim photonPersistentDisk portworxVolume projected quobyte rbd scaleIO "
    "secret storageos vsphereVolume"
)

_FEW = 12
"""An error lists the known fields if there are not more than this."""

SHAPES: dict[str, str] = {
    "ObjectMeta": (
        "name:str generateName:str namespace:name labels:labels annotations:annotations "
        "finalizers:[str] ownerReferences:[mapping]"
    ),
    "ReplicaSpec": "replicas:count restartPolicy:str template!:PodTemplate",
    "RunPolicy": (
        "cleanPodPolicy:str ttlSecondsAfterFinished:count activeDeadlineSeconds:positive "
        "backoffLimit:count suspend:bool managedBy:str schedulingPolicy:SchedulingPolicy"
    ),
    "SchedulingPolicy": (
        "minAvailable:count queue:str minResources:{quantity} priorityClass:str "
        "scheduleTimeoutSeconds:count"
    ),
    "TorchElasticPolicy": (
        "minReplicas:positive maxReplicas:positive maxRestarts:count nProcPerNode:positive "
        "rdzvBackend:str rdzvHost:str rdzvPort:count rdzvId:str rdzvConf:[RendezvousSetting] "
        "standalone:bool metrics:[mapping]"
    ),
    "RendezvousSetting": "key!:str value!:str",
    "PaddleElasticPolicy": (
        "minReplicas:positive maxReplicas:positive maxRestarts:count metrics:[mapping]"
    ),
    "RuntimeRef": "name!:str apiGroup:str kind:str",
    "Initializer": "dataset:InitializerStep model:InitializerStep",
    "InitializerStep": "storageUri:str env:[EnvVar] secretRef:LocalReference",
    "Trainer": (
        "image:str command:[str] args:[str] env:[EnvVar] numNodes:positive numProcPerNode:positive "
        "resourcesPerNode:ResourceRequirements"
    ),
    "RuntimePatch": "manager!:str time:str trainingRuntimeSpec:TrainingRuntimePatch",
    "TrainingRuntimePatch": "template:JobSetPatch",
    "JobSetPatch": "metadata:PatchMeta spec:JobSetSpecPatch",
    "JobSetSpecPatch": "replicatedJobs:[ReplicatedJobPatch]",
    "ReplicatedJobPatch": "name!:str template:ChildJobPatch",
    "ChildJobPatch": "metadata:PatchMeta spec:ChildJobSpecPatch",
    "ChildJobSpecPatch": "template:PodPatch",
    "PodPatch": "metadata:PatchMeta spec:PodSpecPatch",
    "PatchMeta": "name:str namespace:str labels:labels annotations:annotations finalizers:[str]",
    "PodSpecPatch": (
        "serviceAccountName:str nodeSelector:labels affinity:mapping tolerations:[Toleration] "
        "schedulingGates:[mapping] volumes:[Volume] imagePullSecrets:[LocalReference] "
        "securityContext:mapping terminationGracePeriodSeconds:count "
        "initContainers:[ContainerPatch] containers:[ContainerPatch]"
    ),
    "ContainerPatch": "name!:str env:[EnvVar] volumeMounts:[VolumeMount] securityContext:mapping",
    "PodTemplate": "metadata:PatchMeta spec!:PodSpec",
    "PodTemplatePart": "metadata:PatchMeta spec:PodSpec",
    "PodSpec": (
        "containers:[Container] initContainers:[Container] ephemeralContainers:[mapping] "
        "volumes:[Volume] restartPolicy:str activeDeadlineSeconds:positive "
        "terminationGracePeriodSeconds:count nodeSelector:labels nodeName:str affinity:mapping "
        "tolerations:[Toleration] topologySpreadConstraints:[mapping] priorityClassName:str "
        "priority:int preemptionPolicy:str schedulerName:str schedulingGates:[mapping] "
        "schedulingGroup:mapping workloadRef:mapping serviceAccountName:str serviceAccount:str "
        "automountServiceAccountToken:bool imagePullSecrets:[LocalReference] "
        "securityContext:mapping runtimeClassName:str hostname:str hostnameOverride:str "
        "subdomain:str setHostnameAsFQDN:bool hostAliases:[mapping] hostNetwork:bool hostIPC:bool "
        "hostPID:bool hostUsers:bool dnsConfig:mapping dnsPolicy:str enableServiceLinks:bool "
        "shareProcessNamespace:bool readinessGates:[mapping] resourceClaims:[mapping] "
        "resources:mapping os:mapping overhead:{quantity}"
    ),
    "Container": (
        "name!:name image:str command:[str] args:[str] env:[EnvVar] envFrom:[EnvFrom] "
        "resources:ResourceRequirements volumeMounts:[VolumeMount] volumeDevices:[mapping] "
        "ports:[Port] workingDir:str imagePullPolicy:Always|IfNotPresent|Never "
        "securityContext:mapping lifecycle:mapping "
        "livenessProbe:mapping readinessProbe:mapping startupProbe:mapping restartPolicy:str "
        "restartPolicyRules:[mapping] resizePolicy:[mapping] stdin:bool stdinOnce:bool tty:bool "
        "terminationMessagePath:str terminationMessagePolicy:File|FallbackToLogsOnError"
    ),
    "EnvVar": "name!:env_name value:env_value valueFrom:EnvSource",
    "EnvSource": (
        "secretKeyRef:KeyReference configMapKeyRef:KeyReference fieldRef:FieldReference "
        "resourceFieldRef:ResourceReference fileKeyRef:mapping"
    ),
    "KeyReference": "name!:str key!:str optional:bool",
    "FieldReference": "apiVersion:str fieldPath!:str",
    "ResourceReference": "containerName:str resource!:str divisor:quantity",
    "EnvFrom": "prefix:str secretRef:SourceReference configMapRef:SourceReference",
    "SourceReference": "name!:str optional:bool",
    "LocalReference": "name!:str",
    "ResourceRequirements": "requests:{quantity} limits:{quantity} claims:[mapping]",
    "VolumeMount": (
        "name:str mountPath!:str subPath:str subPathExpr:str readOnly:bool "
        "recursiveReadOnly:str mountPropagation:str"
    ),
    "Volume": "name!:name " + " ".join(f"{source}:mapping" for source in _VOLUME_SOURCES.split()),
    "Port": "containerPort!:positive name:str protocol:str hostPort:count hostIP:str",
    "Toleration": (
        "key:str operator:Exists|Equal|Lt|Gt value:str "
        "effect:NoSchedule|PreferNoSchedule|NoExecute tolerationSeconds:int"
    ),
}


def conform(value: Any, shape: str, field: str) -> Any:
    """A copy of `value` that matches the shape. Raises InvalidSpec with the name of the field that
    does not.

    Kubernetes model objects become dicts, None is dropped, and text becomes a number or a flag if
    one is expected. `shape` is a type of the language, such as "[Volume]".
    """
    return check_of(shape)(field, value)


def conform_fields(value: Any, fields: str, field: str) -> dict[str, Any]:
    """Like `conform`, for an object whose fields are given here instead of in the table."""
    checked: dict[str, Any] = _object(fields)(field, value)
    return checked


def plain(value: Any) -> Any:
    """A value without Kubernetes model objects: they become dicts with the field names of the
    API."""
    if hasattr(value, "openapi_types") and hasattr(value, "attribute_map"):
        pairs = ((key, getattr(value, name)) for name, key in value.attribute_map.items())
        return {key: plain(item) for key, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _env_name(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    name, equals, _ = value.partition("=") if isinstance(value, str) else (value, "", "")
    if isinstance(name, str) and name and not equals and name.isascii() and name.isprintable():
        return name
    # The text after the sign is not shown: it may be a secret.
    shown = f"{name}=..." if equals else name
    raise InvalidSpec(field, "is not a valid name of an environment variable", value=shown)


def _env_value(field: str, value: Any) -> Any:
    # The value is not shown: it may be a secret.
    if value is LATER or isinstance(value, str):
        return value
    raise InvalidSpec(
        field, f"must be text, got a value of type {type(value).__name__}", advice="Quote it."
    )


def _text(field: str, value: Any) -> Any:
    # Unlike values.text this accepts "", which has a meaning in fields such as `subPath`.
    return value if value == "" else values.text(field, value)


def _any(field: str, value: Any) -> Any:
    """Not checked in detail, but it must be valid in JSON."""
    value = _plain_here(value)
    if isinstance(value, dict):
        return {
            _free_key(field, key): _any(_below(field, key), item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_any(f"{field}[{number}]", item) for number, item in enumerate(value)]
    if value is None or value is LATER or isinstance(value, str | int):
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    raise InvalidSpec(
        field, f"must be text, a number, a list or a mapping, got a {type(value).__name__}"
    )


def _mapping(field: str, value: Any) -> Any:
    value = _plain_here(value)
    if value is LATER or isinstance(value, Mapping):
        return _any(field, value)
    raise InvalidSpec(field, "must be a mapping", value=value)


def _free_key(field: str, key: Any) -> Any:
    if isinstance(key, str):
        return key
    raise InvalidSpec(field, "has a key that is not text", value=key, advice="Put it in quotes.")


def _integer(field: str, value: Any) -> Any:
    return values.whole_number(field, value, least=-(2**31))


_SCALARS: dict[str, Check] = {
    "str": _text,
    "name": values.object_name,
    "int": _integer,
    "count": values.whole_number,
    "positive": values.positive,
    "bool": values.flag,
    "quantity": values.quantity,
    "labels": values.label_map,
    "annotations": values.annotation_map,
    "env_name": _env_name,
    "env_value": _env_value,
    "mapping": _mapping,
    "any": _any,
}


@cache
def check_of(shape: str) -> Check:
    """The function that checks a value against a shape."""
    check = _check_of(shape)
    return _unshown(check) if shape in _MAYBE_SECRET else check


def _unshown(check: Check) -> Check:
    """The same check, but an error about the whole value does not show it."""

    def check_quietly(field: str, value: Any) -> Any:
        try:
            return check(field, value)
        except InvalidSpec as error:
            if error.field != field:
                raise
            raise InvalidSpec(field, error.problem, advice=_VARIABLES) from None

    return check_quietly


_MAYBE_SECRET = ("[EnvVar]", "EnvVar", "EnvSource")
_VARIABLES = "Each variable is a mapping with name, and value or valueFrom."


def _check_of(shape: str) -> Check:
    if shape[0] == "[":
        return _list(check_of(shape[1:-1]))
    if shape[0] == "{":
        return _map(check_of(shape[1:-1]))
    if "|" in shape:
        return _word([word for word in shape.split("|") if word])
    return _SCALARS.get(shape) or _object(SHAPES[shape])


def _word(words: list[str]) -> Check:
    # For Kubernetes, the empty string means its default.
    return lambda field, value: value if value == "" else values.one_of(field, value, words)


def _list(check: Check) -> Check:
    def check_list(field: str, value: Any) -> Any:
        if value is LATER:
            return value
        if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
            raise InvalidSpec(field, "must be a list", value=value)
        return [check(f"{field}[{number}]", _plain_here(item)) for number, item in enumerate(value)]

    return check_list


def _map(check: Check) -> Check:
    def check_map(field: str, value: Any) -> Any:
        if value is LATER:
            return value
        if not isinstance(value, Mapping):
            raise InvalidSpec(field, "must be a mapping", value=value)
        return {
            _free_key(field, key): check(_below(field, key), _plain_here(item))
            for key, item in value.items()
        }

    return check_map


@cache
def _object(fields: str) -> Check:
    known, needed = fields_of(fields)

    def check_object(field: str, value: Any) -> Any:
        if value is LATER:
            return value
        value = _plain_here(value)
        if not isinstance(value, Mapping):
            raise InvalidSpec(field, "must be a mapping of fields", value=value)
        checked = {}
        for key, item in value.items():
            if item is None:
                continue
            if key not in known:
                raise _unknown_field(field, key, known)
            checked[key] = check_of(known[key])(_below(field, key), _plain_here(item))
        for name in needed:
            if checked.get(name, "") == "":
                raise InvalidSpec(_below(field, name), "is required")
        return checked

    return check_object


@cache
def fields_of(fields: str) -> tuple[dict[str, str], list[str]]:
    """The shapes of the fields by name, and the names of the required fields."""
    pairs = [word.split(":") for word in fields.split()]
    known = {name.rstrip("!"): shape for name, shape in pairs}
    return known, [name.rstrip("!") for name, _ in pairs if name.endswith("!")]


def _plain_here(value: Any) -> Any:
    return value if type(value) in _PLAIN else plain(value)


_PLAIN = frozenset({str, int, float, bool, dict, list, type(None)})


def _below(field: str, key: object) -> str:
    return f"{field}.{key}" if field else str(key)


def _unknown_field(field: str, key: object, known: Mapping[str, str]) -> InvalidSpec:
    from difflib import get_close_matches  # only needed for an error

    close = get_close_matches(str(key), known, n=1)
    advice = f"Did you mean {close[0]!r}?" if close else ""
    if not close and len(known) <= _FEW:
        advice = f"Known fields are {', '.join(sorted(known))}."
    return InvalidSpec(_below(field, key), "there is no such field", advice=advice)
