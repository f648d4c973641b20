"""Training on one cluster, evaluation on another."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_kftrain import PyTorchJobOperator, Resources

with DAG("recipe_clusters", schedule=None) as dag:
    train = PyTorchJobOperator(
        task_id="train",
        kubernetes_conn_id="gpu_cluster",
        image="registry.example.com/team/train:1.4",
        command=["python", "train.py"],
        workers=3,
        container_resources=Resources(gpu=1),
        deferrable=True,
    )
    evaluate = PyTorchJobOperator(
        task_id="evaluate",
        kubernetes_conn_id="cpu_cluster",
        namespace="evaluation",  # instead of the connection's
        image="registry.example.com/team/train:1.4",
        command=["python", "evaluate.py"],
        workers=0,
        deferrable=True,
    )
    train >> evaluate
