"""A function under torchrun, on two or three nodes.

If torch is not installed, `stand_ins/torchrun` replaces torchrun on the embedded cluster.
"""

from __future__ import annotations

import os

from airflow.sdk import DAG, task

from airflow_kftrain import Code, Elastic

with DAG("function_elastic", schedule=None) as dag:
    # --8<-- [start:task]
    @task.pytorch(
        image="pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime",
        elastic=Elastic(nodes="2:3", max_restarts=3),
        code=Code(fatal=["ValueError"]),  # after which a retry cannot help
        retries=2,
        deferrable=True,
    )
    def train(epochs: int) -> dict[str, int]:
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {epochs}")
        return {"epochs": epochs, "processes": int(os.environ["WORLD_SIZE"])}

    train(3)
    # --8<-- [end:task]
