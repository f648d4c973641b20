"""A sweep: a job for each learning rate, and the best result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from airflow_kftrain import PyTorchJobOperator, Resources

FIT = (Path(__file__).parent / "programs" / "fit.py").read_text(encoding="utf-8")

with DAG("mapped_jobs", schedule=None) as dag:
    # --8<-- [start:task]
    train = PyTorchJobOperator.partial(
        task_id="train",
        image="python:3.12-slim",
        workers=1,
        deferrable=True,
    ).expand_kwargs(
        [
            {
                "command": ["python", "-c", FIT, rate],
                "container_resources": Resources(cpu=cpus, memory="512Mi"),
            }
            for rate, cpus in [(0.05, 1), (0.1, 1), (0.5, 2)]
        ]
    )

    @task
    def best(results: list[dict[str, Any]]) -> dict[str, Any]:
        return min(results, key=lambda result: result["loss"])

    best(train.output)
    # --8<-- [end:task]
