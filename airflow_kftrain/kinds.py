"""The kinds of job, one row each: the only place that knows in what they differ.

A row is data, so the rest of the package reads it instead of asking "is it a TFJob?". A new kind
with conditions costs a row here, a spec and a builder. `docs/kinds.md` is made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from airflow_kftrain.errors import UnknownKind

RunningSign = Literal["condition", "child jobs", "ready pods"]
BackoffUnit = Literal["container restarts", "pods"]


class JobReference(NamedTuple):
    """One custom resource in the cluster: the words of `kubectl get`, and its uid."""

    kind: str
    namespace: str
    name: str
    uid: str


class Role(NamedTuple):
    """A group of replicas within a job, such as Master or Worker."""

    name: str
    """As the custom resource calls it."""
    field: str
    """As the author writes it."""
    pod: str = "{job}-{role}-{index}"
    """Longest name that is made from the job's: it has to fit into 63 characters."""
    named: bool = True
    """Its pods have this very name; those of a batch Job get five random characters more."""
    single: bool = False
    """Exactly one, and the count has to be written."""
    needed: bool = False
    """A job without it is refused, or never gets going."""
    runs_command: bool = True
    """Runs the author's command; an MPI worker does not, it waits for the launcher."""
    decides: bool = True
    """Its end may end the job; a parameter server's or an evaluator's does not."""
    takes_devices: bool = True
    """Gets the GPUs of `container_resources`; an MPI launcher does not, it only starts ranks."""


class Selectors(NamedTuple):
    """Labels by which the operator marks the pods of a job."""

    pods: str
    """All pods, `{name}` being the job's."""
    leader: str
    """Added to `pods`: the pod whose log tells the story."""
    role: str = ""
    """Label that holds the replica's role, "" where all are alike."""
    index: str = ""  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    """Label that holds the replica's number within the role."""


class StatusWords(NamedTuple):
    """How the status of this kind is read."""

    succeeded: str = "Succeeded"
    """Type of the condition that means success. Failure and suspension are called alike in all
    kinds: Failed, Suspended."""
    running: RunningSign = "condition"
    """What shows that it runs: a Running condition, counts of child jobs, counts of pods."""
    failed_needs_completion: bool = False
    """A Failed condition is final only once `completionTime` is set."""
    before_training: tuple[str, ...] = ()
    """Child jobs, and so roles, that fetch what the training needs: they are no training."""


class JobKind(NamedTuple):
    """One row of the table."""

    kind: str
    group: str
    version: str
    plural: str
    operator: str
    """Who works on it: what to install where the kind is not served."""
    roles: tuple[Role, ...]
    selectors: Selectors
    spec_fields: str
    """Shape of `spec` in the language of specs/shapes.py."""
    replicas_key: str = ""
    """Key under `spec` that holds the roles; "" where the kind has no map of roles."""
    template_key: str = ""
    """Path under `spec` of the one pod template of a kind without roles."""
    trainer_key: str = ""
    """Key under `spec` of the container settings of a kind that has no pod template itself."""
    container: str = "main"
    """Name of the main container."""
    container_needed: bool = False
    """A container of that name is demanded, not only usual."""
    shared_memory: bool = False
    """Main containers get /dev/shm in memory unless the author says otherwise."""
    elastic_key: str = ""
    """Key under `spec` of the elastic settings."""
    rendezvous_id: str = ""
    """Path under `spec` of the name by which elastic nodes find each other."""
    run_policy: Mapping[str, str] = MappingProxyType({})
    """RunPolicy's fields that the kind has, and where they go under `spec`."""
    managers: tuple[str, ...] = ()
    """Controllers that `managed_by` may name."""
    restart_policies: tuple[str, ...] = ()
    """Values of a replica's restart policy."""
    backoff_counts: BackoffUnit = "container restarts"
    """What `backoff_limit` limits. Container restarts happen only under a policy that restarts."""
    backoff_default: int | None = None
    """Written where the author says nothing, None: not written."""
    ttl_default: bool = False
    """True where a TTL really removes what is left of the job, so that a default makes sense."""
    pod_deadline: bool = False
    """True where the kind's own deadline is checked too late, so that pods get one of their own."""
    recreates: bool = False
    """Its operator makes anew what is deleted for as long as the job is there, so that a deletion
    in the foreground would start the training again."""
    reserved_env: tuple[str, ...] = ()
    """Names of variables that the kind's webhook refuses."""
    status: StatusWords = StatusWords()
    leaves: str = ""
    """What is left of the pods at the end, and so where evidence of a failure has to be read."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def role(self, name: str) -> Role:
        """The role of that name; raises KeyError."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)


