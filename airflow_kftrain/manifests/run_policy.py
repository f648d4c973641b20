"""The author's run policy, written where the kind of job has it."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.manifests.places import put
from airflow_kftrain.manifests.pod_template import pod_metadata
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.pods import Pod

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def write_run_policy(kind: JobKind, spec: dict[str, Any], policy: Any) -> None:
    """Every field that is given, an explicit 0 among them; one that the kind lacks is refused."""
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
    """Labels and annotations of the resource itself. Kueue's label stands there only: on a pod it
    would make Kueue hold back each pod by itself."""
    metadata = pod_metadata(job.pod) if isinstance(job.pod, Pod) else {}
    if job.queue_name is not None and metadata.get("labels") is not LATER:
        metadata["labels"] = {**metadata.get("labels", {}), QUEUE_LABEL: job.queue_name}
    return metadata
