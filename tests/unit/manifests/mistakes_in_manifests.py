"""Mistakes in raw manifests, each with the field in the error and parts of the text."""

from __future__ import annotations

from typing import Any

from airflow_kftrain import RawManifest

from .mistakes import SECRET, Given, Rows, container, runtime_patch, wrong

MASTER = "spec.pytorchReplicaSpecs.Master"
MAIN = f"{MASTER}.template.spec.containers[0]"
PATCHED = (
    "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"
    ".template.spec.template.spec"
)


def raw(api_version: str, kind: Any, spec: Any, **top: Any) -> Given:
    return RawManifest, {"manifest": {"apiVersion": api_version, "kind": kind, "spec": spec, **top}}


def group(*containers: Any, **more: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": list(containers or [container()])}}, **more}


def raw_pytorch(spec: dict[str, Any] | None = None, /, **roles: Any) -> Given:
    groups = {"pytorchReplicaSpecs": roles or {"Master": group()}}
    return raw("kubeflow.org/v1", "PyTorchJob", {**groups, **(spec or {})})


def raw_mpi(spec: dict[str, Any] | None = None, /, version: str = "v2beta1", **roles: Any) -> Given:
    groups = {"mpiReplicaSpecs": roles or {"Launcher": group(), "Worker": group(replicas=1)}}
    return raw(f"kubeflow.org/{version}", "MPIJob", {**groups, **(spec or {})})


def raw_train(**spec: Any) -> Given:
    given = {"runtimeRef": {"name": "torch"}, **spec}
    return raw("trainer.kubeflow.org/v1alpha1", "TrainJob", given)


def mistakes_in_manifests() -> Rows:
    yield from shapes()
    yield from fields()
    yield from groups()
    yield from templates()
    yield from policies()
    yield from other_kinds()
    yield from train_jobs()


def shapes() -> Rows:
    yield wrong(
        "a list", (RawManifest, {"manifest": [1, 2]}), "manifest", "a dict, YAML text", "[1, 2]"
    )
    yield wrong(
        "None", (RawManifest, {"manifest": None}), "manifest", "a dict, YAML text", "got None"
    )
    yield wrong(
        "two documents",
        (RawManifest, {"manifest": "kind: A\n---\nkind: B\n"}),
        "manifest",
        "must contain one mapping, but contains 2 documents",
    )
    yield wrong(
        "no document", (RawManifest, {"manifest": "# nothing\n"}), "manifest", "0 documents"
    )
    yield wrong(
        "a sentence",
        (RawManifest, {"manifest": "a job, please"}),
        "manifest",
        "must contain a mapping, but contains a str",
    )
    yield wrong(
        "a list in YAML",
        (RawManifest, {"manifest": "- kind: PyTorchJob"}),
        "manifest",
        "contains a list",
    )
    yield wrong(
        "not YAML",
        (RawManifest, {"manifest": f"kind: PyTorchJob\ntoken: [{SECRET}\n"}),
        "manifest",
        "is not YAML in line",
    )
    job = "PyTorchJob"
    yield wrong(
        "an old version",
        raw("kubeflow.org/v1beta2", job, {}),
        "apiVersion",
        "'kubeflow.org/v1beta2'",
        "Use kubeflow.org/v1.",
    )
    yield wrong(
        "no version",
        (RawManifest, {"manifest": {"kind": job, "spec": {}}}),
        "apiVersion",
        "got None",
        "Use kubeflow.org/v1.",
    )
    yield wrong(
        "one of two versions",
        raw("v1", "MPIJob", {}),
        "apiVersion",
        "Use kubeflow.org/v1 or kubeflow.org/v2beta1.",
    )
    yield wrong(
        "an unknown kind",
        raw("kubeflow.org/v1", "PytorchJob", {}),
        "kind",
        "'PytorchJob'",
        "PyTorchJob, TFJob",
    )
    yield wrong("no kind", (RawManifest, {"manifest": {"apiVersion": "v1"}}), "kind", "got None")
    yield wrong("a list for a kind", raw("v1", [job], {}), "kind", "['PyTorchJob']")
    yield wrong(
        "no spec",
        (RawManifest, {"manifest": {"apiVersion": "batch/v1", "kind": "Job"}}),
        "spec",
        "must be a mapping of fields",
        "got None",
    )
    yield wrong(
        "a list for a spec", raw("batch/v1", "Job", []), "spec", "must be a mapping of fields"
    )


def fields() -> Rows:
    yield wrong(
        "an illegal namespace",
        raw("batch/v1", "Job", {}, metadata={"namespace": "My Team"}),
        "metadata.namespace",
        "is not a valid name",
        "'My Team'",
    )
    yield wrong(
        "no port",
        raw_pytorch(Master=group(container(ports=[{"containerPort": 0}]))),
        f"{MAIN}.ports[0].containerPort",
        "at least 1",
        "got 0",
    )
    yield wrong(
        "a number where no number is",
        raw_pytorch(Master=group(container(lifecycle={"sleep": float("nan")}))),
        f"{MAIN}.lifecycle.sleep",
        "must be text, a number",
    )
    yield wrong(
        "an unknown field on top",
        raw("batch/v1", "Job", {}, specs={}),
        "specs",
        "there is no such field",
    )
    yield wrong(
        "metadata as a list",
        raw("batch/v1", "Job", {}, metadata=[]),
        "metadata",
        "must be a mapping of fields",
    )
    yield wrong(
        "an unknown field of metadata",
        raw("batch/v1", "Job", {}, metadata={"lables": {}}),
        "metadata.lables",
        "Did you mean 'labels'?",
    )
    yield wrong(
        "an illegal label",
        raw("batch/v1", "Job", {}, metadata={"labels": {"a": "b c"}}),
        "metadata.labels['a']",
        "'b c'",
    )
    yield wrong(
        "an illegal queue",
        raw("batch/v1", "Job", {}, metadata={"labels": {"kueue.x-k8s.io/queue-name": "team a"}}),
        "metadata.labels['kueue.x-k8s.io/queue-name']",
        "'team a'",
    )
    yield wrong(
        "an unknown field of the spec",
        raw_pytorch({"elasticpolicy": {}}),
        "spec.elasticpolicy",
        "Did you mean 'elasticPolicy'?",
    )
    yield wrong(
        "an unknown field of the policy",
        raw_pytorch({"runPolicy": {"backOffLimit": 1}}),
        "spec.runPolicy.backOffLimit",
        "Did you mean 'backoffLimit'?",
    )
    yield wrong(
        "an unknown field of a group",
        raw_pytorch(Master=group(replica=1)),
        f"{MASTER}.replica",
        "Did you mean 'replicas'?",
    )
    yield wrong(
        "an unknown field of a template",
        raw_pytorch(Master={"template": {"specs": {}}}),
        f"{MASTER}.template.specs",
        "Did you mean 'spec'?",
    )
    yield wrong(
        "an unknown field of a container",
        raw_pytorch(Master=group(container(Image="i"))),
        f"{MAIN}.Image",
        "Did you mean 'image'?",
    )
    yield wrong(
        "an unknown field that resembles none",
        raw_pytorch(Master=group(qqq=1)),
        f"{MASTER}.qqq",
        "Known fields are replicas, restartPolicy, template.",
    )
    yield wrong(
        "an unknown field of a port",
        raw_pytorch(Master=group(container(ports=[{"port": 1}]))),
        f"{MAIN}.ports[0].port",
        "there is no such field",
    )
    yield wrong(
        "a field of another kind",
        raw(
            "kubeflow.org/v1",
            "TFJob",
            {"tfReplicaSpecs": {"Worker": group(container("tensorflow"))}, "elasticPolicy": {}},
        ),
        "spec.elasticPolicy",
        "there is no such field",
    )


def groups() -> Rows:
    yield wrong(
        "no roles",
        raw("kubeflow.org/v1", "PyTorchJob", {}),
        "spec.pytorchReplicaSpecs",
        "has no replicas",
    )
    yield wrong(
        "a list of roles",
        raw("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": []}),
        "spec.pytorchReplicaSpecs",
        "must be a mapping",
    )
    yield wrong(
        "a misspelt role",
        raw_pytorch(Master=group(), worker=group()),
        "spec.pytorchReplicaSpecs.worker",
        "PyTorchJob has no such role",
        "Did you mean 'Worker'?",
    )
    yield wrong(
        "an unknown role",
        raw_pytorch(Boss=group()),
        "spec.pytorchReplicaSpecs.Boss",
        "It has Master, Worker.",
    )
    yield wrong(
        "a null role",
        raw_pytorch(Master=group(), Worker=None),
        "spec.pytorchReplicaSpecs.Worker",
        "must be a mapping of fields",
        "got None",
    )
    yield wrong(
        "a group without a template",
        raw_pytorch(Master={"replicas": 1}),
        f"{MASTER}.template",
        "is required",
    )
    yield wrong(
        "a negative count",
        raw_pytorch(Master=group(), Worker=group(replicas=-1)),
        "spec.pytorchReplicaSpecs.Worker.replicas",
        "at least 0",
        "got -1",
    )
    yield wrong("two masters", raw_pytorch(Master=group(replicas=2)), f"{MASTER}.replicas", "got 2")
    yield wrong(
        "all groups empty",
        raw_pytorch(Worker=group(replicas=0)),
        "spec.pytorchReplicaSpecs",
        "has no replicas",
    )


