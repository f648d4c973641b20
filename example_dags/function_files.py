"""A function with a file beside the DAG file, a function of an installed package, and a program
that is not in the image."""

from __future__ import annotations

import os
from statistics import linear_regression  # or any other package that is in the image

from airflow.sdk import DAG, task

from airflow_kftrain import Code, PyTorchJobOperator

with DAG("function_files", schedule=None) as dag:
    # --8<-- [start:task]
    @task.pytorch(
        image="python:3.12-slim",
        workers=1,
        code=Code(files=["programs/points.py"]),  # relative to the DAG file
        deferrable=True,
    )
    def train(count: int) -> dict[str, float]:
        from programs.points import points

        slope, _ = linear_regression(*zip(*points(0, count), strict=True))
        return {"slope": slope, "processes": int(os.environ["WORLD_SIZE"])}

    train(200)
    # --8<-- [end:task]

    # --8<-- [start:package]
    fit = task.pytorch(task_id="fit", image="python:3.12-slim", workers=0, deferrable=True)
    fit(linear_regression)([1, 2, 3], [2, 4, 6])
    # --8<-- [end:package]

    # --8<-- [start:command]
    PyTorchJobOperator(
        task_id="program",
        image="python:3.12-slim",
        command=["python3", "programs/fit.py", "0.5"],
        code=Code(files=["programs/"]),
        workers=1,
        deferrable=True,
    )
    # --8<-- [end:command]
