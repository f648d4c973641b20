"""Pod: everything in a replica's pod except its main container. Placement: where it may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import Check, answering, check_fields, check_noun, given
from airflow_kftrain.specs.resources import check_bytes
from airflow_kftrain.specs.shapes import check_of, conform, plain
from airflow_kftrain.specs.values import annotation_map, flag, label_map, quantity, text


@answering
class Placement(NamedTuple):
    """Where the pods may run, and their priority."""

    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[Any] | None = None
    affinity: Any = None
    priority_class: str | None = None
    scheduler_name: str | None = None
    safe_to_evict: bool | None = None
    """False prevents the cluster autoscaler from evicting the pods."""


@answering
class Pod(NamedTuple):
    """The pod around the main container. Accepts Kubernetes model objects and dicts."""

    volumes: Sequence[Any] | None = None
    volume_mounts: Sequence[Any] | None = None
    """Mounts of the main container."""
    shared_memory: bool | str | None = None
    """/dev/shm in memory. True: without a limit of its own; "2Gi": with this limit; False: the 64
    MB of the container runtime. None is True for PyTorch, whose data loaders need it, else
    False."""
    placement: Placement | None = None
    service_account: str | None = None
    image_pull_secrets: Sequence[Any] | None = None
    labels: Mapping[str, str] | None = None
    """On the pods, and on the job itself."""
    annotations: Mapping[str, str] | None = None
    """On the pods, and on the job itself."""
    init_containers: Sequence[Any] | None = None
    sidecars: Sequence[Any] | None = None
    """Additional containers. A job ends when its main containers end, whatever the sidecars do."""
    template_file: str | None = None
    """A pod in YAML, like KubernetesPodOperator's `pod_template_file`: the base for everything
    else."""
    patch: Any = None
    """Merged into the finished pod template, for everything that has no field here."""


def check_pod(field: str, pod: Any) -> Any:
    """The pod with all its parts checked, as dicts."""
    if pod is LATER:
        return pod
    return check_fields(field, check_noun(field, pod, Pod), _POD_CHECKS)


def merge_pods(base: Any, over: Any) -> Any:
    """Merges the pod of a replica with that of the job: fields that the replica omits are the
    job's."""
    if base is None or over is None:
        return base or over or Pod()
    if base is LATER or over is LATER:
        return over
    return base._replace(**given(over._asdict()))


def _placement(field: str, placement: Any) -> Any:
    if placement is LATER:
        return placement
    return check_fields(field, check_noun(field, placement, Placement), _PLACEMENT_CHECKS)


def _shared_memory(field: str, value: Any) -> Any:
    try:
        return flag(field, value)
    except InvalidSpec:
        if isinstance(value, str):
            amount = quantity(field, value)
            check_bytes(field, amount)
            return amount
        raise InvalidSpec(
            field, "must be True, False or an amount", value=value, advice="For example: '2Gi'."
        ) from None


def _pull_secrets(field: str, value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = [{"name": item} if isinstance(item, str) else item for item in value]
    return conform(value, "[LocalReference]", field)


def _patch(field: str, patch: Any) -> Any:
    patch = plain(patch)
    if patch is LATER:
        return patch
    if not isinstance(patch, Mapping) or not set(patch) <= {"metadata", "spec"}:
        raise InvalidSpec(
            field,
            "must be a pod template, {'metadata': ..., 'spec': ...}",
            value=patch,
            advice="Put fields of the pod under 'spec'.",
        )
    # Unchanged, since a None in a patch removes a field.
    conform(patch, "PodTemplatePart", field)
    return patch


_POD_CHECKS: dict[str, Check] = {
    "volumes": check_of("[Volume]"),
    "volume_mounts": check_of("[VolumeMount]"),
    "shared_memory": _shared_memory,
    "placement": _placement,
    "service_account": text,
    "image_pull_secrets": _pull_secrets,
    "labels": label_map,
    "annotations": annotation_map,
    "init_containers": check_of("[Container]"),
    "sidecars": check_of("[Container]"),
    "template_file": text,
    "patch": _patch,
}
_PLACEMENT_CHECKS: dict[str, Check] = {
    "node_selector": label_map,
    "tolerations": check_of("[Toleration]"),
    "affinity": check_of("mapping"),
    "priority_class": text,
    "scheduler_name": text,
    "safe_to_evict": flag,
}
