"""A TFJob with a chief, a parameter server and two workers."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from airflow_kftrain import Replica, Resources, TFJobOperator

COUNT_PEERS = (Path(__file__).parent / "programs" / "count_peers.py").read_text(encoding="utf-8")

with DAG("tf_job", schedule=None) as dag:
    # --8<-- [start:task]
    train = TFJobOperator(
        task_id="train",
        image="python:3.12-slim",
        command=["python", "-c", COUNT_PEERS],
        container_resources=Resources(cpu=1, memory="512Mi"),
        chief=Replica(),
        ps=Replica(),
        worker=Replica(count=2),
        deferrable=True,
    )
    # --8<-- [end:task]