def templates() -> Rows:
    yield wrong(
        "no container",
        raw_pytorch(Master={"template": {"spec": {"containers": []}}}),
        f"{MASTER}.template.spec.containers",
        "at least one container",
    )
    yield wrong(
        "a mapping of containers",
        raw_pytorch(Master={"template": {"spec": {"containers": container(env={"A": SECRET})}}}),
        f"{MASTER}.template.spec.containers",
        "must be a list",
        "'env': ...",
    )
    yield wrong(
        "no container of the needed name",
        raw_pytorch(Master=group(container("main"))),
        f"{MASTER}.template.spec.containers",
        "must have a container named 'pytorch'",
        "['main']",
    )
    yield wrong(
        "no image", raw_pytorch(Master=group({"name": "pytorch"})), f"{MAIN}.image", "is required"
    )
    yield wrong(
        "two containers of one name",
        raw_pytorch(Master=group(container(), container())),
        f"{MASTER}.template.spec.containers[1].name",
        "the name of two containers",
        "'pytorch'",
    )
    yield wrong(
        "one variable twice",
        raw_pytorch(
            Master=group(
                container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": SECRET}])
            )
        ),
        f"{MAIN}.env[1].name",
        "is duplicated",
        "'A'",
    )
    yield wrong(
        "variables as a mapping",
        raw_pytorch(Master=group(container(env={"A": SECRET}))),
        f"{MAIN}.env",
        "must be a list",
        "name, and value or valueFrom",
    )
    yield wrong(
        "a number for a variable",
        raw_pytorch(Master=group(container(env=[{"name": "A", "value": 5}]))),
        f"{MAIN}.env[0].value",
        "must be text, got a value of type int",
    )
    yield wrong(
        "a variable with value and source",
        raw_pytorch(
            Master=group(
                container(env=[{"name": "A", "value": SECRET, "valueFrom": {"fileKeyRef": {}}}])
            )
        ),
        f"{MAIN}.env[0]",
        "both value and valueFrom",
    )
    yield wrong(
        "two mounts at one place",
        raw_pytorch(
            Master=group(
                container(
                    volumeMounts=[
                        {"name": "a", "mountPath": "/d"},
                        {"name": "b", "mountPath": "/d"},
                    ]
                )
            )
        ),
        f"{MAIN}.volumeMounts[1].mountPath",
        "is duplicated",
        "'/d'",
    )
    yield wrong(
        "a mount without its volume",
        raw_pytorch(Master=group(container(volumeMounts=[{"name": "a", "mountPath": "/d"}]))),
        f"{MAIN}.volumeMounts[0].name",
        "there is no volume of that name",
        "'a'",
    )
    yield wrong(
        "more than the limit",
        raw_pytorch(
            Master=group(container(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}))
        ),
        f"{MAIN}.resources.requests['cpu']",
        "more than its limit of 1",
    )
    yield wrong(
        "one text for a command",
        raw_pytorch(Master=group(container(command="python x"))),
        f"{MAIN}.command",
        "must be a list",
        "'python x'",
    )
    yield wrong(
        "a queue label on pods",
        raw_pytorch(
            Master={
                "template": {
                    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
                    "spec": {"containers": [container()]},
                }
            }
        ),
        f"{MASTER}.template.metadata.labels['kueue.x-k8s.io/queue-name']",
        "label the resource",
    )


