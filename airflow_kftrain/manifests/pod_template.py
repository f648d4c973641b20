"""Builds the pod template of a replica, for all kinds alike.

It starts with the author's template file, if there is one, adds the fields of the job and the
replica, and merges the raw patch last. The author's objects are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import JobKind, Role
from airflow_kftrain.manifests.author_fields import given_at
from airflow_kftrain.manifests.patching import merge
from airflow_kftrain.manifests.places import listed
from airflow_kftrain.specs.containers import WRITTEN, Container, merge_containers
from airflow_kftrain.specs.env import merge_env
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import given
from airflow_kftrain.specs.pods import Placement, Pod, merge_pods
from airflow_kftrain.specs.replicas import Replica
from airflow_kftrain.specs.resources import without_devices
from airflow_kftrain.specs.shapes import conform

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SHM_PATH = "/dev/shm"
SHM_VOLUME = "kftrain-shm"

# Names of the main container in templates that were made for other operators.
_MAIN_ELSEWHERE = ("base", "main", "primary")


def pod_template(kind: JobKind, role: Role, job: JobSpec, replica: Replica) -> dict[str, Any]:
    """The template of the pods of one role."""
    pod = merge_pods(job.pod, replica.pod)
    complete = _is_complete(job.pod) and _is_complete(replica.pod)
    if pod is LATER:
        pod = Pod()
    base = _base(given_at(job, role, "pod.template_file"), pod) if complete else _UNKNOWN
    spec = dict(base.get("spec", {}))
    # The policy of the replica applies: the operator overwrites this one, with a Warning event.
    spec.pop("restartPolicy", None)
    main, others = _split(kind, spec.get("containers", []))
    main = {**main, "name": kind.container}
    main = merge(main, _main_container(role, job, replica, pod))
    spec["containers"] = [main, *others, *known(pod.sidecars)]
    template = merge({"metadata": base.get("metadata", {}), "spec": spec}, _from_pod(pod))
    if kind.shared_memory if pod.shared_memory is None else pod.shared_memory:
        _add_shared_memory(job, role, pod, template["spec"])
    if isinstance(pod.patch, Mapping):
        if complete:
            _refuse_unknown_containers(
                given_at(job, role, "pod.patch"), pod.patch, template["spec"]
            )
        template = merge(template, pod.patch)
    return {key: part for key, part in template.items() if part}


# When a DAG file is parsed, part of a pod may be unknown. It may contain anything, so nothing can
# be reported as missing.
_UNKNOWN: Mapping[str, Any] = {
    "spec": {"containers": [{"name": "main", "image": LATER}, LATER], "volumes": [LATER]}
}


def _is_complete(pod: Any) -> bool:
    """Whether everything is known that may add containers and volumes."""
    if not isinstance(pod, Pod):
        return pod is None
    unread = pod.template_file is not None and not isinstance(pod.template_file, Mapping)
    return not unread and pod.patch is not LATER


def metadata_with_file(field: str, pod: Pod) -> dict[str, Any]:
    """Labels and annotations of the pods and of the job itself: those of the template file, if it
    has been read, and the pod's own."""
    source = pod.template_file
    base: Mapping[str, Any] = _base(field, pod) if isinstance(source, Mapping) else {}
    metadata: dict[str, Any] = merge(base.get("metadata", {}), pod_metadata(pod))
    return metadata


def pod_metadata(pod: Pod) -> dict[str, Any]:
    """The same without the template file."""
    metadata: dict[str, Any] = {}
    if pod.labels:
        metadata["labels"] = pod.labels
    if pod.annotations:
        metadata["annotations"] = pod.annotations
    return metadata


def placement_fields(placement: Placement) -> dict[str, Any]:
    """The placement as fields of a pod's spec."""
    written = {
        "nodeSelector": placement.node_selector,
        "tolerations": placement.tolerations,
        "affinity": placement.affinity,
        "priorityClassName": placement.priority_class,
        "schedulerName": placement.scheduler_name,
    }
    return given(written)


def shared_memory_volume(pod: Pod) -> tuple[dict[str, Any], dict[str, Any]]:
    """The volume of /dev/shm and its mount. Its size counts as memory of the pod."""
    in_memory: dict[str, Any] = {"medium": "Memory"}
    if pod.shared_memory is not None and not isinstance(pod.shared_memory, bool):
        in_memory["sizeLimit"] = pod.shared_memory
    volume = {"name": SHM_VOLUME, "emptyDir": in_memory}
    return volume, {"name": SHM_VOLUME, "mountPath": SHM_PATH}


def safe_to_evict(placement: Placement) -> dict[str, Any]:
    if placement.safe_to_evict is None:
        return {}
    value = placement.safe_to_evict
    return {SAFE_TO_EVICT: value if value is LATER else str(value).lower()}


def _base(field: str, pod: Any) -> Mapping[str, Any]:
    """The pod of the template file, which has been read already."""
    source = pod.template_file
    if source is None:
        return {}
    kept = {key: source[key] for key in ("metadata", "spec") if source.get(key) is not None}
    checked: Mapping[str, Any] = conform({"spec": {}, **kept}, "PodTemplate", field)
    metadata = checked.get("metadata", {})
    labels = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    # The operator sets name and namespace.
    return {"metadata": labels, "spec": checked["spec"]}


