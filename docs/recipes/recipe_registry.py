"""An image of a registry that asks for a password."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_kftrain import Container, Pod, PyTorchJobOperator

with DAG("recipe_registry", schedule=None) as dag:
    PyTorchJobOperator(
        task_id="train",
        image="registry.example.com/team/train:1.4",
        command=["python", "train.py"],
        workers=2,
        pod=Pod(image_pull_secrets=["registry"]),  # a Secret in the namespace of the job
        container=Container(image_pull_policy="IfNotPresent"),
        deferrable=True,
    )
