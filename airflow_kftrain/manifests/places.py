"""Finds things in a manifest of any kind: its pod templates, and what has environment variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_kftrain.kinds import QUEUE_LABEL, JobKind
from airflow_kftrain.specs.later import LATER

PATCH_MANAGER = "airflow-kftrain/provider"
"""Our entry among a TrainJob's runtime patches."""
LAUNCHER = "launcher"
"""What the trainer is called in a runtime with MPI, where nodes wait for ranks. In another runtime
a patch for it adds a Job that cannot be created."""


def role_groups(kind: JobKind, manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The known replica groups by role; empty if the kind has none."""
    groups = manifest["spec"].get(kind.replicas_key) if kind.replicas_key else None
    if not isinstance(groups, dict):
        return {}
    return {role: group for role, group in groups.items() if group is not LATER}


def templates_by_path(
    kind: JobKind, manifest: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The known pod templates of the manifest, with their paths."""
    for role, group in role_groups(kind, manifest).items():
        template = group["template"]
        if template is not LATER and template["spec"] is not LATER:
            yield f"spec.{kind.replicas_key}.{role}.template", template
    template = manifest["spec"].get(kind.template_key) if kind.template_key else None
    if isinstance(template, dict) and template["spec"] is not LATER:
        yield f"spec.{kind.template_key}", template


def containers_of(template: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All containers of a pod template, with their paths in it."""
    for key in ("containers", "initContainers"):
        for number, container in enumerate(listed(template["spec"], key)):
            if container is not LATER:
                yield f"spec.{key}[{number}]", container


def pod_templates(kind: JobKind, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything that has labels and annotations of the pods."""
    for _, template in templates_by_path(kind, manifest):
        yield template
    if kind.trainer_key and not is_queued(manifest):
        yield from own_patches(kind, manifest)


def is_queued(manifest: Mapping[str, Any]) -> bool:
    """Whether the job waits for Kueue, which drops the runtime patches of a TrainJob when it admits
    it (0.15). If there were any, Trainer could not change the JobSet, and the job would not
    start."""
    labels = get(manifest, "metadata.labels")
    return isinstance(labels, Mapping) and QUEUE_LABEL in labels


def env_holders(kind: JobKind, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything that has environment variables."""
    for _, template in templates_by_path(kind, manifest):
        for _, container in containers_of(template):
            yield container
    if kind.trainer_key:
        yield manifest["spec"].setdefault(kind.trainer_key, {})


def own_patches(kind: JobKind, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """For the nodes, and for the launcher if there is one."""
    yield own_patch(kind, manifest)
    steps = listed(_patched_steps(manifest), "replicatedJobs")
    if any(step is not LATER and step["name"] == LAUNCHER for step in steps):
        yield own_patch(kind, manifest, LAUNCHER)


def own_patch(kind: JobKind, manifest: dict[str, Any], step: str = "") -> dict[str, Any]:
    """The pod part of our runtime patch for a step's pods, by default the nodes; made where it is
    missing.

    A TrainJob has no pod template, and its own labels reach neither its JobSet nor its pods.
    """
    steps = _patched_steps(manifest)
    if steps.setdefault("replicatedJobs", []) is LATER:
        steps["replicatedJobs"] = [LATER]
    job = _named(steps["replicatedJobs"], "name", step or kind.roles[0].name)
    return _below(job, ("template", "spec", "template"))


def _patched_steps(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["spec"].setdefault("runtimePatches", []) is LATER:
        manifest["spec"]["runtimePatches"] = [LATER]
    patch = _named(manifest["spec"]["runtimePatches"], "manager", PATCH_MANAGER)
    return _below(patch, ("trainingRuntimeSpec", "template", "spec"))


def _named(items: list[Any], key: str, name: str) -> dict[str, Any]:
    """The item of that name; it is created if it is missing."""
    for item in items:
        if isinstance(item, dict) and item[key] == name:
            return item
    made = {key: name}
    items.append(made)
    return made


def _below(holder: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The mapping at the end of a chain of keys; missing ones are created. An unknown value counts
    as missing: while a DAG file is parsed, nobody reads what is written to it."""
    for key in keys:
        if not isinstance(holder.get(key), dict):
            holder[key] = {}
        holder = holder[key]
    return holder


def texts_by_path(holder: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All texts with their paths. List items are named by their name if they have one, so a path
    stays valid even if the cluster adds other items."""
    if isinstance(holder, str):
        yield path, holder
    elif isinstance(holder, Mapping):
        for key, item in holder.items():
            yield from texts_by_path(item, f"{path}.{key}")
    elif isinstance(holder, list):
        for number, item in enumerate(holder):
            name = item.get("name") if isinstance(item, Mapping) else None
            yield from texts_by_path(item, f"{path}[{number if name is None else name}]")


def listed(holder: Mapping[str, Any], key: str) -> list[Any]:
    """The items of a list; empty if it is missing or unknown."""
    found = holder.get(key)
    return found if isinstance(found, list) else []


def get(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a path such as `runPolicy.suspend`; None if there is none."""
    found: Any = spec
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return LATER if found is LATER else None
        found = found.get(key)
    return found


def put(spec: dict[str, Any], path: str, value: Any) -> None:
    """Writes a value at a path, unless there is one."""
    *parents, last = path.split(".")
    for key in parents:
        spec = spec.setdefault(key, {})
        if spec is LATER:
            return
    if spec.get(last) is None:
        spec[last] = value
