"""A training that lasts until a test has seen it."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_kftrain import Lifecycle, Logs, RunPolicy

with DAG("pi", schedule=None):

    @task.pytorch(
        image="python:3.12-slim",
        workers=2,
        deferrable=True,
        logs=Logs(progress=True),
        lifecycle=Lifecycle(on_finish="keep"),
        run_policy=RunPolicy(clean_pods="None"),
    )
    def train(rounds: str, seen: str) -> None:
        """Has no time to lose once the file `seen` is there."""
        total, hits = int(rounds), 0
        for step in range(1, total + 1):
            hits += sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(2000))
            told = {"step": step, "total": total, "metrics": {"pi": 4 * hits / (2000 * step)}}
            if os.environ["RANK"] == "0":
                print(json.dumps({"kftrain": told}))  # noqa: T201
            if not Path(seen).exists():
                time.sleep(0.5)

    train("{{ params.rounds }}", "{{ params.seen }}")
