"""A Horovod job: an MPIJob whose launcher runs horovodrun.

If Horovod is not installed, `stand_ins/horovodrun` replaces horovodrun on the embedded cluster.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG

from airflow_kftrain import Horovod, HorovodJobOperator, Resources

PI = (Path(__file__).parent / "programs" / "pi.py").read_text(encoding="utf-8")

with DAG("horovod_job", schedule=None) as dag:
    # --8<-- [start:task]
    train = HorovodJobOperator(
        task_id="train",
        image="horovod/horovod:0.28.1",
        command=["python", "-c", PI],  # the training program; horovodrun starts it
        workers=2,
        horovod=Horovod(min_np=1, max_np=2),
        container_resources=Resources(cpu=1, memory="512Mi"),
        deferrable=True,
    )
    # --8<-- [end:task]
