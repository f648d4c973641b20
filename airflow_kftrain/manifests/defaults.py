"""Defaults for everything that the author omits, in built and raw manifests alike.

With the operators' own defaults, jobs leak GPUs, restart for ever or lose the cause of a failure. A
comment gives the reason for each default. All functions change the manifest in place: it is our
copy.
"""

from __future__ import annotations

from typing import Any

from airflow_kftrain.kinds import JobKind
from airflow_kftrain.manifests.places import (
    containers_of,
    get,
    is_queued,
    own_patches,
    put,
    role_groups,
    templates_by_path,
)
from airflow_kftrain.specs.later import LATER

_DAY = 24 * 60 * 60
_ISTIO = "sidecar.istio.io/inject"


def complete(kind: JobKind, manifest: dict[str, Any]) -> None:
    """Fills in the defaults."""
    spec = manifest["spec"]
    _run_policy(kind, spec)
    _groups(kind, manifest)
    if kind.template_key:
        put(spec, f"{kind.template_key}.spec.restartPolicy", "Never")
    for _, template in templates_by_path(kind, manifest):
        _pod(kind, spec, template)
    if kind.trainer_key:
        # Without it the runtime does not give its variables to the pods.
        spec.setdefault(kind.trainer_key, {})
        if not is_queued(manifest):
            for patch in own_patches(kind, manifest):
                _no_istio(patch)


def _run_policy(kind: JobKind, spec: dict[str, Any]) -> None:
    paths = kind.run_policy
    if "clean_pods" in paths:
        # The operator's own default, None, leaves workers running with their GPUs when the master
        # has ended. An MPIJob v1 has a second field for it, of lower priority.
        put(spec, paths["clean_pods"], spec.get("cleanPodPolicy") or "Running")
    if kind.ttl_default:
        put(spec, paths["ttl"], _DAY)
    # With a limit for each index, the limit for all has to stay open.
    if kind.backoff_default is not None and spec.get("backoffLimitPerIndex") is None:
        put(spec, paths["backoff_limit"], kind.backoff_default)


def _groups(kind: JobKind, manifest: dict[str, Any]) -> None:
    spec = manifest["spec"]
    for role, group in role_groups(kind, manifest).items():
        if group.get("replicas") == 0:
            del spec[kind.replicas_key][role]
    restarting = _restarts(kind, spec)
    elastic = spec.get(kind.elastic_key) if kind.elastic_key else None
    for role, group in role_groups(kind, manifest).items():
        group.setdefault("restartPolicy", "OnFailure" if restarting else "Never")
        # If it is omitted, a webhook rejects the job for some roles, and an MPIJob gets 0 workers.
        group.setdefault("replicas", _count(kind, role, elastic))


def _count(kind: JobKind, role: str, elastic: Any) -> Any:
    if elastic is LATER:
        return LATER
    if not elastic or any(row.name == role and row.single for row in kind.roles):
        return 1
    return elastic.get("maxReplicas") or elastic.get("minReplicas") or 1


def _restarts(kind: JobKind, spec: dict[str, Any]) -> bool:
    """Whether containers must restart in place: otherwise a limit on their restarts has no effect,
    and an elastic job ends with the first worker that it loses."""
    if kind.elastic_key and spec.get(kind.elastic_key) is not None:
        return True
    limit = get(spec, kind.run_policy.get("backoff_limit", ""))
    counts = kind.backoff_counts == "container restarts"
    return counts and isinstance(limit, int) and limit > 0


def _pod(kind: JobKind, spec: dict[str, Any], template: dict[str, Any]) -> None:
    _no_istio(template)
    deadline = get(spec, kind.run_policy.get("active_deadline", ""))
    if kind.pod_deadline and deadline is not None:
        # The operator checks its own deadline only when something else happens to the job.
        put(template, "spec.activeDeadlineSeconds", deadline)
    for _, container in containers_of(template):
        # The end of the log becomes the termination message, which outlives the log.
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")


def _no_istio(template: dict[str, Any]) -> None:
    """A sidecar proxy never ends, so the pod would not end either. Ranks do not need it."""
    metadata = template.setdefault("metadata", {})
    if metadata is LATER:
        return
    annotations = metadata.setdefault("annotations", {})
    if annotations is not LATER:
        metadata["annotations"] = {_ISTIO: "false", **annotations}
