"""Functions as jobs, as a type checker sees them. Never run: `mypy --strict` reads it."""

from __future__ import annotations

from airflow_kftrain import Code, Container, Elastic, Mpirun, Resources
from airflow_kftrain.decorators import mpi, pytorch, trainjob


@pytorch(
    image="i",
    elastic=Elastic(nodes=2),
    container_resources=Resources(cpu=1),
    container=Container(working_dir="/work"),
    code=Code(files=["nets.py"], fatal=["ValueError"]),
    retries=2,
)
def train(rate: float, epochs: int = 3) -> dict[str, float]:
    return {"loss": rate * epochs}


train(0.1)
train(0.1, epochs="many")  # type: ignore[arg-type]
train.expand(rate=[0.1, 0.2])
plain: dict[str, float] = train.function(0.1)


@mpi(image="i", workers=2, mpirun=Mpirun(options=["-v"]))
def ranks() -> None: ...


pytorch(image="i", worker=3)  # type: ignore[arg-type]
pytorch(image="i", wrokers=3)  # type: ignore[call-arg]
trainjob(runtime="torch-distributed", num_nodes="{{ params.nodes }}")
trainjob(runtime="deepspeed-distributed", mpirun=Mpirun())
