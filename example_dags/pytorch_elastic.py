"""An elastic PyTorchJob: two or three nodes under torchrun, as many as there is room for.

If torch is not installed, `stand_ins/torchrun` replaces torchrun on the embedded cluster.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from airflow_kftrain import Elastic, PyTorchJobOperator, Resources

FIT = (Path(__file__).parent / "programs" / "fit.py").read_text(encoding="utf-8")

with DAG("pytorch_elastic", schedule=None) as dag:
    # --8<-- [start:task]
    train = PyTorchJobOperator(
        task_id="train",
        image="pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime",
        command=["python", "-c", FIT],  # torchrun starts it
        elastic=Elastic(nodes="2:3", max_restarts=3),
        container_resources=Resources(cpu=1, memory="512Mi"),
        deferrable=True,
    )
    # --8<-- [end:task]
