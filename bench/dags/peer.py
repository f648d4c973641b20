"""The same job as a task of the peer, with its default interval and with its best one."""

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
            # It asks for the pod of the job that it has just created, without a pause, 4 times by
            # default, and fails if the pod does not exist yet.
            discover_pods_retry_number=200,
        )
    globals()[dag.dag_id] = dag
