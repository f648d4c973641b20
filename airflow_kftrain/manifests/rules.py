"""Rules for manifests beyond their shape: those of the webhooks, and those that no webhook checks.

The API server would accept much of this, but then the operator fails: the job hangs with an empty
status. Fields have their names in the manifest; `author_field` translates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import QUEUE_LABEL, JobKind
from airflow_kftrain.manifests.places import (
    containers_of,
    get,
    is_queued,
    listed,
    role_groups,
    templates_by_path,
)
from airflow_kftrain.specs.containers import check_env_from
from airflow_kftrain.specs.env import check_source
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.policies import CLEAN_PODS
from airflow_kftrain.specs.resources import check_amounts
from airflow_kftrain.specs.values import image as image_name
from airflow_kftrain.specs.values import one_of, positive

_MOST_PATCHES = 16
_PROCESSES = ("auto", "cpu", "gpu")


def check_rules(kind: JobKind, manifest: Mapping[str, Any]) -> None:
    """Raises InvalidSpec for the first rule that is violated."""
    spec = manifest["spec"]
    _check_run_policy(kind, spec)
    if kind.replicas_key:
        _check_groups(kind, manifest)
        _check_backoff(kind, manifest)
    if kind.elastic_key:
        _check_elastic(kind, manifest)
    for path, template in templates_by_path(kind, manifest):
        _check_template(kind, path, template)
    if kind.trainer_key:
        _check_trainer(kind, spec)
    _check_queue(kind, manifest)


def _check_queue(kind: JobKind, manifest: Mapping[str, Any]) -> None:
    if not is_queued(manifest):
        return
    field, queue = f"metadata.labels[{QUEUE_LABEL!r}]", manifest["metadata"]["labels"][QUEUE_LABEL]
    if not kind.kueue_takes_it:
        raise InvalidSpec(
            field,
            f"has no effect: Kueue does not queue {kind.kind}s of {kind.api_version}",
            value=queue,
            advice="Omit it, so that it is clear that the job starts at once.",
        )
    patches = listed(manifest["spec"], "runtimePatches") if kind.trainer_key else []
    if any(patch is not LATER for patch in patches):
        raise InvalidSpec(
            field,
            "cannot be combined with runtime patches, nor with what needs them (pod, container, "
            "code, mpirun, a function): Kueue drops them, and the job would not start",
            value=queue,
            advice="Write these settings into the runtime, or use another kind of job.",
        )


def _check_run_policy(kind: JobKind, spec: Mapping[str, Any]) -> None:
    paths = kind.run_policy
    clean_pods = get(spec, paths.get("clean_pods", ""))
    if clean_pods is not None:
        one_of(f"spec.{paths['clean_pods']}", clean_pods, CLEAN_PODS)
    managed_by = get(spec, paths.get("managed_by", ""))
    if managed_by is not None:
        one_of(f"spec.{paths['managed_by']}", managed_by, kind.managers)


def _check_groups(kind: JobKind, manifest: Mapping[str, Any]) -> None:
    field = f"spec.{kind.replicas_key}"
    groups = manifest["spec"].get(kind.replicas_key)
    if groups is LATER:
        return
    if not groups:
        raise InvalidSpec(field, "has no replicas, so the job would do nothing")
    rows = {role.name: role for role in kind.roles}
    for name in groups:
        if name not in rows:
            raise _unknown_role(kind, f"{field}.{name}", name)
    for name, group in role_groups(kind, manifest).items():
        one_of(f"{field}.{name}.restartPolicy", group["restartPolicy"], kind.restart_policies)
        if rows[name].single and group["replicas"] not in (1, LATER):
            raise InvalidSpec(f"{field}.{name}.replicas", "must be 1", value=group["replicas"])
    _check_company(kind, field, groups)


def _check_company(kind: JobKind, field: str, groups: Mapping[str, Any]) -> None:
    """Roles that are required, and roles that exclude each other."""
    rows = {role.name: role for role in kind.roles}
    for role in kind.roles:
        if role.needed and role.name not in groups:
            raise InvalidSpec(
                f"{field}.{role.name}", f"{kind.kind} needs at least one {role.field}"
            )
    if not any(rows[name].decides for name in groups):
        raise InvalidSpec(
            field,
            f"has no role that decides when a {kind.kind} is finished, so it would never end",
            value=list(groups),
            advice=f"Add one of {', '.join(role.name for role in kind.roles if role.decides)}.",
        )
    leaders = [name for name in groups if rows[name].single]
    if len(leaders) > 1:
        raise InvalidSpec(f"{field}.{leaders[1]}", f"cannot be combined with {leaders[0]}")


def _unknown_role(kind: JobKind, field: str, name: str) -> InvalidSpec:
    from difflib import get_close_matches  # only needed for an error

    names = {role.name.lower(): role.name for role in kind.roles}
    close = get_close_matches(name.lower(), names, n=1)
    advice = (
        f"Did you mean {names[close[0]]!r}?" if close else f"It has {', '.join(names.values())}."
    )
    return InvalidSpec(field, f"{kind.kind} has no such role", advice=advice)


def _check_backoff(kind: JobKind, manifest: Mapping[str, Any]) -> None:
    path = kind.run_policy["backoff_limit"]
    limit = get(manifest["spec"], path)
    if kind.backoff_counts == "pods" or not isinstance(limit, int) or limit == 0:
        return
    for role, group in role_groups(kind, manifest).items():
        if group["restartPolicy"] == "Never":
            raise InvalidSpec(
                f"spec.{path}",
                f"has no effect while the restart policy of {role} is Never: it counts restarts "
                "of containers",
                value=limit,
                advice="Omit the restart policy, or use OnFailure. To run the whole job again "
                "instead, omit the limit and set the retries of the task.",
            )


def _check_elastic(kind: JobKind, manifest: Mapping[str, Any]) -> None:
    spec, field = manifest["spec"], f"spec.{kind.elastic_key}"
    processes = spec.get("nprocPerNode")
    if processes is not None and processes not in _PROCESSES:
        positive("spec.nprocPerNode", processes)
    policy = spec.get(kind.elastic_key)
    if not isinstance(policy, Mapping):
        return
    least, most = policy.get("minReplicas"), policy.get("maxReplicas")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise InvalidSpec(f"{field}.minReplicas", f"more than maxReplicas, {most}", value=least)
    _check_elastic_count(kind, manifest, least, most)
    if not kind.rendezvous_id:
        return
    if "Master" in role_groups(kind, manifest):
        raise InvalidSpec(
            f"spec.{kind.replicas_key}.Master",
            "cannot be combined with elasticPolicy: an elastic job has only workers",
        )
    if policy.get("nProcPerNode") is not None and processes is not None:
        raise InvalidSpec(
            f"{field}.nProcPerNode",
            "cannot be combined with spec.nprocPerNode",
            advice="Use spec.nprocPerNode; this field is deprecated.",
        )


def _check_elastic_count(kind: JobKind, manifest: Mapping[str, Any], least: Any, most: Any) -> None:
    """Otherwise the nodes would wait for others that never come, or there would be too many. Only
    workers are nodes: a PaddleJob may have masters, too."""
    count = role_groups(kind, manifest).get("Worker", {}).get("replicas")
    if not isinstance(count, int):
        return
    too_few = isinstance(least, int) and count < least
    if too_few or (isinstance(most, int) and count > most):
        raise InvalidSpec(
            f"spec.{kind.replicas_key}.Worker.replicas",
            f"not between minReplicas, {least}, and maxReplicas, {most}",
            value=count,
            advice="Omit it to use maxReplicas.",
        )


def _check_template(kind: JobKind, path: str, template: Mapping[str, Any]) -> None:
    _check_labels(path, template)
    spec = template["spec"]
    if kind.template_key:
        one_of(f"{path}.spec.restartPolicy", spec.get("restartPolicy"), kind.restart_policies)
    if not spec.get("containers"):
        raise InvalidSpec(f"{path}.spec.containers", "must have at least one container")
    _refuse_twice(f"{path}.spec", spec, "volumes", "name")
    volumes = _names(spec, "volumes")
    names = _names(spec, "containers")
    # A container without an image may be part of one that is not known yet.
    all_known = LATER not in names | _names(spec, "initContainers")
    seen: set[Any] = set()
    for where, container in containers_of(template):
        if all_known:
            _check_image(f"{path}.{where}.image", container.get("image"))
        _check_container(f"{path}.{where}", container, volumes)
        name = container["name"]
        if name in seen and name is not LATER:
            raise InvalidSpec(f"{path}.{where}.name", "is the name of two containers", value=name)
        seen.add(name)
    if kind.container_needed and not {kind.container, LATER} & names:
        raise InvalidSpec(
            f"{path}.spec.containers",
            f"must have a container named {kind.container!r}",
            value=sorted(names),
        )


def _check_labels(path: str, template: Mapping[str, Any]) -> None:
    labels = get(template, "metadata.labels")
    if isinstance(labels, Mapping) and QUEUE_LABEL in labels:
        raise InvalidSpec(
            f"{path}.metadata.labels[{QUEUE_LABEL!r}]",
            "must not be set on pods: Kueue would queue each pod separately",
            advice="Set the job's queue_name; in a manifest, label the resource.",
        )


def _check_image(field: str, image: Any) -> None:
    if not image:
        raise InvalidSpec(field, "is required")
    image_name(field, image)


def _check_container(field: str, container: Mapping[str, Any], volumes: set[Any]) -> None:
    _refuse_twice(field, container, "env", "name")
    _refuse_twice(field, container, "volumeMounts", "mountPath")
    for number, variable in enumerate(listed(container, "env")):
        check_source(f"{field}.env[{number}]", variable)
    for number, source in enumerate(listed(container, "envFrom")):
        check_env_from(f"{field}.envFrom[{number}]", source)
    for number, mount in enumerate(listed(container, "volumeMounts")):
        name = LATER if mount is LATER else mount.get("name")
        if name not in {LATER, *volumes} and LATER not in volumes:
            raise InvalidSpec(
                f"{field}.volumeMounts[{number}].name",
                "there is no volume of that name",
                value=name,
                advice="Add it to volumes.",
            )
    resources = container.get("resources")
    if isinstance(resources, Mapping):
        check_amounts(f"{field}.resources", resources)


def _check_trainer(kind: JobKind, spec: Mapping[str, Any]) -> None:
    field, trainer = f"spec.{kind.trainer_key}", spec[kind.trainer_key]
    if trainer is not LATER:
        _refuse_twice(field, trainer, "env", "name")
        for number, variable in enumerate(listed(trainer, "env")):
            check_source(f"{field}.env[{number}]", variable)
            if variable is not LATER and variable["name"] in kind.reserved_env:
                raise InvalidSpec(
                    f"{field}.env[{number}].name",
                    f"{kind.kind} sets this variable itself",
                    value=variable["name"],
                    advice="Omit it.",
                )
        if isinstance(trainer.get("resourcesPerNode"), Mapping):
            check_amounts(f"{field}.resourcesPerNode", trainer["resourcesPerNode"])
    _check_patches(kind, spec)


def _check_patches(kind: JobKind, spec: Mapping[str, Any]) -> None:
    patches = listed(spec, "runtimePatches")
    if len(patches) > _MOST_PATCHES:
        raise InvalidSpec(
            "spec.runtimePatches", f"there can be {_MOST_PATCHES} at most", value=len(patches)
        )
    _refuse_twice("spec", spec, "runtimePatches", "manager")
    steps = {role.name for role in kind.roles}
    for field, pod in _patched_pods(patches):
        _check_labels(field, pod)
        if not isinstance(pod.get("spec"), Mapping):
            continue
        _refuse_twice(f"{field}.spec", pod["spec"], "volumes", "name")
        for where, container in containers_of(pod):
            _refuse_twice(f"{field}.{where}", container, "volumeMounts", "mountPath")
            for place, mount in enumerate(listed(container, "volumeMounts")):
                if mount is not LATER and not mount.get("name"):
                    mounts = f"{field}.{where}.volumeMounts"
                    raise InvalidSpec(f"{mounts}[{place}].name", "is required")
            if container.get("env") and container["name"] in steps:
                raise InvalidSpec(
                    f"{field}.{where}.env",
                    f"must not set variables of the container {container['name']!r}",
                    advice="Use the env of the trainer or of the initializer.",
                )


def _patched_pods(patches: Sequence[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The pods in the patches of a runtime, with their paths."""
    for number, patch in enumerate(patches):
        path = "trainingRuntimeSpec.template.spec"
        jobs = get(patch, path)
        for place, job in enumerate(
            listed(jobs, "replicatedJobs") if isinstance(jobs, Mapping) else ()
        ):
            pod = get(job, "template.spec.template")
            if isinstance(pod, Mapping):
                yield (
                    f"spec.runtimePatches[{number}].{path}.replicatedJobs[{place}]"
                    ".template.spec.template",
                    pod,
                )


def _refuse_twice(field: str, holder: Mapping[str, Any], name: str, key: str) -> None:
    seen = set()
    for number, item in enumerate(listed(holder, name)):
        value = LATER if item is LATER else item[key]
        if value in seen and value is not LATER:
            raise InvalidSpec(f"{field}.{name}[{number}].{key}", "is duplicated", value=value)
        seen.add(value)


def _names(holder: Mapping[str, Any], name: str) -> set[Any]:
    """The names of a list's items, with LATER for those that are unknown."""
    if holder.get(name) is LATER:
        return {LATER}
    return {item if item is LATER else item["name"] for item in listed(holder, name)}
