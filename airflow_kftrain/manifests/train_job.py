"""TrainJob: settings for the trainer, and a patch of the runtime for everything else about its
pods.

The runtime is used as the platform team has made it. docs/architecture.md says why it is not
copied: retries remain a matter of the runtime, and what a failure leaves behind is read while the
pods exist.
"""

from __future__ import annotations

from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import TRAIN_JOB
from airflow_kftrain.manifests.mpi_job import mpirun_words
from airflow_kftrain.manifests.patching import merge
from airflow_kftrain.manifests.places import LAUNCHER, PATCH_MANAGER, own_patch, own_patches
from airflow_kftrain.manifests.pod_template import (
    SHM_PATH,
    container_fields,
    is_mounted,
    known,
    placement_fields,
    pod_metadata,
    safe_to_evict,
    shared_memory_twice,
    shared_memory_volume,
)
from airflow_kftrain.manifests.run_policy import job_metadata, write_run_policy
from airflow_kftrain.specs.containers import Container
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
    if job.runtime_patches is not None:
        spec["runtimePatches"] = _author_patches(job.runtime_patches)
    manifest: dict[str, Any] = {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": TRAIN_JOB.kind,
        "metadata": job_metadata(job),
        "spec": spec,
    }
    if job.mpirun is not None:
        own_patch(TRAIN_JOB, manifest)
        own_patch(TRAIN_JOB, manifest, LAUNCHER)
    if isinstance(job.pod, Pod) or isinstance(job.container, Container):
        pod = job.pod if isinstance(job.pod, Pod) else Pod()
        for patch in own_patches(TRAIN_JOB, manifest):
            patch.update(_pod_patch(pod, container_fields(job.container)))
    return manifest


def _author_patches(patches: Any) -> list[Any]:
    if patches is LATER:
        return [LATER]
    for number, patch in enumerate(patches):
        if patch is not LATER and patch["manager"] == PATCH_MANAGER:
            raise InvalidSpec(
                f"runtime_patches[{number}].manager",
                "is reserved for the patches of this package",
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
        "command": _command(job),
        "args": job.args,
        "env": job.env,
        "numNodes": job.num_nodes,
        "numProcPerNode": job.num_proc_per_node,
        "resourcesPerNode": job.container_resources,
    }
    return given(written)


def _command(job: TrainJob) -> Any:
    """Without a number of ranks there are as many as the runtime's hosts have slots."""
    if job.mpirun is None:
        return job.command
    if job.command is None:
        raise InvalidSpec(
            "command",
            "is required: mpirun has to know what to start",
            advice="Write command=['python', 'train.py'], say.",
        )
    if LATER in (job.command, job.mpirun):
        return LATER
    return [*mpirun_words(job.mpirun, None, job.env or [], None), *job.command]


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


def _pod_patch(pod: Pod, main: dict[str, Any]) -> dict[str, Any]:
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
    if mounts:
        main["volumeMounts"] = mounts
    written = {
        "serviceAccountName": pod.service_account,
        "imagePullSecrets": pod.image_pull_secrets,
        "volumes": volumes or None,
        "containers": [{"name": TRAIN_JOB.container, **main}] if main else None,
        **placement_fields(placement),
    }
    patch = {
        "metadata": metadata,
        "spec": given(written),
    }
    if pod.patch is not None and pod.patch is not LATER:
        patch = merge(patch, pod.patch)
    return {key: part for key, part in patch.items() if part}