def _split(kind: JobKind, containers: Any) -> tuple[dict[str, Any], list[Any]]:
    """The main container of a template, and the others."""
    present = [] if containers is LATER else list(containers)
    for name in (kind.container, *_MAIN_ELSEWHERE):
        for container in present:
            if container is not LATER and container["name"] == name:
                return container, [item for item in present if item is not container]
    return (present[0], present[1:]) if present else ({"name": kind.container}, [])


def command_of(job: JobSpec, replica: Replica) -> tuple[Any, Any]:
    """Command and arguments of a replica. The job's arguments belong to the job's command, so a
    replica with its own command does not get them."""
    if replica.command is not None:
        return replica.command, replica.args
    return job.command, job.args if replica.args is None else replica.args


def _main_container(role: Role, job: JobSpec, replica: Replica, pod: Pod) -> dict[str, Any]:
    command, args = replica.command, replica.args
    if role.runs_command:
        command, args = command_of(job, replica)
    resources: Any = replica.container_resources
    if resources is None and job.container_resources is not None:
        resources = job.container_resources
        if not role.takes_devices:
            resources = without_devices(resources)
    image = job.image if replica.image is None else replica.image
    written = {
        "image": image,
        "command": command,
        "args": args,
        "env": merge_env(job.env or [], replica.env or []) or None,
        "resources": resources or None,
        "volumeMounts": pod.volume_mounts,
        **container_fields(merge_containers(job.container, replica.container)),
    }
    return given(written)


def container_fields(container: Any) -> dict[str, Any]:
    """The author's container in the words of Kubernetes."""
    if not isinstance(container, Container):
        return {}
    return {WRITTEN[name]: value for name, value in given(container._asdict()).items()}


def _from_pod(pod: Pod) -> dict[str, Any]:
    placement = pod.placement if isinstance(pod.placement, Placement) else Placement()
    metadata = pod_metadata(pod)
    annotations = safe_to_evict(placement)
    if annotations and metadata.get("annotations") is not LATER:
        metadata["annotations"] = {**annotations, **metadata.get("annotations", {})}
    written = {
        "volumes": pod.volumes,
        "initContainers": pod.init_containers,
        "serviceAccountName": pod.service_account,
        "imagePullSecrets": pod.image_pull_secrets,
        **placement_fields(placement),
    }
    spec = given(written)
    return {"metadata": metadata, "spec": spec}


def _add_shared_memory(job: JobSpec, role: Role, pod: Pod, spec: dict[str, Any]) -> None:
    """If the author mounts something at /dev/shm, the default does not apply; if the author also
    sets shared_memory, an error says so."""
    main = spec["containers"][0]
    mounts, volumes = main.get("volumeMounts", []), spec.get("volumes", [])
    if any(item is LATER for item in (pod.shared_memory, mounts, volumes)):
        return
    if is_mounted(mounts, SHM_PATH):
        if pod.shared_memory is None:
            return
        raise shared_memory_twice(given_at(job, role, "pod.shared_memory"), pod)
    volume, mount = shared_memory_volume(pod)
    if any(item is not LATER and item["name"] == SHM_VOLUME for item in volumes):
        raise InvalidSpec(
            given_at(job, role, "pod.volumes"),
            "has a volume with the name of the shared memory volume",
            value=SHM_VOLUME,
            advice="Rename your volume, or use shared_memory=False.",
        )
    main["volumeMounts"] = [*mounts, mount]
    spec["volumes"] = [*volumes, volume]


def is_mounted(mounts: list[Any], path: str) -> bool:
    known = [item for item in mounts if item is not LATER and item["mountPath"] is not LATER]
    return any(item["mountPath"].rstrip("/") == path for item in known)


def shared_memory_twice(field: str, pod: Pod) -> InvalidSpec:
    return InvalidSpec(
        field,
        f"{SHM_PATH} is already mounted, by volume_mounts or the template file",
        value=pod.shared_memory,
        advice="Remove that mount, or omit shared_memory.",
    )


def _refuse_unknown_containers(field: str, patch: Mapping[str, Any], spec: Any) -> None:
    """A container that occurs only in the patch would be a new one, without an image."""
    patched = patch.get("spec")
    if not isinstance(patched, Mapping):
        return
    for key in ("containers", "initContainers"):
        names = [item if item is LATER else item["name"] for item in listed(spec, key)]
        if spec.get(key) is LATER or LATER in names:
            continue
        for number, item in enumerate(listed(patched, key)):
            name = item if item is LATER else item["name"]
            if name not in names and name is not LATER:
                raise InvalidSpec(
                    f"{field}.spec.{key}[{number}].name",
                    "there is no such container to patch",
                    value=name,
                    advice=f"There are {', '.join(names) or 'none'}; "
                    "a new one goes into sidecars or init_containers.",
                )


def known(items: Any) -> list[Any]:
    """The items of a list. If the list is unknown, it may contain anything."""
    return [LATER] if items is LATER else list(items or [])
