"""A Python function as a distributed job, once for each learning rate; then the best result.

Each process calls the function, and the task returns the value of rank 0. The image needs only
Python.
"""

from __future__ import annotations

import json
import os
from typing import Any

from airflow.sdk import DAG, task

from airflow_kftrain import Resources

with DAG("function_job", schedule=None) as dag:
    # --8<-- [start:task]
    @task.pytorch(
        image="python:3.12-slim",
        workers=2,  # in addition to the one master
        container_resources=Resources(cpu=1, memory="512Mi"),
        deferrable=True,
    )
    def train(rate: float, steps: int = 50, ds: str | None = None) -> dict[str, Any]:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        slope = 0.0
        for step in range(steps):
            slope -= rate * 2 * (slope - 3)
            if step % 10 == 0:
                print(json.dumps({"rank": rank, "step": step, "slope": slope}))
        return {"rate": rate, "loss": (slope - 3) ** 2, "processes": world, "day": ds}

    @task
    def best(results: list[dict[str, Any]]) -> dict[str, Any]:
        return min(results, key=lambda result: result["loss"])

    best(train.expand(rate=[0.001, 0.01, 0.1]))
    # --8<-- [end:task]
