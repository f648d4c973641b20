"""One task of ours. Its job continues until a file exists that the run names."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_kftrain import PyTorchJobOperator

with DAG("ours", schedule=None) as dag:
    PyTorchJobOperator(
        task_id="train",
        image="busybox",
        command=["sh", "-c", "until [ -e {{ dag_run.conf.gate }} ]; do sleep 0.1; done"],
        workers=0,  # in addition to the one master
        deferrable=True,
    )
