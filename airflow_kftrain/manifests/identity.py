"""Marks a job with its owner: labels to find it, annotations that name the owner, and variables for
its program.

The identity (instance, DAG, run, task, map index and, in a task loop, region) is the same for all
tries of a task instance. The owner (`ti_id`) is one try. Jobs are adopted and deleted only by
these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from airflow_kftrain.kinds import JobKind
from airflow_kftrain.manifests.naming import job_name, label_safe, short_hash
from airflow_kftrain.manifests.places import env_holders, pod_templates, put
from airflow_kftrain.specs.later import LATER

PREFIX = "airflow-kftrain"
INSTANCE_LABEL = f"{PREFIX}/instance"
IDENTITY_LABEL = f"{PREFIX}/identity"
OWNER_ANNOTATION = f"{PREFIX}/owner"
TRY_ANNOTATION = f"{PREFIX}/try"
GENERATION_ANNOTATION = f"{PREFIX}/generation"
CLEARS_ANNOTATION = f"{PREFIX}/clears"
DIGEST_ANNOTATION = f"{PREFIX}/digest"
DELIVERED_ANNOTATION = f"{PREFIX}/delivered"
"""A try has received the end of the job."""
UNATTENDED_ANNOTATION = f"{PREFIX}/unattended"
"""The task does not wait for its job, so a job without a waiting task is not an orphan."""
BUNDLE_ANNOTATION = f"{PREFIX}/bundle"
BUNDLE_VERSION_ANNOTATION = f"{PREFIX}/bundle-version"
"""For people: which version of the DAG file has trained this?"""
REGION_ID_ANNOTATION = f"{PREFIX}/region-id"
REGION_INDEX_ANNOTATION = f"{PREFIX}/region-index"

RUN_ID_VARIABLE = "KFTRAIN_RUN_ID"
ATTEMPT_VARIABLE = "KFTRAIN_ATTEMPT"
RESULT_VARIABLE = "KFTRAIN_RESULT_FILE"
_TERMINATION_LOG = "/dev/termination-log"


class Owner(NamedTuple):
    """One try of one task instance of one Airflow."""

    instance: str
    """The name of the Airflow, since several may share a namespace."""
    dag_id: str
    task_id: str
    run_id: str
    ti_id: str
    """Airflow's id of the task instance, new for each try."""
    map_index: int = -1
    try_number: int = 1
    clears: int = 0
    """`max_tries - retries`: grows when the task is cleared, not when it is retried."""
    region_id: str = ""
    """For a task in a task loop (Airflow 3.4), whose iterations share all fields above but `ti_id`.
    "" outside of loops."""
    region_index: int = -1
    """The iteration; for a mapped task in a loop, the map index."""
    generation: int = 0
    """How often this try has run the job again after a disruption."""

    @property
    def identity(self) -> str:
        """The same for all tries, and different for everything else. Without a region it is
        computed as before regions existed, since jobs outlive upgrades."""
        place = (self.instance, self.dag_id, self.run_id, self.task_id, self.map_index)
        return _hash((*place, self.region_id, self.region_index) if self.region_id else place)


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Equal for manifests that ask for the same, whatever the order of their keys, their name and
    their owner. Compute it before `attach`, which writes the name and the owner to many places."""
    metadata = dict(manifest.get("metadata", {}))
    for key in ("name", "generateName"):
        metadata.pop(key, None)
    return _hash({**manifest, "metadata": metadata})


def attach(kind: JobKind, manifest: dict[str, Any], owner: Owner) -> None:
    """Writes the owner into a finished manifest, in place."""
    digest = manifest_digest(manifest)
    labels = owner_labels(owner)
    given = manifest["metadata"]
    own_name = given.pop("name", "") or given.pop("generateName", "")
    given.pop("generateName", None)
    name = job_name(
        kind, manifest["spec"], (own_name,) if own_name else _readable(owner), _unique(owner)
    )
    annotations = {**owner_annotations(owner), DIGEST_ANNOTATION: digest}
    manifest["metadata"] = {
        "name": name,
        **given,
        "labels": {**given.get("labels", {}), **labels},
        "annotations": {**given.get("annotations", {}), **annotations},
    }
    if kind.rendezvous_id and kind.elastic_key in manifest["spec"]:
        put(manifest["spec"], kind.rendezvous_id, name)
    for template in pod_templates(kind, manifest):
        template_metadata = template.setdefault("metadata", {})
        template_metadata["labels"] = {**template_metadata.get("labels", {}), **labels}
    for container in env_holders(kind, manifest):
        _add_variables(container, owner)


def owner_labels(owner: Owner) -> dict[str, str]:
    labels = {
        INSTANCE_LABEL: label_safe(owner.instance),
        IDENTITY_LABEL: owner.identity,
        # With the names that KubernetesPodOperator uses, for people with kubectl.
        "dag_id": label_safe(owner.dag_id),
        "task_id": label_safe(owner.task_id),
        "run_id": label_safe(owner.run_id),
    }
    if owner.map_index >= 0:
        labels["map_index"] = str(owner.map_index)
    return labels


def owner_annotations(owner: Owner) -> dict[str, str]:
    """The full values, since a label may be a hash: enough to ask Airflow for the state of the
    task."""
    annotations = {
        OWNER_ANNOTATION: owner.ti_id,
        TRY_ANNOTATION: str(owner.try_number),
        CLEARS_ANNOTATION: str(owner.clears),
        f"{PREFIX}/instance": owner.instance,
        f"{PREFIX}/dag-id": owner.dag_id,
        f"{PREFIX}/task-id": owner.task_id,
        f"{PREFIX}/run-id": owner.run_id,
        f"{PREFIX}/map-index": str(owner.map_index),
    }
    if owner.generation:
        annotations[GENERATION_ANNOTATION] = str(owner.generation)
    if owner.region_id:
        annotations[REGION_ID_ANNOTATION] = owner.region_id
        annotations[REGION_INDEX_ANNOTATION] = str(owner.region_index)
    return annotations


def _unique(owner: Owner) -> str:
    """What no other job has in common with it."""
    return f"{owner.ti_id}/{owner.generation}" if owner.generation else owner.ti_id


def _readable(owner: Owner) -> tuple[str, ...]:
    task = owner.task_id if owner.map_index < 0 else f"{owner.task_id}-{owner.map_index}"
    return (owner.dag_id, task)


def _add_variables(container: dict[str, Any], owner: Owner) -> None:
    """Adds our variables. The author's own variables win."""
    variables = {
        "AIRFLOW_CTX_DAG_ID": owner.dag_id,
        "AIRFLOW_CTX_TASK_ID": owner.task_id,
        "AIRFLOW_CTX_DAG_RUN_ID": owner.run_id,
        "AIRFLOW_CTX_TRY_NUMBER": str(owner.try_number),
        RUN_ID_VARIABLE: owner.identity,
        ATTEMPT_VARIABLE: str(owner.try_number + owner.generation),
        RESULT_VARIABLE: container.get("terminationMessagePath", _TERMINATION_LOG),
        # Otherwise Python keeps what is printed until 8 KiB are full: a healthy job looks silent.
        "PYTHONUNBUFFERED": "1",
    }
    env = container.setdefault("env", [])
    if env is LATER:
        return
    taken = {item["name"] for item in env}
    env.extend(
        {"name": name, "value": value} for name, value in variables.items() if name not in taken
    )


def _hash(value: Any) -> str:
    import json  # only needed when a job is named, not when a DAG file is parsed

    # A manifest with LATER in it is only rendered, never submitted: any text does.
    return short_hash(json.dumps(value, sort_keys=True, default=repr), 32)
