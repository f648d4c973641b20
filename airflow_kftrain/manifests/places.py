"""Where things are within a manifest of any kind: its pod templates, what takes variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_kftrain.kinds import JobKind
from airflow_kftrain.specs.later import LATER

PATCH_MANAGER = "airflow-kftrain/provider"
"""Our entry among a TrainJob's runtime patches."""


def role_groups(kind: JobKind, manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The replica groups by role, those that are known; empty where the kind has none."""
    groups = manifest["spec"].get(kind.replicas_key) if kind.replicas_key else None
    if not isinstance(groups, dict):
        return {}
    return {role: group for role, group in groups.items() if group is not LATER}


def templates_by_path(
    kind: JobKind, manifest: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod templates that the manifest holds, with their paths; those that are known."""
    for role, group in role_groups(kind, manifest).items():
        template = group["template"]
        if template is not LATER and template["spec"] is not LATER:
            yield f"spec.{kind.replicas_key}.{role}.template", template
    template = manifest["spec"].get(kind.template_key) if kind.template_key else None
    if isinstance(template, dict) and template["spec"] is not LATER:
        yield f"spec.{kind.template_key}", template


def containers_of(template: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All containers of a pod template, with their paths below it."""
    for key in ("containers", "initContainers"):
        for number, container in enumerate(listed(template["spec"], key)):
            if container is not LATER:
                yield f"spec.{key}[{number}]", container


def pod_templates(kind: JobKind, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What labels and annotations of the pods are written to."""
    for _, template in templates_by_path(kind, manifest):
        yield template
    if kind.trainer_key:
        yield own_patch(kind, manifest)


def env_holders(kind: JobKind, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What variables are written to."""
    for _, template in templates_by_path(kind, manifest):
        for _, container in containers_of(template):
            yield container
    if kind.trainer_key:
        yield manifest["spec"].setdefault(kind.trainer_key, {})


def own_patch(kind: JobKind, manifest: dict[str, Any]) -> dict[str, Any]:
    """The pod part of our runtime patch for the trainer's pods; made where it is missing.

    A TrainJob has no pod template, and its own labels reach neither its JobSet nor its pods.
    """
    if manifest["spec"].setdefault("runtimePatches", []) is LATER:
        manifest["spec"]["runtimePatches"] = [LATER]
    patch = _named(manifest["spec"]["runtimePatches"], "manager", PATCH_MANAGER)
    jobs = _below(patch, ("trainingRuntimeSpec", "template", "spec"))
    if jobs.setdefault("replicatedJobs", []) is LATER:
        jobs["replicatedJobs"] = [LATER]
    job = _named(jobs["replicatedJobs"], "name", kind.roles[0].name)
    return _below(job, ("template", "spec", "template"))


def _named(items: list[Any], key: str, name: str) -> dict[str, Any]:
    """The item of that name, made where it is missing."""
    for item in items:
        if isinstance(item, dict) and item[key] == name:
            return item
    made = {key: name}
    items.append(made)
    return made


def _below(holder: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """What lies below a chain of keys, made where it is missing. What is not known yet counts as
    missing: at parse nobody needs what is written to it."""
    for key in keys:
        if not isinstance(holder.get(key), dict):
            holder[key] = {}
        holder = holder[key]
    return holder


def listed(holder: Mapping[str, Any], key: str) -> list[Any]:
    """The items of a list; none where it is missing or not known yet."""
    found = holder.get(key)
    return found if isinstance(found, list) else []


def get(spec: Mapping[str, Any], path: str) -> Any:
    """What stands at a path such as `runPolicy.suspend`; None if nothing does."""
    found: Any = spec
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return LATER if found is LATER else None
        found = found.get(key)
    return found


def put(spec: dict[str, Any], path: str, value: Any) -> None:
    """Write a value at a path where none stands yet."""
    *parents, last = path.split(".")
    for key in parents:
        spec = spec.setdefault(key, {})
        if spec is LATER:
            return
    if spec.get(last) is None:
        spec[last] = value
