"""A task that hangs as a collective does whose ranks are not all there."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta

from airflow.sdk import DAG, task

from airflow_kftrain import Timeouts

with DAG("hangs", schedule=None):

    @task.pytorch(
        image="python:3.12-slim",
        workers=1,
        deferrable=True,
        timeouts=Timeouts(silence=timedelta(minutes=1)),  # the shortest
    )
    def train() -> None:
        print("all ranks meet after step 1")  # noqa: T201
        if os.environ["RANK"] == "1":
            time.sleep(86_400)  # rank 1 hangs
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()  # rank 0 waits for it

    train()
