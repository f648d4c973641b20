"""The same job as a task of the peer's, at its default interval and at its best."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.sdk import DAG

for seconds in (10, 1):
    with DAG(f"peer_{seconds}", schedule=None) as dag:
        KubernetesJobOperator(
            task_id="train",
            name="train",
            image="busybox",
            cmds=["sh", "-c", "until [ -e {{ dag_run.conf.gate }} ]; do sleep 0.1; done"],
            deferrable=True,
            wait_until_job_complete=True,
            job_poll_interval=seconds,
            # It asks without a pause for the pod of the job it has just created, 4 times by
            # default, and fails if it is not there yet.
            discover_pods_retry_number=200,
        )
    globals()[dag.dag_id] = dag
