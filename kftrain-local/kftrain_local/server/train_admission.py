"""Rejections and defaults of the webhooks and schemas of Kubeflow Trainer and JobSet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kftrain_local.kinds import TRAIN_JOB
from kftrain_local.server.pod_rules import filled
from kftrain_local.server.refusals import Refusal, denied, invalid, together
from kftrain_local.server.resources import (
    CLUSTER_RUNTIMES,
    JOB_SETS,
    JOBS,
    RUNTIMES,
    Resource,
)
from kftrain_local.server.store import Key, Object, Store
from kftrain_local.server.train_runtimes import patched, pod_of, steps_of
from kftrain_local.times import now_text

_RESOURCE = next(resource for resource in JOBS if resource.job is TRAIN_JOB)
_GROUP = "trainer.kubeflow.org"
_FIXED = ("runtimeRef", "initializer", "trainer", "activeDeadlineSeconds", "managedBy")
MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
_RESERVED = {
    "torch": (
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    ),
    "mpi": (
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_plm_rsh_args",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots",
    ),
    "xgboost": ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
}
"""Variables that belong to the framework."""
_INITIALIZERS = ("dataset-initializer", "model-initializer")
_LONGEST_NAME = 63
_NOT_DONE = {
    RUNTIMES: ("podGroupPolicy", "mlPolicy.flux"),
    CLUSTER_RUNTIMES: ("podGroupPolicy", "mlPolicy.flux"),
    JOB_SETS: (
        *("coordinator", "volumeClaimPolicies", "ttlSecondsAfterFinished", "managedBy"),
        *("failurePolicy.rules", "startupPolicy"),
    ),
}
"""Fields that would have no effect."""


def check_numbers(job: Object) -> None:
    """The webhook that sets defaults cannot read other types, so the schema is not checked
    before."""
    spec = job.get("spec")
    trainer = spec.get("trainer") if isinstance(spec, dict) else None
    given: Object = trainer if isinstance(trainer, dict) else {}
    for name in ("numNodes", "numProcPerNode"):
        value = given.get(name)
        if isinstance(value, str | float):
            kind = "string" if isinstance(value, str) else f"number {value}"
            text = f"json: cannot unmarshal {kind} into Go struct field"
            field = f"Trainer.spec.trainer.{name} of type int32"
            webhook = f'admission webhook "defaulter.trainjob.{_GROUP}" denied the request'
            raise Refusal(400, "", f"{webhook}: {text} {field}")


def check_for_trainer(store: Store, resource: Resource, new: Object, old: Object | None) -> Object:
    """Returns the object with defaults if it belongs to the Trainer."""
    if resource.job is TRAIN_JOB:
        return _check_train_job(store, new, old)
    if resource in (RUNTIMES, CLUSTER_RUNTIMES):
        _fill_steps(filled(new, "spec", "template", "spec"))
    _refuse_fields(resource, new)
    return _check_job_set(new) if resource == JOB_SETS else new


def _fill_steps(job_set: Object) -> None:
    for step in job_set.get("replicatedJobs") or ():
        filled(step, "template", "spec", "template", "spec")


def _refuse_fields(resource: Resource, found: Object) -> None:
    for field in _NOT_DONE.get(resource, ()):
        value: Any = filled(found, "spec")
        for key in field.split("."):
            value = (value or {}).get(key)
        if value and value != {"startupPolicyOrder": "AnyOrder"}:
            fault = f"spec.{field}: Forbidden: it needs a real cluster"
            raise invalid(resource, found["metadata"]["name"], fault)


# ----- TrainJob


def _check_train_job(store: Store, job: Object, old: Object | None) -> Object:
    if "spec" not in job:
        raise invalid(_RESOURCE, job["metadata"]["name"], "spec: Required value")
    spec = job["spec"]
    defaults: Object = {"suspend": False, "managedBy": MANAGERS[0]}
    reference = {"apiGroup": _GROUP, "kind": CLUSTER_RUNTIMES.kind, **spec["runtimeRef"]}
    spec = {**defaults, **spec, "runtimeRef": reference}
    if patches := spec.get("runtimePatches"):
        before = (old or {"spec": {}})["spec"].get("runtimePatches") or []
        spec["runtimePatches"] = [_timed(patch, before) for patch in patches]
    job = {**job, "spec": spec}
    if faults := [*_schema_faults(job, old)]:
        raise invalid(_RESOURCE, job["metadata"]["name"], *faults)
    if faults := [*_faults(job, old, _runtime(store, job))]:
        text = together(faults)
        raise denied(f"validator.trainjob.{_GROUP}", text)
    return job


def _timed(patch: Object, before: list[Object]) -> Object:
    """Adds when a patch was made, or changed last."""
    for each in before:
        if {**each, "time": ""} == {**patch, "time": ""}:
            return each
    return {**patch, "time": now_text()}


def _schema_faults(job: Object, old: Object | None) -> Iterator[str]:
    name, spec = job["metadata"]["name"], job["spec"]
    wrong = "Invalid value: "
    if not re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name):
        yield f"<nil>: {wrong}metadata.name must match RFC 1035 DNS label format"
    if len(name) > _LONGEST_NAME:
        yield f"<nil>: {wrong}metadata.name must be no more than {_LONGEST_NAME} characters"
    if spec["managedBy"] not in MANAGERS:
        text = f"ManagedBy must be {' or '.join(MANAGERS)} if set"
        yield f'spec.managedBy: {wrong}"{spec["managedBy"]}": {text}'
    for what, step in (spec.get("initializer") or {}).items():
        uri = (step or {}).get("storageUri")
        if uri and not re.match("[A-Za-z][A-Za-z0-9+.-]*://.", uri):
            text = "storageUri may be empty, or it must be a valid URI (scheme://...)"
            yield f'spec.initializer.{what}.storageUri: {wrong}"{uri}": {text}'
    before = old["spec"] if old is not None else {}
    for field in _FIXED:
        if field in before and field in spec and before[field] != spec[field]:
            yield f"spec.{field}: {wrong}{_text(spec[field])}: field is immutable"


def _runtime(store: Store, job: Object) -> Object:
    reference = job["spec"]["runtimeRef"]
    kinds = {each.kind: each for each in (CLUSTER_RUNTIMES, RUNTIMES)}
    resource, webhook = kinds.get(reference["kind"]), f"validator.trainjob.{_GROUP}"
    if resource is None or reference["apiGroup"] != _GROUP:
        kind = f"{reference['kind']}.{reference['apiGroup']}"
        raise denied(webhook, f"unsupported runtime: {kind}")
    namespace = job["metadata"]["namespace"] if resource.namespaced else ""
    runtime = store.find(Key(resource, namespace, reference["name"]))
    if runtime is None:
        word = resource.kind[0].lower() + resource.kind[1:]
        field = "runtimeRef" if resource.namespaced else "RuntimeRef"
        why = f'{resource.kind}.{_GROUP} "{reference["name"]}" not found: specified {word}'
        start = f"spec.{field}: Invalid value: {_text(reference)}: {why}"
        raise denied(webhook, f"{start} must be created before the TrainJob is created")
    return runtime


def _faults(job: Object, old: Object | None, runtime: Object) -> Iterator[str]:
    """In the order of the validating webhook."""
    spec = job["spec"]
    steps = {step["name"]: step for step in steps_of(patched(job, runtime))}
    yield from _reserved(spec, runtime["spec"].get("mlPolicy") or {})
    reference = f"spec.runtimeRef: Invalid value: {_text(spec['runtimeRef'])}: must have"
    for name in _INITIALIZERS:
        what = name.removesuffix("-initializer")
        if (spec.get("initializer") or {}).get(what) is None:
            continue
        if name not in steps:
            text = f"job when trainJob is configured with input {what}Config"
            yield f"{reference} {name} {text}"
            continue
        mounts = _mounts(steps[name], name)
        if mounts is None:
            yield f"{reference} container with name - {name} in the {name} job"
        elif "initializer" not in mounts:
            text = f"volumeMount with name - initializer in container {name} of the {name} job"
            yield f"{reference} {text}"
    yield from _patch_faults(spec, old)


def _mounts(step: Object, container: str) -> list[str] | None:
    """None if there is no such container."""
    for each in pod_of(step).get("containers") or ():
        if each["name"] == container:
            return [mount["name"] for mount in each.get("volumeMounts") or ()]
    return None


def _reserved(spec: Object, policy: Object) -> Iterator[str]:
    env = (spec.get("trainer") or {}).get("env") or []
    for framework, names in _RESERVED.items():
        if framework not in policy:
            continue
        bad = sorted({each["name"] for each in env} & {*names})
        if framework == "xgboost":
            for number, each in enumerate(env):
                if each["name"] in bad:
                    text = f"Forbidden: {each['name']} is reserved for the XGBoost runtime"
                    yield f"spec.trainer.env[{number}]: {text}"
        elif bad:
            text = f"must not have reserved envs, invalid envs configured: [{' '.join(bad)}]"
            yield f"spec.trainer.env: Invalid value: {_text(env)}: {text}"


def _patch_faults(spec: Object, old: Object | None) -> Iterator[str]:
    patches, path = spec.get("runtimePatches") or [], "spec.runtimePatches"
    before = spec if old is None else old["spec"]
    is_running = not spec["suspend"] and not before.get("suspend")
    if is_running and patches != (before.get("runtimePatches") or []):
        why = "when the TrainJob is suspended before or after the update"
        yield f"{path}: Forbidden: RuntimePatches can only be modified {why}"
    for patch in patches:
        if "/" not in patch["manager"]:
            text = 'must be a domain-prefixed path (such as "acme.io/foo")'
            yield f'{path}.manager: Invalid value: "{patch["manager"]}": {text}'
        template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        for step in steps_of({"spec": {}, **template}):
            for container in pod_of(json.loads(_text(step))).get("containers") or ():
                if container.get("env") and container["name"] in (*_INITIALIZERS, "node"):
                    names = ", ".join((*_INITIALIZERS, "node"))
                    text = f"must not have envs for the {names} containers"
                    yield f"{path}: Invalid value: {_text(patches)}: {text}"


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# ----- JobSet


def _check_job_set(job_set: Object) -> Object:
    name, spec = job_set["metadata"]["name"], filled(job_set, "spec")
    _fill_steps(spec)
    defaults = {"successPolicy": {"operator": "All"}, "suspend": False}
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    steps = [_step(step) for step in spec.get("replicatedJobs") or ()]
    if faults := [*_step_faults(steps)]:
        raise invalid(JOB_SETS, name, *faults)
    for number, step in enumerate(steps):
        job = f"{name}-{step['name']}-{step['replicas'] - 1}"
        pod = f"{job}-{step['template']['spec'].get('completions', 1) - 1}-abcde"
        if len(pod) > _LONGEST_NAME:
            field = f'spec.replicatedJobs[{number}].name: Invalid value: "{job}"'
            why = f"will exceed {_LONGEST_NAME} characters"
            text = f"{field}: JobSet name is too long, pod names generated for this JobSet {why}"
            raise denied("vjobset.kb.io", f'JobSet.{JOB_SETS.group} "{name}" is invalid: {text}')
    spec = {**defaults, **spec, "network": {**network, **(spec.get("network") or {})}}
    return {**job_set, "spec": {**spec, "replicatedJobs": steps}}


def _step(step: Object) -> Object:
    template = step["template"]
    job = {"completionMode": "Indexed", **template["spec"]}
    pod = {"restartPolicy": "OnFailure", **job["template"]["spec"]}
    job["template"] = {**job["template"], "spec": pod}
    defaults = {"replicas": 1, "groupName": "default"}
    return {**defaults, **step, "template": {**template, "spec": job}}


def _step_faults(steps: list[Object]) -> Iterator[str]:
    for number, step in enumerate(steps):
        if not step["template"]["spec"]["template"]["spec"].get("containers"):
            field = f"spec.replicatedJobs[{number}].template.spec.template.spec.containers"
            wrong = f'Invalid value: "null": {field} in body must be of type array: "null"'
            yield f"{field}: {wrong}"
            why = "some validation rules were not checked because the object was invalid; correct"
            yield f"<nil>: Invalid value: null: {why} the existing errors to complete validation"
