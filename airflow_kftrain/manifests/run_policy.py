"""Writes the author's run policy into the manifest, at the places where the kind has it."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import PRIORITY_LABEL, QUEUE_LABEL, JobKind
from airflow_kftrain.manifests.places import put
from airflow_kftrain.manifests.pod_template import metadata_with_file
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import given
from airflow_kftrain.specs.pods import Pod


def write_run_policy(kind: JobKind, spec: dict[str, Any], policy: Any) -> None:
    """Writes every field that is given, even an explicit 0. A field that the kind does not have is
    rejected."""
    if policy is None or policy is LATER:
        return
    for name, value in policy._asdict().items():
        if value is None:
            continue
        if name not in kind.run_policy:
            raise InvalidSpec(
                f"run_policy.{name}",
                f"{kind.kind} has no such setting",
                value=value,
                advice=f"It has {', '.join(kind.run_policy)}.",
            )
        put(spec, kind.run_policy[name], value)


def job_metadata(job: JobSpec) -> dict[str, Any]:
    """Labels and annotations of the resource itself. Only the resource gets Kueue's labels: with
    them, Kueue would queue each pod separately."""
    pod = job.pod if isinstance(job.pod, Pod) else Pod()
    metadata = metadata_with_file("pod.template_file", pod)
    of_kueue = given({QUEUE_LABEL: job.queue_name, PRIORITY_LABEL: job.queue_priority})
    if of_kueue and metadata.get("labels") is not LATER:
        metadata["labels"] = {**metadata.get("labels", {}), **of_kueue}
    return metadata
