"""A PyTorchJob from a DAG: the manifest is built here, the cncf.kubernetes provider creates it.

This only submits. Waiting, links, logs and safe ends come with this provider's own operators.
"""

from __future__ import annotations

from datetime import timedelta

import yaml
from airflow.providers.cncf.kubernetes.operators.resource import KubernetesCreateResourceOperator
from airflow.sdk import DAG, get_current_context, task

from airflow_kftrain import Owner, PyTorchJob, Resources, RunPolicy, build_manifest


@task
def manifest() -> str:
    """The job as YAML, with a name of its own for each try."""
    ti = get_current_context()["ti"]
    job = PyTorchJob(
        image="registry.example.com/train:1.4",
        command=["python", "train.py"],
        workers=4,
        container_resources=Resources(cpu=8, memory="32Gi", gpu=1),
        run_policy=RunPolicy(backoff_limit=2, active_deadline=timedelta(hours=6)),
    )
    owner = Owner(
        instance="example",
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        ti_id=str(ti.id),
        map_index=ti.map_index,
        try_number=ti.try_number,
    )
    return yaml.safe_dump(build_manifest(job, owner=owner, namespace="ml"))


with DAG("first_job", schedule=None, catchup=False) as dag:
    KubernetesCreateResourceOperator(
        task_id="train",
        yaml_conf=manifest(),
        custom_resource_definition=True,
    )