def policies() -> Rows:
    yield wrong(
        "an unknown restart policy",
        raw_pytorch(Master=group(restartPolicy="never")),
        f"{MASTER}.restartPolicy",
        "'never'",
        "Never, OnFailure",
    )
    yield wrong(
        "an unknown clean-up",
        raw_pytorch({"runPolicy": {"cleanPodPolicy": "none"}}),
        "spec.runPolicy.cleanPodPolicy",
        "'none'",
        "Running, All, None",
    )
    yield wrong(
        "an unknown manager",
        raw_pytorch({"runPolicy": {"managedBy": "me"}}),
        "spec.runPolicy.managedBy",
        "'me'",
    )
    yield wrong(
        "no time at all",
        raw_pytorch({"runPolicy": {"activeDeadlineSeconds": 0}}),
        "spec.runPolicy.activeDeadlineSeconds",
        "at least 1",
    )
    yield wrong(
        "a limit that does nothing",
        raw_pytorch({"runPolicy": {"backoffLimit": 2}}, Master=group(restartPolicy="Never")),
        "spec.runPolicy.backoffLimit",
        "has no effect",
        "of Master is Never",
    )
    yield wrong(
        "elastic with a master",
        raw_pytorch({"elasticPolicy": {"minReplicas": 1}}, Master=group(), Worker=group()),
        MASTER,
        "cannot be combined with elasticPolicy",
    )
    yield wrong(
        "elastic the wrong way round",
        raw_pytorch({"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}}, Worker=group()),
        "spec.elasticPolicy.minReplicas",
        "more than maxReplicas, 2",
        "got 3",
    )
    yield wrong(
        "elastic without nodes",
        raw_pytorch({"elasticPolicy": {"minReplicas": 0}}, Worker=group()),
        "spec.elasticPolicy.minReplicas",
        "at least 1",
        "got 0",
    )
    yield wrong(
        "processes twice",
        raw_pytorch({"nprocPerNode": "2", "elasticPolicy": {"nProcPerNode": 2}}, Worker=group()),
        "spec.elasticPolicy.nProcPerNode",
        "cannot be combined with spec.nprocPerNode",
    )
    yield wrong(
        "processes by a word", raw_pytorch({"nprocPerNode": "all"}), "spec.nprocPerNode", "'all'"
    )
    yield wrong(
        "a number for processes",
        raw_pytorch({"nprocPerNode": 2}),
        "spec.nprocPerNode",
        "must be text",
        "in quotes",
    )


def other_kinds() -> Rows:
    chief = {"Chief": group(container("tensorflow")), "Master": group(container("tensorflow"))}
    yield wrong(
        "a chief and a master",
        raw("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": chief}),
        "spec.tfReplicaSpecs.Master",
        "cannot be combined with Chief",
    )
    worker = {"Worker": group(container("xgboost"))}
    yield wrong(
        "XGBoost without a master",
        raw("kubeflow.org/v1", "XGBoostJob", {"xgbReplicaSpecs": worker}),
        "spec.xgbReplicaSpecs.Master",
        "XGBoostJob needs at least one master",
    )
    paddle = {"Worker": group(container("paddle"))}
    yield wrong(
        "elastic Paddle the wrong way round",
        raw(
            "kubeflow.org/v1",
            "PaddleJob",
            {"paddleReplicaSpecs": paddle, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 1}},
        ),
        "spec.elasticPolicy.minReplicas",
        "more than maxReplicas, 1",
    )
    yield wrong(
        "JAX without a worker",
        raw("kubeflow.org/v1", "JAXJob", {"jaxReplicaSpecs": {"Master": group()}}),
        "spec.jaxReplicaSpecs.Master",
        "JAXJob has no such role",
        "It has Worker.",
    )
    yield wrong(
        "MPI without a launcher",
        raw_mpi(Worker=group()),
        "spec.mpiReplicaSpecs.Launcher",
        "MPIJob needs at least one launcher",
    )
    yield wrong(
        "two launchers",
        raw_mpi(Launcher=group(replicas=2), Worker=group()),
        "spec.mpiReplicaSpecs.Launcher.replicas",
        "must be 1",
    )
    yield wrong(
        "a restart policy that mpi-operator lacks",
        raw_mpi(Launcher=group(), Worker=group(restartPolicy="ExitCode")),
        "spec.mpiReplicaSpecs.Worker.restartPolicy",
        "Use one of Never, OnFailure.",
    )
    yield wrong("negative slots", raw_mpi({"slotsPerWorker": -1}), "spec.slotsPerWorker", "got -1")
    yield wrong(
        "an unknown MPI",
        raw_mpi({"mpiImplementation": "Open"}),
        "spec.mpiImplementation",
        "OpenMPI, Intel, MPICH",
    )
    yield wrong(
        "an unknown way to start",
        raw_mpi({"launcherCreationPolicy": "Soon"}),
        "spec.launcherCreationPolicy",
        "AtStartup, WaitForWorkersReady",
    )
    yield wrong(
        "a field of the other MPIJob",
        raw_mpi({"mpiImplementation": "Intel"}, version="v1"),
        "spec.mpiImplementation",
        "there is no such field",
    )
    yield wrong(
        "a clean-up of MPIJob v1",
        raw_mpi({"cleanPodPolicy": "Some"}, version="v1"),
        "spec.cleanPodPolicy",
        "'Some'",
        "Running, All, None",
    )
    yield wrong(
        "MPI without an image",
        raw_mpi(version="v1", Launcher=group({"name": "mpi"}), Worker=group()),
        "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].image",
        "is required",
    )
    yield wrong(
        "a Job without a template", raw("batch/v1", "Job", {}), "spec.template", "is required"
    )
    yield wrong(
        "a Job's negative limit",
        raw("batch/v1", "Job", {**group(), "backoffLimit": -1}),
        "spec.backoffLimit",
        "at least 0",
    )
    always = {"spec": {"containers": [container()], "restartPolicy": "Always"}}
    yield wrong(
        "a Job that always restarts",
        raw("batch/v1", "Job", {"template": always}),
        "spec.template.spec.restartPolicy",
        "'Always'",
        "Never, OnFailure",
    )