_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
_V1_GROUP = "kubeflow.org"
_V1_LABELS = "training.kubeflow.org"
_V1_RUN_POLICY = MappingProxyType(
    {
        "clean_pods": "runPolicy.cleanPodPolicy",
        "ttl": "runPolicy.ttlSecondsAfterFinished",
        "active_deadline": "runPolicy.activeDeadlineSeconds",
        "backoff_limit": "runPolicy.backoffLimit",
        "suspend": "runPolicy.suspend",
        "managed_by": "runPolicy.managedBy",
        "scheduling": "runPolicy.schedulingPolicy",
    }
)
_V1_POLICIES = ("Never", "OnFailure", "Always", "ExitCode")
_V1_LEAVES = (
    "Pods that ended stay, with log and exit code, until the job is deleted; with clean_pods "
    "Running those that still ran are deleted, a crash-looping one among them."
)


def _v1(
    kind: str, plural: str, replicas_key: str, roles: tuple[Role, ...], container: str
) -> JobKind:
    """A row of training-operator: what its six kinds have in common."""
    return JobKind(
        kind=kind,
        group=_V1_GROUP,
        version="v1",
        plural=plural,
        operator="training-operator",
        roles=roles,
        selectors=Selectors(
            pods=f"{_V1_LABELS}/job-name={{name}}",
            leader=f"{_V1_LABELS}/job-role=master",
            role=f"{_V1_LABELS}/replica-type",
            index=f"{_V1_LABELS}/replica-index",
        ),
        spec_fields=f"{replicas_key}:{{ReplicaSpec}} runPolicy:RunPolicy",
        replicas_key=replicas_key,
        container=container,
        container_needed=True,
        run_policy=_V1_RUN_POLICY,
        managers=("kubeflow.org/training-operator", _MULTIKUEUE),
        restart_policies=_V1_POLICIES,
        ttl_default=True,
        pod_deadline=True,
        leaves=_V1_LEAVES,
    )


_MASTER = Role("Master", "master", single=True)
_WORKER = Role("Worker", "worker")
_MPI_LAUNCHER = Role(
    "Launcher", "launcher", pod="{job}-launcher", single=True, needed=True, takes_devices=False
)
# Not needed: with runLauncherAsWorker the launcher may be all there is.
_MPI_WORKER = Role("Worker", "worker", runs_command=False)

PYTORCH_JOB = _v1("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs", (_MASTER, _WORKER), "pytorch")
PYTORCH_JOB = PYTORCH_JOB._replace(
    spec_fields=f"{PYTORCH_JOB.spec_fields} nprocPerNode:str elasticPolicy:TorchElasticPolicy",
    elastic_key="elasticPolicy",
    rendezvous_id="elasticPolicy.rdzvId",
    shared_memory=True,
)

TF_JOB = _v1(
    "TFJob",
    "tfjobs",
    "tfReplicaSpecs",
    (
        Role("Chief", "chief", single=True),
        _MASTER,
        _WORKER,
        Role("PS", "ps", decides=False),
        Role("Evaluator", "evaluator", decides=False),
    ),
    "tensorflow",
)
TF_JOB = TF_JOB._replace(
    spec_fields=f"{TF_JOB.spec_fields} successPolicy:AllWorkers| enableDynamicWorker:bool"
)

XGBOOST_JOB = _v1(
    "XGBoostJob",
    "xgboostjobs",
    "xgbReplicaSpecs",
    (_MASTER._replace(needed=True), _WORKER),
    "xgboost",
)

PADDLE_JOB = _v1(
    "PaddleJob",
    "paddlejobs",
    "paddleReplicaSpecs",
    (_MASTER._replace(single=False), _WORKER),
    "paddle",
)
PADDLE_JOB = PADDLE_JOB._replace(
    spec_fields=f"{PADDLE_JOB.spec_fields} elasticPolicy:PaddleElasticPolicy",
    elastic_key="elasticPolicy",
)

JAX_JOB = _v1("JAXJob", "jaxjobs", "jaxReplicaSpecs", (_WORKER._replace(needed=True),), "jax")

MPI_JOB_V1 = _v1(
    "MPIJob",
    "mpijobs",
    "mpiReplicaSpecs",
    (_MPI_LAUNCHER, _MPI_WORKER),
    "mpi",
)
MPI_JOB_V1 = MPI_JOB_V1._replace(
    spec_fields=(
        f"{MPI_JOB_V1.spec_fields} slotsPerWorker:positive cleanPodPolicy:Running|All|None "
        "mainContainer:str"
    ),
    container_needed=False,
)

MPI_JOB_V2 = MPI_JOB_V1._replace(
    version="v2beta1",
    operator="mpi-operator",
    roles=(_MPI_LAUNCHER._replace(named=False), _MPI_WORKER),
    selectors=Selectors(
        pods=f"{_V1_LABELS}/job-name={{name}}",
        leader=f"{_V1_LABELS}/job-role=launcher",
        role=f"{_V1_LABELS}/job-role",
        index=f"{_V1_LABELS}/replica-index",
    ),
    spec_fields=(
        "mpiReplicaSpecs:{ReplicaSpec} runPolicy:RunPolicy slotsPerWorker:positive "
        "runLauncherAsWorker:bool sshAuthMountPath:str "
        "launcherCreationPolicy:AtStartup|WaitForWorkersReady "
        "mpiImplementation:OpenMPI|Intel|MPICH"
    ),
    managers=("kubeflow.org/mpi-operator", _MULTIKUEUE),
    restart_policies=("Never", "OnFailure"),
    backoff_counts="pods",
    backoff_default=0,
    ttl_default=False,
    pod_deadline=False,
    status=StatusWords(failed_needs_completion=True),
    leaves=(
        "The launcher is a batch Job: its pods stay unless it restarts in place (OnFailure) up to "
        "its limit. A TTL removes the launcher's Job only, never the MPIJob."
    ),
)

