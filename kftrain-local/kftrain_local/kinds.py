"""The kinds of job that the embedded cluster knows, one row each: what its server, its controllers
and its page need to know about them."""

from __future__ import annotations

from typing import NamedTuple


class JobKind(NamedTuple):
    """One row of the table."""

    kind: str
    group: str
    version: str
    plural: str
    pods: str
    """Selects the pods of a job; `{name}` is that of the job."""
    container: str = "main"
    """The name of the container that trains."""
    replicas_key: str = ""
    """The key under `spec` with the roles; "" if the kind has none."""
    roles: tuple[str, ...] = ()
    """The roles as the custom resource names them."""
    runs: bool = True
    """False if only a real cluster runs it; the embedded cluster rejects it."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


def _v1(kind: str, short: str, container: str, *roles: str, runs: bool = True) -> JobKind:
    """A kind of training-operator."""
    return JobKind(
        kind,
        "kubeflow.org",
        "v1",
        f"{kind.lower()}s",
        "training.kubeflow.org/job-name={name}",
        container,
        f"{short}ReplicaSpecs",
        roles,
        runs,
    )


PYTORCH_JOB = _v1("PyTorchJob", "pytorch", "pytorch", "Master", "Worker")
TF_JOB = _v1("TFJob", "tf", "tensorflow", "Chief", "Master", "Worker", "PS", "Evaluator")
XGBOOST_JOB = _v1("XGBoostJob", "xgb", "xgboost", "Master", "Worker", runs=False)
PADDLE_JOB = _v1("PaddleJob", "paddle", "paddle", "Master", "Worker", runs=False)
JAX_JOB = _v1("JAXJob", "jax", "jax", "Worker", runs=False)
MPI_JOB_V1 = _v1("MPIJob", "mpi", "mpi", "Launcher", "Worker", runs=False)
MPI_JOB_V2 = MPI_JOB_V1._replace(version="v2beta1", runs=True)
TRAIN_JOB = JobKind(
    "TrainJob",
    "trainer.kubeflow.org",
    "v1alpha1",
    "trainjobs",
    "jobset.sigs.k8s.io/jobset-name={name}",
    "node",
)
BATCH_JOB = JobKind("Job", "batch", "v1", "jobs", "batch.kubernetes.io/job-name={name}")

KINDS = (
    PYTORCH_JOB,
    TF_JOB,
    XGBOOST_JOB,
    PADDLE_JOB,
    JAX_JOB,
    MPI_JOB_V1,
    MPI_JOB_V2,
    TRAIN_JOB,
    BATCH_JOB,
)