def train_jobs() -> Rows:
    yield wrong(
        "no runtime",
        raw("trainer.kubeflow.org/v1alpha1", "TrainJob", {}),
        "spec.runtimeRef",
        "is required",
    )
    yield wrong(
        "an unnamed runtime",
        raw_train(runtimeRef={"kind": "TrainingRuntime"}),
        "spec.runtimeRef.name",
        "is required",
    )
    yield wrong(
        "no nodes", raw_train(trainer={"numNodes": 0}), "spec.trainer.numNodes", "at least 1"
    )
    yield wrong(
        "negative nodes", raw_train(trainer={"numNodes": -1}), "spec.trainer.numNodes", "-1"
    )
    yield wrong(
        "no processes",
        raw_train(trainer={"numProcPerNode": 0}),
        "spec.trainer.numProcPerNode",
        "at least 1",
    )
    yield wrong(
        "a field of a TrainJob 2.1",
        raw_train(podTemplateOverrides=[]),
        "spec.podTemplateOverrides",
        "there is no such field",
        "runtimePatches",
    )
    yield wrong(
        "a reserved variable",
        raw_train(trainer={"env": [{"name": "PET_NNODES", "value": SECRET}]}),
        "spec.trainer.env[0].name",
        "TrainJob sets this variable itself",
        "'PET_NNODES'",
    )
    yield wrong(
        "a variable twice",
        raw_train(trainer={"env": [{"name": "A"}, {"name": "A"}]}),
        "spec.trainer.env[1].name",
        "is duplicated",
    )
    yield wrong(
        "unequal GPUs",
        raw_train(
            trainer={
                "resourcesPerNode": {
                    "requests": {"nvidia.com/gpu": 1},
                    "limits": {"nvidia.com/gpu": 2},
                }
            }
        ),
        "spec.trainer.resourcesPerNode.requests['nvidia.com/gpu']",
        "must equal its limit of 2",
    )
    yield wrong(
        "no time at all",
        raw_train(activeDeadlineSeconds=0),
        "spec.activeDeadlineSeconds",
        "at least 1",
    )
    yield wrong(
        "a patch of the node's variables",
        raw_train(
            runtimePatches=[
                runtime_patch(
                    {"containers": [{"name": "node", "env": [{"name": "A", "value": "b"}]}]}
                )
            ]
        ),
        f"{PATCHED}.containers[0].env",
        "must not set variables of the container 'node'",
    )
    yield wrong(
        "a patch of what it cannot",
        raw_train(runtimePatches=[runtime_patch({"priorityClassName": "high"})]),
        f"{PATCHED}.priorityClassName",
        "there is no such field",
    )
