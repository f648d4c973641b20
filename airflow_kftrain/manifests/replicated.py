"""What all kinds with roles have in common: replica groups, run policy and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.kinds import JobKind
from airflow_kftrain.manifests.pod_template import pod_template
from airflow_kftrain.manifests.run_policy import job_metadata, write_run_policy
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import given


def replicated_job(kind: JobKind, job: JobSpec, replicas: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a job with these `replicas` by role."""
    # Always present: Kubeflow's own client cannot read a job without it.
    spec: dict[str, Any] = {"runPolicy": {}}
    write_run_policy(kind, spec, job.run_policy)
    spec[kind.replicas_key] = {
        role: LATER if replica is LATER else _group(kind, job, role, replica)
        for role, replica in replicas.items()
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": job_metadata(job),
        "spec": spec,
    }


def _group(kind: JobKind, job: JobSpec, role: str, replica: Any) -> dict[str, Any]:
    group = {
        "replicas": replica.count,
        "restartPolicy": replica.restart_policy,
        "template": pod_template(kind, kind.role(role), job, replica),
    }
    return given(group)
