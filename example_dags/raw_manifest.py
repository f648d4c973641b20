"""A job from a YAML file beside this one: for kinds without an operator, and existing manifests."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_kftrain import TrainingJobOperator

with DAG("raw_manifest", schedule=None, params={"words": 3}) as dag:
    # --8<-- [start:task]
    train = TrainingJobOperator(
        task_id="train",
        manifest="raw_manifest.yaml",  # its templates are rendered
        deferrable=True,
    )
    # --8<-- [end:task]
