"""TFJob."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.kinds import TF_JOB
from airflow_kftrain.manifests.replicated import replicated_job
from airflow_kftrain.specs.tf_job import TFJob


def build_tf_job(job: TFJob) -> dict[str, Any]:
    manifest = replicated_job(TF_JOB, job, job.replicas)
    if job.success_policy is not None:
        manifest["spec"]["successPolicy"] = job.success_policy
    if job.dynamic_workers is not None:
        manifest["spec"]["enableDynamicWorker"] = job.dynamic_workers
    return manifest
