"""A function that mpirun starts on the ranks of an MPIJob; and one that horovodrun starts.

If Open MPI is not installed, `stand_ins/mpirun` replaces mpirun on the embedded cluster.
"""

from __future__ import annotations

from airflow.sdk import DAG, task

with DAG("function_mpi", schedule=None) as dag:
    # --8<-- [start:task]
    @task.mpi(
        image="registry.example.com/openmpi-python:5",
        workers=2,
        slots_per_worker=2,  # ranks per worker
        env={"STEPS": "1000"},  # also for the ranks
        deferrable=True,
    )
    def train() -> dict[str, float]:
        import os

        rank, ranks = (
            int(os.environ["OMPI_COMM_WORLD_RANK"]),
            int(os.environ["OMPI_COMM_WORLD_SIZE"]),
        )
        steps = int(os.environ["STEPS"])
        part = [(step + 0.5) / steps for step in range(rank, steps, ranks)]
        return {"part": sum(4 / (1 + x * x) for x in part) / steps, "processes": ranks}

    train()
    # --8<-- [end:task]

    @task.horovod(image="registry.example.com/horovod:0.28", workers=2, deferrable=True)
    def average(numbers: list[float]) -> dict[str, float]:
        import os

        rank, ranks = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
        return {"mine": numbers[rank], "processes": ranks}

    average([0.5, 1.5])
