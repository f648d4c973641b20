"""What `make demo` runs: three of the example DAGs in one. No job is deleted, for a look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_kftrain import (
    Lifecycle,
    MPIJobOperator,
    PyTorchJobOperator,
    Replica,
    RunPolicy,
    TFJobOperator,
)

_PROGRAMS = Path(__file__).parents[2] / "example_dags" / "programs"


def program(name: str) -> str:
    return (_PROGRAMS / name).read_text(encoding="utf-8")


with DAG("demo", schedule=None) as dag:
    common: dict[str, Any] = {
        "image": "python:3.12-slim",
        "deferrable": True,
        "lifecycle": Lifecycle(on_finish="keep"),
        "run_policy": RunPolicy(clean_pods="None"),  # nor are pods that still run at the end
    }
    pytorch = PyTorchJobOperator(
        task_id="pytorch",
        command=["python", "-c", program("fit.py"), "0.5"],
        workers=2,  # beside the one master
        **common,
    )
    tensorflow = TFJobOperator(
        task_id="tensorflow",
        command=["python", "-c", program("count_peers.py")],
        chief=Replica(),
        worker=Replica(count=2),
        **common,
    )
    # What ranks print comes to the launcher, and the launcher leaves the result.
    launch = "mpirun -n 2 python -c \"$PI\" | awk '{sum += $1} END {print sum}'"
    mpi = MPIJobOperator(
        task_id="mpi",
        command=["sh", "-c", f"{launch} | tee $KFTRAIN_RESULT_FILE"],
        env={"PI": program("pi.py")},
        workers=2,
        **common,
    )
    pytorch >> [tensorflow, mpi]
