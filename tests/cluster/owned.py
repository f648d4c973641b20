"""Jobs that belong to a task, as its worker creates them, and the connection to their cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_kftrain import Owner, RawManifest, build_manifest
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.manifests.identity import owner_annotations
from airflow_kftrain.messages import WatchOrder
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.world import Job, World
from tests.control_plane.api import Manifest

CONNECTION = "cluster"
FIRST = Owner("ml-production", "nightly", "train", "manual__1", "ti-1")
RETRY = FIRST._replace(ti_id="ti-2", try_number=2)


def connection(kubeconfig: Path, namespace: str) -> tuple[str, str]:
    """An environment variable that defines the connection CONNECTION."""
    extra = {"kube_config_path": str(kubeconfig), "namespace": namespace}
    return "AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "kubernetes", "extra": extra})


def owned_job(script: str = "sleep 120", owner: Owner = FIRST, **annotations: str) -> Manifest:
    raw = RawManifest(pytorch_job({"Master": replica("pytorch", script)}))
    manifest = build_manifest(raw, owner=owner)
    manifest["metadata"]["annotations"] |= annotations
    return manifest


def order_for(world: World, job: Job, owner: Owner = FIRST, **fields: Any) -> WatchOrder:
    """The order that the worker gives to the trigger."""
    reference = JobReference(
        "PyTorchJob", world.namespace, job.name, job.created["metadata"]["uid"]
    )
    order = WatchOrder(reference, "kubeflow.org/v1", CONNECTION, owner.instance, owner.ti_id)
    return order._replace(**fields)


def adopt(job: Job, owner: Owner) -> None:
    """As a newer try adopts a job."""
    job.patch({"metadata": {"annotations": owner_annotations(owner)}})
