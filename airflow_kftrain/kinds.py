"""The kinds of job, one row each: all differences between them are here.

A row is data, so the rest of the package reads it instead of asking "is it a TFJob?". A new kind
with conditions needs a row here, a spec and a builder. `docs/kinds.md` is generated from this
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from airflow_kftrain.errors import UnknownKind

RunningSign = Literal["condition", "child jobs", "ready pods"]
BackoffUnit = Literal["container restarts", "pods"]


class JobReference(NamedTuple):
    """One custom resource in the cluster, in the words of `kubectl get`, with its uid."""

    kind: str
    namespace: str
    name: str
    uid: str


class Role(NamedTuple):
    """A group of replicas within a job, such as Master or Worker."""

    name: str
    """The name in the custom resource."""
    field: str
    """The name of the author's field."""
    pod: str = "{job}-{role}-{index}"
    """The longest name that is derived from the job's: it must have at most 63 characters."""
    named: bool = True
    """Whether its pods have exactly this name; pods of a batch Job get five more random
    characters."""
    single: bool = False
    """There is exactly one, and the manifest must say so."""
    needed: bool = False
    """A job without it is rejected, or never starts."""
    runs_command: bool = True
    """Whether it runs the author's command. An MPI worker does not: it waits for the launcher."""
    decides: bool = True
    """Whether its end may end the job. That of a parameter server or an evaluator does not."""
    takes_devices: bool = True
    """Whether it gets the GPUs of `container_resources`. An MPI launcher does not: it only starts
    ranks."""


class Selectors(NamedTuple):
    """The labels of a job's pods."""

    pods: str
    """Selects all pods; `{name}` is the job's."""
    leader: str
    """Added to `pods`, selects the leader."""
    role: str = ""
    """The label with the role; "" if all pods are alike."""
    index: str = ""  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    """The label with the number of the replica in its role."""


class StatusWords(NamedTuple):
    """How the status of this kind is read."""

    succeeded: str = "Succeeded"
    """The type of the condition that means success. Failure and suspension have the same types in
    all kinds: Failed, Suspended."""
    running: RunningSign = "condition"
    """What shows that the job runs: a Running condition, counts of child jobs, counts of pods."""
    failed_needs_completion: bool = False
    """Whether a Failed condition is final only once `completionTime` is set."""
    before_training: tuple[str, ...] = ()
    """Child jobs (and roles) that fetch what the training needs."""


class JobKind(NamedTuple):
    """One row of the table."""

    kind: str
    group: str
    version: str
    plural: str
    operator: str
    """Which operator serves it, and has to be installed."""
    roles: tuple[Role, ...]
    selectors: Selectors
    spec_fields: str
    """The shape of `spec`, in the language of specs/shapes.py."""
    replicas_key: str = ""
    """The key under `spec` with the roles; "" if the kind has none."""
    template_key: str = ""
    """The path under `spec` of the only pod template of a kind without roles."""
    trainer_key: str = ""
    """The key under `spec` with the container settings of a kind without a pod template."""
    container: str = "main"
    """The name of the main container."""
    container_needed: bool = False
    """Whether a container of that name is required, not only usual."""
    shared_memory: bool = False
    """Whether main containers get /dev/shm in memory by default."""
    elastic_key: str = ""
    """The key under `spec` with the elastic settings."""
    rendezvous_id: str = ""
    """The path under `spec` of the name by which elastic nodes find each other."""
    run_policy: Mapping[str, str] = MappingProxyType({})
    """The fields of RunPolicy that the kind has, with their paths under `spec`."""
    managers: tuple[str, ...] = ()
    """The controllers that `managed_by` may name."""
    kueue_takes_it: bool = True
    """Whether Kueue can queue it. It ignores the label of a kind that it does not know."""
    restart_policies: tuple[str, ...] = ()
    """The valid restart policies of a replica."""
    backoff_counts: BackoffUnit = "container restarts"
    """What `backoff_limit` counts. Container restarts happen only under a policy that restarts."""
    backoff_default: int | None = None
    """The default, which is written into the manifest; None: it is not written."""
    ttl_default: bool = False
    """Whether a TTL really removes everything, so that a default is useful."""
    pod_deadline: bool = False
    """Whether the operator checks the kind's own deadline too late, so that pods get one, too."""
    recreates: bool = False
    """Whether the operator recreates what is deleted while the job exists. Then deleting the job in
    the foreground would start the training again."""
    reserved_env: tuple[str, ...] = ()
    """Names of variables that the kind's webhook rejects."""
    overwritten_env: Mapping[str, str] = MappingProxyType({})
    """Names of variables that the operator sets in the main container over the author's, and what
    to do instead."""
    overwritten_elastic_env: Mapping[str, str] = MappingProxyType({})
    """Further ones if the job is elastic."""
    status: StatusWords = StatusWords()
    leaves: str = ""
    """What is left of the pods at the end, so where to look for evidence of a failure."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def role(self, name: str) -> Role:
        """The role of that name. Raises KeyError."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)


