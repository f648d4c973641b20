"""An MPIJob: a launcher, whose mpirun starts ranks on two workers.

If Open MPI is not installed, `stand_ins/mpirun` replaces mpirun on the embedded cluster.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from airflow_kftrain import MPIJobOperator, Resources

PI = (Path(__file__).parent / "programs" / "pi.py").read_text(encoding="utf-8")
# The launcher receives the output of the ranks, and writes the result.
LAUNCH = "mpirun -n 4 python -c \"$PI\" | awk '{sum += $1} END {print sum}' > $KFTRAIN_RESULT_FILE"

with DAG("mpi_job", schedule=None) as dag:
    # --8<-- [start:task]
    train = MPIJobOperator(
        task_id="train",
        image="registry.example.com/openmpi-python:5",
        command=["sh", "-c", LAUNCH],  # runs in the launcher; the workers wait for ranks
        env={"PI": PI},
        workers=2,
        slots_per_worker=2,  # ranks per worker
        container_resources=Resources(cpu=1, memory="512Mi"),
        deferrable=True,
    )
    # --8<-- [end:task]
