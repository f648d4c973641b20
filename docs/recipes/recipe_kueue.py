"""A job that waits in a queue of Kueue until the cluster has room for all of it."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_kftrain import PyTorchJobOperator, Resources, RunPolicy, Timeouts

with DAG("recipe_kueue", schedule=None) as dag:
    PyTorchJobOperator(
        task_id="train",
        image="registry.example.com/team/train:1.4",
        command=["python", "train.py"],
        workers=3,
        queue_name="research",  # a LocalQueue in the namespace of the job
        queue_priority="urgent",  # a WorkloadPriorityClass
        timeouts=Timeouts(queue=timedelta(days=2)),
        container_resources=Resources(cpu=8, memory="64Gi", gpu=1),
        run_policy=RunPolicy(active_deadline=timedelta(hours=12)),  # without the time in the queue
        namespace="ml",
        deferrable=True,
    )
