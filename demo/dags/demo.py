"""What `make demo` runs: a Python function, and then three of the example DAGs in one. No job is
deleted, for a look."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from airflow_kftrain import (
    Lifecycle,
    Logs,
    MPIJobOperator,
    PyTorchJobOperator,
    Replica,
    RunPolicy,
    TFJobOperator,
)

_PROGRAMS = Path(__file__).parents[2] / "example_dags" / "programs"


def program(name: str) -> str:
    return (_PROGRAMS / name).read_text(encoding="utf-8")


# To watch a training for longer, trigger the DAG with more rounds.
with DAG("demo", schedule=None, params={"rounds": 60}) as dag:
    common: dict[str, Any] = {
        "image": "python:3.12-slim",
        "deferrable": True,
        "lifecycle": Lifecycle(on_finish="keep"),
        "run_policy": RunPolicy(clean_pods="None"),  # nor are pods that still run at the end
    }

    @task.pytorch(workers=2, logs=Logs(progress=True), **common)  # beside the one master
    def function(rounds: str) -> dict[str, float]:
        """Each process estimates pi by points of its own, and rank 0 puts all of them together. It
        reports its progress after each round."""

        def patiently(connect: Any) -> Any:
            end = time.monotonic() + 60
            while True:
                try:
                    return connect()
                except OSError:  # names are known, and processes have started, a moment later
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)

        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        dice, points, hits = random.Random(rank), 0, 0
        for step in range(1, int(rounds) + 1):
            hits += sum(dice.random() ** 2 + dice.random() ** 2 < 1 for _ in range(2000))
            points += 2000
            time.sleep(0.5)  # a real training has more to compute
            if rank == 0:
                told = {"step": step, "total": int(rounds), "metrics": {"pi": 4 * hits / points}}
                print(json.dumps({"kftrain": told}))
        print(f"rank {rank}: {hits} of {points} points are in the circle")
        if rank == 0:
            with patiently(lambda: socket.create_server(place)) as server:
                for _ in range(world - 1):
                    hits += int(server.accept()[0].makefile().read())
        else:
            with patiently(lambda: socket.create_connection(place)) as leader:
                leader.sendall(str(hits).encode())
        return {"pi": 4 * hits / (points * world), "processes": world}

    pytorch = PyTorchJobOperator(
        task_id="pytorch",
        command=["python", "-c", program("fit.py"), "0.5"],
        workers=2,
        **common,
    )
    tensorflow = TFJobOperator(
        task_id="tensorflow",
        command=["python", "-c", program("count_peers.py")],
        chief=Replica(),
        worker=Replica(count=2),
        **common,
    )
    # The launcher receives the output of the ranks, and writes the result.
    launch = "mpirun -n 2 python -c \"$PI\" | awk '{sum += $1} END {print sum}'"
    mpi = MPIJobOperator(
        task_id="mpi",
        command=["sh", "-c", f"{launch} | tee $KFTRAIN_RESULT_FILE"],
        env={"PI": program("pi.py")},
        workers=2,
        **common,
    )
    function("{{ params.rounds }}") >> [pytorch, tensorflow, mpi]
