"""A TrainJob of Kubeflow Trainer v2: the runtime says how, the task says what."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from airflow_kftrain import Resources, TrainJobOperator

FIT = (Path(__file__).parent / "programs" / "fit.py").read_text(encoding="utf-8")

with DAG("train_job", schedule=None) as dag:
    # --8<-- [start:task]
    train = TrainJobOperator(
        task_id="train",
        runtime="torch-distributed",  # also sets the image, since none is given here
        command=["python", "-c", FIT],
        num_nodes=2,
        container_resources=Resources(cpu=1, memory="512Mi"),
        deferrable=True,
    )
    # --8<-- [end:task]
