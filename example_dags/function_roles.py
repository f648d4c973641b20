"""Functions where pods have roles, and where a runtime of Kubeflow Trainer says how they run.

Where torch and Open MPI are not installed, `stand_ins/torchrun` and `stand_ins/mpirun` take their
places on the embedded cluster.
"""

from __future__ import annotations

import json
import os

from airflow.sdk import DAG, task

from airflow_kftrain import Mpirun, Replica

with DAG("function_roles", schedule=None) as dag:
    # --8<-- [start:tensorflow]
    @task.tensorflow(
        image="tensorflow/tensorflow:2.18.0",
        chief=Replica(),
        worker=Replica(count=2),
        deferrable=True,
    )
    def with_chief(epochs: int) -> dict[str, object]:
        config = json.loads(os.environ["TF_CONFIG"])
        processes = sum(len(hosts) for hosts in config["cluster"].values())
        return {"role": config["task"]["type"], "epochs": epochs, "processes": processes}

    with_chief(3)
    # --8<-- [end:tensorflow]

    # --8<-- [start:trainjob]
    @task.trainjob(runtime="torch-distributed", num_nodes=2, deferrable=True)
    def train(epochs: int) -> dict[str, int]:
        rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return {"rank": rank, "epochs": epochs, "processes": processes}

    train(epochs=3)
    # --8<-- [end:trainjob]

    # --8<-- [start:trainjob-mpi]
    @task.trainjob(
        runtime="deepspeed-distributed",
        num_nodes=2,
        num_proc_per_node=2,
        mpirun=Mpirun(),
        deferrable=True,
    )
    def train_with_mpi(epochs: int) -> dict[str, int]:
        rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        processes = int(os.environ["OMPI_COMM_WORLD_SIZE"])
        return {"rank": rank, "epochs": epochs, "processes": processes}

    train_with_mpi(epochs=3)
    # --8<-- [end:trainjob-mpi]
