"""A PyTorchJob whose master differs from its workers, with limits of every kind."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_kftrain import PyTorchJobOperator, Replica, Resources, RunPolicy, Timeouts

FIT = (Path(__file__).parent / "programs" / "fit.py").read_text(encoding="utf-8")

with DAG("pytorch_roles", schedule=None) as dag:
    # --8<-- [start:task]
    train = PyTorchJobOperator(
        task_id="train",
        # A field that a replica omits is taken from the job.
        image="python:3.12-slim",
        command=["python", "-c", FIT],
        env={"LOG_LEVEL": "info"},
        master=Replica(container_resources=Resources(cpu=2, memory="1Gi")),
        worker=Replica(
            count=3,
            container_resources=Resources(cpu=("250m", 1), memory="512Mi"),  # request, limit
            env={"LOG_LEVEL": "warning"},
        ),
        run_policy=RunPolicy(active_deadline=timedelta(hours=6), ttl=timedelta(hours=1)),
        timeouts=Timeouts(startup=timedelta(minutes=10)),
        execution_timeout=timedelta(hours=7),
        deferrable=True,
    )
    # --8<-- [end:task]
