"""A job between other tasks. A retry continues from its checkpoint, it has links, and a downstream
task uses its result.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, setup, task, teardown

from airflow_kftrain import Lifecycle, Links, PyTorchJobOperator, Resources

FIT = (Path(__file__).parent / "programs" / "fit.py").read_text(encoding="utf-8")

with DAG("training_pipeline", schedule=None) as dag:
    # Pods of the embedded cluster see the folders of this machine. On a real one this is a volume
    # (pod=Pod(volumes=..., volume_mounts=...)) or a place in an object store.
    @setup
    def make_folder() -> str:
        return tempfile.mkdtemp(prefix="checkpoints-")

    @teardown
    def remove_folder(folder: str) -> None:
        shutil.rmtree(folder)

    folder = make_folder()

    # --8<-- [start:task]
    train = PyTorchJobOperator(
        task_id="train",
        image="python:3.12-slim",
        command=["python", "-c", FIT, 0.5],
        # The program saves its state there every 20 steps; its first attempt fails at step 60.
        env={"CHECKPOINTS": folder, "FAIL_AT_STEP": 60},
        workers=1,
        container_resources=Resources(cpu=1, memory="512Mi"),
        lifecycle=Lifecycle(result_required=True),
        # --8<-- [start:links]
        links=Links(
            training_job="https://kubernetes.example.com/{namespace}/pytorchjobs/{job}",
            leader_logs="https://logs.example.com/{namespace}/{pod}?from={start}&to={finish}",
        ),
        # --8<-- [end:links]
        retries=1,
        retry_delay=timedelta(0),
        deferrable=True,
    )

    @task
    def report(result: dict[str, Any]) -> str:
        return f"loss {result['loss']:.4f}, begun at step {result['begun_at_step']}"

    folder >> train >> report(train.output) >> remove_folder(folder)
    # --8<-- [end:task]