KUEUE_GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = f"{KUEUE_GROUP}/queue-name"
"""The label of a job that waits in a queue of Kueue: the name of the LocalQueue."""
PRIORITY_LABEL = f"{KUEUE_GROUP}/priority-class"
"""The label with the WorkloadPriorityClass, by which Kueue sorts its queues."""
_MULTIKUEUE = f"{KUEUE_GROUP}/multikueue"
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
    "Finished pods stay, with log and exit code, until the job is deleted. With clean_pods "
    "Running, pods that still run are deleted, including those in a crash loop."
)


_OMIT = "Omit it."
_COUNTED = "Omit it: it follows from the number of replicas."
_IN_ELASTIC = "Set it in elastic, or in elasticPolicy of a manifest."


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
# Not required: with runLauncherAsWorker there may be only a launcher.
_MPI_WORKER = Role("Worker", "worker", runs_command=False)

PYTORCH_JOB = _v1("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs", (_MASTER, _WORKER), "pytorch")
PYTORCH_JOB = PYTORCH_JOB._replace(
    spec_fields=f"{PYTORCH_JOB.spec_fields} nprocPerNode:str elasticPolicy:TorchElasticPolicy",
    elastic_key="elasticPolicy",
    rendezvous_id="elasticPolicy.rdzvId",
    shared_memory=True,
    overwritten_env=MappingProxyType(
        {
            "MASTER_ADDR": _OMIT,
            "MASTER_PORT": _OMIT,
            "RANK": _COUNTED,
            "WORLD_SIZE": _COUNTED,
            "PET_MASTER_ADDR": _OMIT,
            "PET_MASTER_PORT": _OMIT,
            "PET_NODE_RANK": _COUNTED,
            "PET_NNODES": _COUNTED,
            "PET_NPROC_PER_NODE": (
                "Write elastic=Elastic(nproc_per_node=...), or nprocPerNode in a manifest."
            ),
        }
    ),
    overwritten_elastic_env=MappingProxyType(
        {
            "PET_RDZV_BACKEND": _OMIT,
            "PET_RDZV_CONF": _IN_ELASTIC,
            "PET_RDZV_ENDPOINT": _OMIT,
            "PET_RDZV_ID": _IN_ELASTIC,
        }
    ),
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
    spec_fields=f"{TF_JOB.spec_fields} successPolicy:AllWorkers| enableDynamicWorker:bool",
    overwritten_env=MappingProxyType({"TF_CONFIG": "Omit it: it lists the replicas of the job."}),
)

XGBOOST_JOB = _v1(
    "XGBoostJob",
    "xgboostjobs",
    "xgbReplicaSpecs",
    (_MASTER._replace(needed=True), _WORKER),
    "xgboost",
)

XGBOOST_JOB = XGBOOST_JOB._replace(
    overwritten_env=MappingProxyType(
        {
            "MASTER_ADDR": _OMIT,
            "MASTER_PORT": _OMIT,
            "RANK": _COUNTED,
            "WORLD_SIZE": _COUNTED,
            "WORKER_ADDRS": _OMIT,
            "WORKER_PORT": _OMIT,
        }
    )
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
    overwritten_env=MappingProxyType(
        {
            "PADDLE_JOB_ID": _OMIT,
            "PADDLE_MASTER": _OMIT,
            "PADDLE_NNODES": _COUNTED,
            "PADDLE_SERVER_NUM": _COUNTED,
            "PADDLE_TRAINER_NUM": _COUNTED,
        }
    ),
)

JAX_JOB = _v1("JAXJob", "jaxjobs", "jaxReplicaSpecs", (_WORKER._replace(needed=True),), "jax")
JAX_JOB = JAX_JOB._replace(
    overwritten_env=MappingProxyType(
        {
            "COORDINATOR_ADDRESS": _OMIT,
            "COORDINATOR_PORT": _OMIT,
            "NUM_PROCESSES": _COUNTED,
            "PROCESS_ID": _COUNTED,
        }
    )
)

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
    kueue_takes_it=False,
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
    kueue_takes_it=True,
    restart_policies=("Never", "OnFailure"),
    backoff_counts="pods",
    backoff_default=0,
    ttl_default=False,
    pod_deadline=False,
    status=StatusWords(failed_needs_completion=True),
    leaves=(
        "The launcher is a batch Job: its pods stay, unless it restarts in place (OnFailure) up to "
        "its limit. A TTL deletes only the launcher's Job, never the MPIJob."
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
        "After a failure the pods are deleted, with their exit codes and logs; these are read "
        "while the pods exist. After a success pods stay until the TrainJob is deleted."
    ),
)

BATCH_JOB = JobKind(
    kind="Job",
    group="batch",
    version="v1",
    plural="jobs",
    operator="Kubernetes itself",
    # The author of a single-node job has written a worker.
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
    leaves="Finished pods stay until the Job is deleted, unless they restart in place.",
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
    """The row of a manifest's apiVersion and kind. Raises UnknownKind, which lists the known
    ones."""
    found = _BY_API.get((str(api_version), str(kind)))
    if found:
        return found
    served = [row.api_version for row in KINDS if row.kind == kind]
    if served:
        raise UnknownKind(
            "apiVersion",
            f"{kind} has another apiVersion",
            value=api_version,
            advice=f"Use {' or '.join(served)}.",
        )
    raise UnknownKind(
        "kind",
        "is not a kind that this provider can run",
        value=kind,
        advice=f"Use one of {', '.join(dict.fromkeys(row.kind for row in KINDS))}.",
    )
