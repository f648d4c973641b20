"""Checks objects and fills in defaults before they are stored: the part of Kubernetes' own
admission that clients see, and the webhooks of the operators, in their words."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kftrain_local.kinds import MPI_JOB_V2, PYTORCH_JOB, TF_JOB, JobKind
from kftrain_local.server.pod_rules import (
    admit_pod,
    filled,
    pod_faults,
    template_spec,
    volume_faults,
)
from kftrain_local.server.refusals import (
    DNS_1035,
    denied,
    invalid,
    together,
    unsupported_value,
)
from kftrain_local.server.resources import (
    BATCH_JOBS,
    EVENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)
from kftrain_local.server.store import Object, Store
from kftrain_local.server.train_admission import check_for_trainer

_BATCH = "batch.kubernetes.io"
_BATCH_NUMBERS = (
    *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"),
    "ttlSecondsAfterFinished",
)
_NO_TIMES = dict.fromkeys(("firstTimestamp", "lastTimestamp", "eventTime"))
"""Go writes times that nobody has set as null."""
_MANAGERS = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")


def admit(store: Store) -> Callable[[Resource, Object, Object | None], Object]:
    """The admission of a cluster. It looks up references in `store`."""

    def check(resource: Resource, new: Object, old: Object | None) -> Object:
        _check_volumes(resource, new, old)
        if resource == PODS:
            return admit_pod(new, old)
        if resource == NAMESPACES and old is None:
            return {**new, "status": {"phase": "Active"}}
        if resource == BATCH_JOBS:
            return _check_batch_job(new, old)
        if resource == SERVICES:
            return _service(new)
        if resource == EVENTS:
            return {**_NO_TIMES, **new}
        if resource == SECRETS and "stringData" in new:
            return _secret(new)
        if resource.job in (PYTORCH_JOB, TF_JOB):
            assert resource.job is not None
            return _check_v1(resource.job, new, old)
        if resource.job is MPI_JOB_V2:
            return _check_mpi_job(new)
        return check_for_trainer(store, resource, new, old)

    return check


def _check_volumes(resource: Resource, new: Object, old: Object | None) -> None:
    describes_pods = resource == PODS or resource.job is not None
    if old is None and describes_pods and (faults := [*volume_faults(new.get("spec"), "spec")]):
        raise invalid(resource, new["metadata"]["name"], *faults)


# ----- Kubernetes' own


def _check_batch_job(job: Object, old: Object | None) -> Object:
    filled(job, "spec", "template", "spec")
    metadata, spec = job["metadata"], job["spec"]
    template = spec["template"]
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    if not metadata.get("labels") and labels:
        metadata["labels"] = {**labels}
    if old is None:
        for name, value in (("job-name", metadata["name"]), ("controller-uid", metadata["uid"])):
            labels |= {name: value, f"{_BATCH}/{name}": value}
        spec["selector"] = {"matchLabels": {f"{_BATCH}/controller-uid": metadata["uid"]}}
    if spec.get("parallelism") is None and spec.get("completions") is None:
        spec["completions"] = 1
    has_policy = "podFailurePolicy" in spec
    defaults = {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "Failed" if has_policy else "TerminatingOrFailed",
    }
    spec = {**defaults, **{name: value for name, value in spec.items() if value is not None}}
    spec["template"] = {**template, "spec": template_spec(template["spec"])}
    job = {**job, "spec": spec}
    if faults := [*_batch_faults(job, old)]:
        raise invalid(BATCH_JOBS, metadata["name"], *faults)
    return job


def _batch_faults(job: Object, old: Object | None) -> Iterator[str]:
    spec = job["spec"]
    before = old["spec"] if old else spec
    for name in _BATCH_NUMBERS:
        if spec.get(name, 0) < 0:
            text = "must be greater than or equal to 0"
            yield f"spec.{name}: Invalid value: {spec[name]}: {text}"
    for name in ("backoffLimitPerIndex", "successPolicy"):
        if name in spec:
            yield f"spec.{name}: Forbidden: it needs a real cluster"
    is_indexed = spec["completionMode"] == "Indexed"
    if is_indexed and "completions" not in spec:
        yield "spec.completions: Required value: when completion mode is Indexed"
    yield from pod_faults(spec["template"]["spec"], "spec.template.spec")
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy not in ("OnFailure", "Never"):
        text = 'valid values: "OnFailure", "Never"'
        yield f"spec.template.spec.restartPolicy: Required value: {text}"
    elif "podFailurePolicy" in spec and policy != "Never":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        yield f'spec.template.spec.restartPolicy: Invalid value: "{policy}": {text}'
    fixed = ["selector", "completionMode", "podFailurePolicy", "managedBy"]
    fixed += [] if is_indexed else ["completions"]
    fixed += [] if before["suspend"] else ["template"]
    for name in fixed:
        if spec.get(name) != before.get(name):
            value = json.dumps(spec.get(name))
            yield f"spec.{name}: Invalid value: {value}: field is immutable"


def _service(service: Object) -> Object:
    name = service["metadata"]["name"]
    if len(name) > 63:
        text = f'metadata.name: Invalid value: "{name}": must be no more than 63 characters'
        raise invalid(SERVICES, name, text)
    spec = service.get("spec") or {}
    ports = [
        {"protocol": "TCP", "targetPort": port.get("port"), **port}
        for port in spec.get("ports") or ()
    ]
    return {**service, "spec": {"type": "ClusterIP", **spec, "ports": ports}}


def _secret(secret: Object) -> Object:
    texts = secret.pop("stringData") or {}
    encoded = {key: b64encode(str(value).encode()).decode() for key, value in texts.items()}
    return {"type": "Opaque", **secret, "data": {**(secret.get("data") or {}), **encoded}}


# ----- training-operator


def _check_v1(kind: JobKind, job: Object, old: Object | None) -> Object:
    policy = filled(job, "spec").get("runPolicy")
    if policy is not None:
        policy.setdefault("suspend", False)
    faults = [*_v1_faults(kind, job)]
    if old is not None and kind is TF_JOB:
        before = (old["spec"].get("runPolicy") or {}).get("managedBy")
        now = (policy or {}).get("managedBy")
        if before != now:
            text = f'spec.runPolicy.managedBy: Invalid value: "{now}": field is immutable'
            faults.append(text)
    if faults:
        webhook = f"validator.{kind.kind.lower()}.training-operator.kubeflow.org"
        raise denied(webhook, together(faults))
    return job


def _v1_faults(kind: JobKind, job: Object) -> Iterator[str]:
    name, spec = job["metadata"]["name"], job["spec"]
    head = f'metadata.name: Invalid value: "{name}": should match: '
    if not name[0].isalpha() or "." in name:
        yield head + DNS_1035
    if len(name) > 63:
        yield f"{head}must be no more than 63 characters"
    manager = (spec.get("runPolicy") or {}).get("managedBy")
    if manager not in (None, *_MANAGERS):
        yield unsupported_value("spec.runPolicy.managedBy", manager, _MANAGERS)
    if spec.get(kind.replicas_key) is None:
        yield f"spec.{kind.replicas_key}: Required value: must be specified"
    roles: Mapping[str, Any] = spec.get(kind.replicas_key) or {}
    for role, group in roles.items():
        yield from _role_faults(kind, role, group, f"spec.{kind.replicas_key}[{role}]")
    if kind is TF_JOB and {"Chief", "Master"} <= roles.keys():
        yield f"spec.{kind.replicas_key}: Forbidden: must not have more than 1 Chief or Master role"
    elastic = spec.get("elasticPolicy")
    if elastic is not None and "Worker" not in roles:
        path = f"spec.{kind.replicas_key}[Worker]"
        yield f"{path}: Required value: must be configured if elastic policy is used"
    if elastic and elastic.get("nProcPerNode") is not None and spec.get("nprocPerNode"):
        yield (
            "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"
        )


def _role_faults(kind: JobKind, role: str, group: Object, path: str) -> Iterator[str]:
    if kind is PYTORCH_JOB and role not in kind.roles:
        yield unsupported_value(path, role, kind.roles)
        return
    containers = filled(group, "template", "spec").get("containers") or []
    place = f"{path}.template.spec.containers"
    if not containers:
        yield f"{place}: Required value: must be specified"
    for number, container in enumerate(containers):
        if not container.get("image"):
            yield f"{place}[{number}].image: Required value: must be required"
    if kind.container not in [container["name"] for container in containers]:
        name = kind.container
        yield f"{place}: Required value: must have at least one container with name {name}"
    if kind is PYTORCH_JOB and role == "Master" and group.get("replicas") != 1:
        yield f"{path}.replicas: Forbidden: must be 1"
    if kind is PYTORCH_JOB and role == "Worker" and group.get("replicas", 1) < 1:
        yield f"{path}.replicas: Forbidden: must be at least 1"


# ----- mpi-operator


def _check_mpi_job(job: Object) -> Object:
    """mpi-operator has no webhook."""
    for group in filled(job, "spec", "mpiReplicaSpecs").values():
        filled(group, "template", "spec")
    spec = job["spec"]
    defaults = {
        "launcherCreationPolicy": "AtStartup",
        "mpiImplementation": "OpenMPI",
        "runLauncherAsWorker": False,
        "slotsPerWorker": 1,
        "sshAuthMountPath": "/root/.ssh",
    }
    spec = {**defaults, **{key: value for key, value in spec.items() if value is not None}}
    if "runPolicy" in spec:
        spec["runPolicy"] = {"suspend": False, **spec["runPolicy"]}
    return {**job, "spec": spec}
