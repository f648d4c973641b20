"""A program beside the DAG file."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_kftrain import Code, PyTorchJobOperator

with DAG("recipe_code_files", schedule=None) as dag:
    # --8<-- [start:task]
    PyTorchJobOperator(
        task_id="train",
        image="pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime",
        command=["python", "programs/train.py"],
        code=Code(files=["programs/train.py"]),  # beside this DAG file
        workers=2,
        deferrable=True,
    )
    # --8<-- [end:task]
