"""A PyTorchJob: one master and two identical workers.

The programs of these examples need nothing but Python, so they also run on the embedded cluster
(`airflow-kftrain local up`): it runs commands as processes of this machine, and ignores images.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from airflow_kftrain import PyTorchJobOperator, Resources

# An image of your own contains the program: command=["python", "train.py"].
FIT = (Path(__file__).parent / "programs" / "fit.py").read_text(encoding="utf-8")

with DAG("pytorch_job", schedule=None, params={"rate": 0.5}) as dag:
    # --8<-- [start:task]
    train = PyTorchJobOperator(
        task_id="train",
        image="python:3.12-slim",
        command=["python", "-c", FIT, "{{ params.rate }}"],
        workers=2,  # beside the one master
        container_resources=Resources(cpu=1, memory="512Mi"),
        deferrable=True,
    )
    # --8<-- [end:task]