TRAIN_JOB = JobKind(
    kind="TrainJob",
    group="trainer.kubeflow.org",
    version="v1alpha1",
    plural="trainjobs",
    operator="Kubeflow Trainer",
    roles=tuple(
        Role(step, step, pod="{job}-{role}-0-{index}-xxxxx", named=False)
        for step in ("node", "launcher", "dataset-initializer", "model-initializer")
    ),
    selectors=Selectors(
        pods="jobset.sigs.k8s.io/jobset-name={name}",
        leader=(
            "jobset.sigs.k8s.io/replicatedjob-name in (launcher,node),"
            "batch.kubernetes.io/job-completion-index=0"
        ),
        role="jobset.sigs.k8s.io/replicatedjob-name",
        index="batch.kubernetes.io/job-completion-index",
    ),
    spec_fields=(
        "runtimeRef!:RuntimeRef initializer:Initializer trainer:Trainer "
        "runtimePatches:[RuntimePatch] suspend:bool activeDeadlineSeconds:positive managedBy:str"
    ),
    trainer_key="trainer",
    container="node",
    run_policy=MappingProxyType(
        {
            "active_deadline": "activeDeadlineSeconds",
            "suspend": "suspend",
            "managed_by": "managedBy",
        }
    ),
    managers=("trainer.kubeflow.org/trainjob-controller", _MULTIKUEUE),
    backoff_counts="pods",
    recreates=True,
    reserved_env=(
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_plm_rsh_args",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots",
        "DMLC_TRACKER_URI",
        "DMLC_TRACKER_PORT",
        "DMLC_TASK_ID",
        "DMLC_NUM_WORKER",
    ),
    status=StatusWords(
        succeeded="Complete",
        running="child jobs",
        before_training=("dataset-initializer", "model-initializer"),
    ),
    leaves=(
        "After a failure the pods are gone, exit codes and logs with them: they are read while "
        "they live. After success they stay until the TrainJob is deleted."
    ),
)

BATCH_JOB = JobKind(
    kind="Job",
    group="batch",
    version="v1",
    plural="jobs",
    operator="Kubernetes itself",
    # A worker is what the author of a single-node job wrote.
    roles=(Role("node", "worker", pod="{job}-{index}", named=False),),
    selectors=Selectors(
        pods="batch.kubernetes.io/job-name={name}",
        leader="",
        index="batch.kubernetes.io/job-completion-index",
    ),
    spec_fields=(
        "template!:PodTemplate parallelism:count completions:count completionMode:str "
        "backoffLimit:count backoffLimitPerIndex:count maxFailedIndexes:count "
        "activeDeadlineSeconds:positive ttlSecondsAfterFinished:count suspend:bool managedBy:str "
        "podFailurePolicy:mapping podReplacementPolicy:str successPolicy:mapping selector:mapping "
        "manualSelector:bool"
    ),
    template_key="template",
    run_policy=MappingProxyType(
        {
            "ttl": "ttlSecondsAfterFinished",
            "active_deadline": "activeDeadlineSeconds",
            "backoff_limit": "backoffLimit",
            "suspend": "suspend",
            "managed_by": "managedBy",
        }
    ),
    managers=("kubernetes.io/job-controller", _MULTIKUEUE),
    restart_policies=("Never", "OnFailure"),
    backoff_counts="pods",
    backoff_default=0,
    ttl_default=True,
    status=StatusWords(succeeded="Complete", running="ready pods"),
    leaves="Pods that ended stay until the Job is deleted, unless they restart in place.",
)

KINDS: tuple[JobKind, ...] = (
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

_BY_API = {(row.api_version, row.kind): row for row in KINDS}


def find_kind(api_version: object, kind: object) -> JobKind:
    """The row of a manifest's apiVersion and kind; says which there are if there is none."""
    found = _BY_API.get((str(api_version), str(kind)))
    if found:
        return found
    served = [row.api_version for row in KINDS if row.kind == kind]
    if served:
        raise UnknownKind(
            "apiVersion",
            f"{kind} has another apiVersion",
            value=api_version,
            advice=f"Write {' or '.join(served)}.",
        )
    raise UnknownKind(
        "kind",
        "not a kind that this provider can run",
        value=kind,
        advice=f"Known are {', '.join(dict.fromkeys(row.kind for row in KINDS))}.",
    )
