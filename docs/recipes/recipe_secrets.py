"""Passwords and addresses that a training needs."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_kftrain import Container, FromConfigMap, FromSecret, PyTorchJobOperator

with DAG("recipe_secrets", schedule=None) as dag:
    PyTorchJobOperator(
        task_id="train",
        image="registry.example.com/team/train:1.4",
        command=["python", "train.py"],
        workers=2,
        env={
            "DB_HOST": "{{ conn.warehouse.host }}",  # Airflow's connection, nothing secret
            "DB_USER": "{{ conn.warehouse.login }}",
            "DB_PASSWORD": FromSecret("warehouse", "password"),  # Kubernetes' Secret
            "BUCKET": FromConfigMap("training", "bucket"),
            "REGION": "{{ var.value.get('region', 'eu-central-1') }}",
        },
        container=Container(env_from=[{"secretRef": {"name": "object-store"}}]),  # all its keys
        deferrable=True,
    )
