"""Translates a field of the manifest to the field that its author has written.

The rules check the finished manifest, whether it was built or written by hand. An author who never
saw that manifest needs the name of his own field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_kftrain.kinds import QUEUE_LABEL, JobKind, Role
from airflow_kftrain.manifests.places import listed
from airflow_kftrain.specs.containers import WRITTEN
from airflow_kftrain.specs.job import JobSpec

_MAIN = ".template.spec.containers[0]"
_IN_A_POD = {
    **{f"{_MAIN}.{key}": f"container.{name}" for name, key in WRITTEN.items()},
    f"{_MAIN}.volumeMounts": "pod.volume_mounts",
    ".template.spec.initContainers": "pod.init_containers",
    ".template.spec.volumes": "pod.volumes",
    ".template.metadata.labels": "pod.labels",
    ".template.metadata.annotations": "pod.annotations",
    ".template": "pod.patch",
}
_IN_A_GROUP = {
    ".replicas": "count",
    ".restartPolicy": "restart_policy",
    ".template.spec.restartPolicy": "restart_policy",
    f"{_MAIN}.image": "image",
    f"{_MAIN}.command": "command",
    f"{_MAIN}.args": "args",
    f"{_MAIN}.env": "env",
    f"{_MAIN}.resources": "container_resources",
    **_IN_A_POD,
}
_IN_A_TRAIN_JOB = {
    "spec.trainer.command": "command",
    "spec.trainer.env": "env",
    "spec.trainer.resourcesPerNode": "container_resources",
    "spec.runtimePatches": "runtime_patches",
}
_OWN_PATCH = re.compile(
    r"spec\.runtimePatches\[\d+\]\.trainingRuntimeSpec\.template\.spec\.replicatedJobs\[\d+\]"
    r"\.template\.spec(\.template.*)"
)
_CONTAINER = re.compile(r"\.template\.spec\.containers\[(\d+)\]")


def author_field(kind: JobKind, job: JobSpec, field: str) -> str:
    """The author's name of a field of the manifest."""
    if field == f"metadata.labels[{QUEUE_LABEL!r}]" and job.queue_name is not None:
        return "queue_name"
    for name, path in kind.run_policy.items():
        if _starts(field, f"spec.{path}"):
            return f"run_policy.{name}{field[len(f'spec.{path}') :]}"
    if kind.replicas_key and field == f"spec.{kind.replicas_key}":
        given = [role.field for role in kind.roles if getattr(job, role.field, None) is not None]
        return f"{given[0]}.count" if given else "workers"
    if kind.template_key and _starts(field, f"spec.{kind.template_key}"):
        return _in_a_group(job, kind.roles[0], field[len("spec") :])
    for role in kind.roles if kind.replicas_key else ():
        prefix = f"spec.{kind.replicas_key}.{role.name}"
        if _starts(field, prefix):
            return _in_a_group(job, role, field[len(prefix) :])
    return _in_a_train_job(kind, job, field) if kind.trainer_key else field


def given_at(job: JobSpec, role: Role, name: str) -> str:
    """The field where the author has written a property of a role: that of the role, or that of the
    job. A missing property is reported where the role is written."""
    replica = getattr(job, role.field, None)
    for holder, field in ((replica, f"{role.field}.{name}"), (job, name)):
        if _value(holder, name) is not None:
            return field
    return name if replica is None else f"{role.field}.{name}"


def _in_a_group(job: JobSpec, role: Role, rest: str) -> str:
    if not rest:
        return role.field
    found = _CONTAINER.match(rest)
    if found and found[1] != "0":
        return _other_container(job, role, int(found[1]), rest[found.end() :])
    return _of_main_container(job, role, rest, _IN_A_GROUP)


def _of_main_container(job: JobSpec, role: Role, rest: str, names: Mapping[str, str]) -> str:
    for prefix, name in names.items():
        if _starts(rest, prefix):
            field = given_at(job, role, name)
            if name in ("image", "command") or _value(job, field) is not None:
                return field + rest[len(prefix) :]
    return _from_a_file(job, role, rest[len(".template") :])


def _other_container(job: JobSpec, role: Role, number: int, rest: str) -> str:
    """After the main container come those of the template file, then the sidecars."""
    template = _value(job, given_at(job, role, "pod.template_file"))
    from_file = 0
    if isinstance(template, Mapping):
        from_file = max(len(listed(template.get("spec") or {}, "containers")) - 1, 0)
    if number <= from_file:
        return _from_a_file(job, role, f".spec.containers[{number}]{rest}")
    return f"{given_at(job, role, 'pod.sidecars')}[{number - from_file - 1}]{rest}"


def _from_a_file(job: JobSpec, role: Role, rest: str) -> str:
    return f"{given_at(job, role, 'pod.template_file')}{rest}"


def _in_a_train_job(kind: JobKind, job: JobSpec, field: str) -> str:
    own = _OWN_PATCH.fullmatch(field)
    number = re.match(r"spec\.runtimePatches\[(\d+)\]", field)
    given = len(getattr(job, "runtime_patches", None) or ())
    if own and number and int(number[1]) >= given:
        return _of_main_container(job, kind.roles[0], own[1], _IN_A_POD)
    for path, name in _IN_A_TRAIN_JOB.items():
        if _starts(field, path):
            return f"{name}{field[len(path) :]}"
    return field


def _starts(field: str, prefix: str) -> bool:
    return field == prefix or field.startswith((f"{prefix}.", f"{prefix}["))


def _value(holder: Any, path: str) -> Any:
    for name in path.split("."):
        holder = getattr(holder, name, None)
    return holder
