"""TrainJob: settings for the trainer, and a patch of the runtime for what concerns its pods.

The runtime is used as its platform team made it. A throw-away copy of it would let us set restart
policy, retries and the termination message, but costs two more API calls a submit and rights on
runtimes, leaks when the worker dies in between, and hides the team's later fixes. So retries stay
the runtime's, and what a failure leaves is read from the pods while they live.
"""

from __future__ import annotations

from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import TRAIN_JOB
from airflow_kftrain.manifests.patching import merge
from airflow_kftrain.manifests.places import PATCH_MANAGER, own_patch
from airflow_kftrain.manifests.pod_template import (
    SHM_PATH,
    is_mounted,
    known,
    placement_fields,
    pod_metadata,
    safe_to_evict,
    shared_memory_twice,
    shared_memory_volume,
)
from airflow_kftrain.manifests.run_policy import job_metadata, write_run_policy
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import given
from airflow_kftrain.specs.pods import Placement, Pod
from airflow_kftrain.specs.train_job import Initializer, Source, TrainJob


def build_train_job(job: TrainJob) -> dict[str, Any]:
    spec: dict[str, Any] = {"runtimeRef": _runtime_ref(job.runtime)}
    write_run_policy(TRAIN_JOB, spec, job.run_policy)
    if isinstance(job.initializer, Initializer):
        spec["initializer"] = _initializer(job.initializer)
    spec["trainer"] = _trainer(job)
    spec["runtimePatches"] = _author_patches(job.runtime_patches or [])
    manifest: dict[str, Any] = {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": TRAIN_JOB.kind,
        "metadata": job_metadata(job),
        "spec": spec,
    }
    if isinstance(job.pod, Pod):
        _write_pod(manifest, job.pod)
    return manifest


def _author_patches(patches: Any) -> list[Any]:
    if patches is LATER:
        return [LATER]
    for number, patch in enumerate(patches):
        if patch is not LATER and patch["manager"] == PATCH_MANAGER:
            raise InvalidSpec(
                f"runtime_patches[{number}].manager",
                "is the name under which this package patches",
                value=PATCH_MANAGER,
                advice="Use another, or the field pod.",
            )
    return list(patches)


def _runtime_ref(runtime: Any) -> Any:
    if runtime is LATER:
        return runtime
    return {"apiGroup": TRAIN_JOB.group, "kind": runtime.kind, "name": runtime.name}


def _trainer(job: TrainJob) -> dict[str, Any]:
    """Always present, even if empty: without it the runtime's variables are not given to pods."""
    written = {
        "image": job.image,
        "command": job.command,
        "args": job.args,
        "env": job.env,
        "numNodes": job.num_nodes,
        "numProcPerNode": job.num_proc_per_node,
        "resourcesPerNode": job.container_resources,
    }
    return given(written)


def _initializer(initializer: Initializer) -> dict[str, Any]:
    steps = {"dataset": initializer.dataset, "model": initializer.model}
    return {name: _source(source) for name, source in steps.items() if source is not None}


def _source(source: Source) -> Any:
    if source is LATER:
        return source
    written = {
        "storageUri": source.uri,
        "env": source.env,
        "secretRef": None if source.secret is None else {"name": source.secret},
    }
    return given(written)


def _write_pod(manifest: dict[str, Any], pod: Pod) -> None:
    placement = pod.placement if isinstance(pod.placement, Placement) else Placement()
    metadata = pod_metadata(pod)
    annotations = safe_to_evict(placement)
    if annotations and metadata.get("annotations") is not LATER:
        metadata = merge({"annotations": annotations}, metadata)
    volumes, mounts = known(pod.volumes), known(pod.volume_mounts)
    if pod.shared_memory not in (None, False, LATER):
        if is_mounted(mounts, SHM_PATH):
            raise shared_memory_twice("pod.shared_memory", pod)
        volume, mount = shared_memory_volume(pod)
        volumes, mounts = [*volumes, volume], [*mounts, mount]
    written = {
        "serviceAccountName": pod.service_account,
        "imagePullSecrets": pod.image_pull_secrets,
        "volumes": volumes or None,
        "containers": [{"name": TRAIN_JOB.container, "volumeMounts": mounts}] if mounts else None,
        **placement_fields(placement),
    }
    patch = {
        "metadata": metadata,
        "spec": given(written),
    }
    if pod.patch is not None and pod.patch is not LATER:
        patch = merge(patch, pod.patch)
    own_patch(TRAIN_JOB, manifest).update({key: part for key, part in patch.items() if part})
