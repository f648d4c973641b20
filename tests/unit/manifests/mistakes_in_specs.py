"""Mistakes in specs, each with the field in the error and parts of the text."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from airflow_kftrain import (
    Code,
    Container,
    Elastic,
    FromConfigMap,
    FromField,
    FromSecret,
    Horovod,
    HorovodJob,
    Initializer,
    MPIJob,
    Mpirun,
    Placement,
    Pod,
    PyTorchJob,
    Replica,
    Resources,
    RunPolicy,
    Runtime,
    SchedulingPolicy,
    Source,
    TFJob,
    TrainJob,
)
from airflow_kftrain.specs.code import Function

from .mistakes import SECRET, Given, Rows, container, runtime_patch, wrong


def pytorch(**given: Any) -> Given:
    """One master and one identical worker by default."""
    explicit = {"workers", "master", "worker", "elastic"} & set(given)
    return PyTorchJob, {"image": "img", **({} if explicit else {"workers": 1}), **given}


def tf(**given: Any) -> Given:
    return TFJob, {"image": "img", **given}


def mpi(**given: Any) -> Given:
    explicit = {"workers", "launcher", "worker"} & set(given)
    return MPIJob, {"image": "img", **({} if explicit else {"workers": 2}), **given}


def horovod(**given: Any) -> Given:
    return HorovodJob, {"image": "img", "command": ["python", "t.py"], "workers": 2, **given}


def train(**given: Any) -> Given:
    return TrainJob, {"runtime": "torch-distributed", **given}


def mistakes_in_specs() -> Rows:
    yield from forms()
    yield from nouns()
    yield from numbers()
    yield from elastic()
    yield from main_container()
    yield from resources()
    yield from variables()
    yield from commands()
    yield from volumes()
    yield from containers()
    yield from placements()
    yield from labels()
    yield from shared_memory()
    yield from patches()
    yield from policies()
    yield from other_kinds()
    yield from train_jobs()
    yield from code()


def forms() -> Rows:
    both = ("cannot be combined with", "if all replicas are identical")
    two = Replica(count=2)
    yield wrong("short and explicit", pytorch(workers=4, worker=two), "workers", *both, "worker")
    yield wrong("0 is a value", pytorch(workers=0, worker=two), "workers", *both, "worker")
    yield wrong("master too", pytorch(workers=0, master=Replica()), "workers", *both, "master")
    yield wrong(
        "elastic", pytorch(workers=2, elastic=Elastic(nodes=2)), "workers", *both, "elastic"
    )
    yield wrong("neither form", (PyTorchJob, {"image": "i"}), "workers", "is required", "workers=4")
    yield wrong("both, TF", tf(workers=0, ps=two), "workers", *both, "ps")
    yield wrong("both, chief", tf(workers=2, chief=Replica()), "workers", *both, "chief")
    yield wrong("neither, TF", tf(), "workers", "is required", "workers=4", "evaluator")
    yield wrong("both, MPI", mpi(workers=2, launcher=Replica()), "workers", *both, "launcher")
    yield wrong("neither, MPI", mpi(launcher=Replica()), "workers", "is required", "worker=Replica")
    yield wrong("both, Horovod", horovod(worker=two), "workers", *both, "worker")
    yield wrong(
        "neither, Horovod",
        (HorovodJob, {"image": "i", "command": ["x"]}),
        "workers",
        "is required",
    )
    yield wrong(
        "elastic with a master",
        pytorch(elastic=Elastic(nodes=2), master=Replica()),
        "master",
        "cannot be combined with elastic",
        "Omit it",
    )
    yield wrong(
        "elastic counted twice",
        pytorch(elastic=Elastic(nodes=2), worker=two),
        "worker.count",
        "already set by elastic.nodes",
        "Omit it",
    )
    yield wrong("no image", (PyTorchJob, {"workers": 2}), "image", "is required")
    yield wrong(
        "no image in one role",
        (PyTorchJob, {"master": Replica(), "worker": Replica(image="i")}),
        "master.image",
        "is required",
    )


def nouns() -> Rows:
    yield wrong(
        "a dict for a Replica",
        pytorch(worker={"count": 2, "env": {"TOKEN": SECRET}}),
        "worker",
        "must be Replica(...)",
        "{'count': ..., 'env': ...}",
    )
    yield wrong(
        "a Pod for a Replica", pytorch(master=Pod()), "master", "must be Replica", "Pod(...)"
    )
    yield wrong("a dict for a Pod", pytorch(pod={"volumes": []}), "pod", "must be Pod(...)")
    yield wrong(
        "a dict for a replica's Pod",
        pytorch(worker=Replica(pod={"labels": {}})),
        "worker.pod",
        "must be Pod(...)",
        "{'labels': ...}",
    )
    yield wrong(
        "a dict for a policy", pytorch(run_policy={"ttl": 1}), "run_policy", "RunPolicy(...)"
    )
    yield wrong(
        "a dict for a scheduling policy",
        pytorch(run_policy=RunPolicy(scheduling={"queue": "a"})),
        "run_policy.scheduling",
        "must be SchedulingPolicy(...)",
    )
    yield wrong(
        "a number for Elastic", pytorch(elastic=4), "elastic", "must be Elastic(...)", "got 4"
    )
    yield wrong(
        "a dict for a Placement",
        pytorch(pod=Pod(placement={"node_selector": {}})),
        "pod.placement",
        "must be Placement(...)",
    )
    yield wrong(
        "a dict for Horovod", horovod(horovod={"min_np": 1}), "horovod", "must be Horovod(...)"
    )
    yield wrong("no Horovod", horovod(horovod=None), "horovod", "must not be None", "Omit it")
    yield wrong(
        "a dict for an Initializer",
        train(initializer={"dataset": "hf://a"}),
        "initializer",
        "must be Initializer(...)",
    )
    yield wrong(
        "a URI for a Source",
        train(initializer=Initializer(dataset="hf://a")),
        "initializer.dataset",
        "must be Source(...)",
        "'hf://a'",
    )
    yield wrong(
        "a list for resources",
        pytorch(container_resources=["cpu", 2]),
        "container_resources",
        "must be a mapping",
        "['cpu', 2]",
    )


def numbers() -> Rows:
    yield wrong("a negative count", pytorch(workers=-1), "workers", "at least 0", "got -1")
    yield wrong(
        "a negative count of a replica",
        pytorch(worker=Replica(count=-1)),
        "worker.count",
        "at least 0",
        "got -1",
    )
    yield wrong("words for a count", pytorch(workers="four"), "workers", "whole number", "'four'")
    yield wrong("a fraction", pytorch(workers=1.5), "workers", "whole number", "got 1.5")
    yield wrong("a flag for a count", pytorch(workers=True), "workers", "whole number", "got True")
    yield wrong("digits of other alphabets", pytorch(workers="٣"), "workers", "whole number")
    yield wrong("an endless number", pytorch(workers="9" * 5000), "workers", "whole number", "...")
    yield wrong("too many", pytorch(workers=2**31), "workers", "at most 2147483647")
    yield wrong(
        "two masters", pytorch(master=Replica(count=2)), "master.count", "must be 1", "got 2"
    )
    yield wrong("two chiefs", tf(chief=Replica(count=2)), "chief.count", "must be 1", "got 2")
    yield wrong("nobody", tf(ps=Replica(count=0)), "ps.count", "would do nothing")
    yield wrong("no TF workers", tf(workers=0), "workers", "would do nothing")
    yield wrong(
        "no launcher",
        mpi(launcher=Replica(count=0), worker=Replica()),
        "launcher",
        "MPIJob needs at least one launcher",
    )
    yield wrong(
        "two launchers",
        mpi(launcher=Replica(count=2), worker=Replica()),
        "launcher.count",
        "must be 1",
        "got 2",
    )
    yield wrong("no MPI workers", mpi(workers=0), "workers", "at least 1", "got 0")
    yield wrong(
        "no MPI worker", mpi(worker=Replica(count=0)), "worker.count", "at least 1", "got 0"
    )
    yield wrong("no slots", mpi(slots_per_worker=0), "slots_per_worker", "at least 1", "got 0")
    yield wrong(
        "None for slots", mpi(slots_per_worker=None), "slots_per_worker", "must not be None"
    )


def elastic() -> Rows:
    nodes = ("must be a number or 'MIN:MAX', each at least 1",)
    wrong_nodes = ["a:b", "1:2:3", 0, "0", "0:2", "1:", ":2", "", -1, 2.5, True, [1, 2]]
    for value in wrong_nodes:
        yield wrong(
            f"nodes={value!r}",
            pytorch(elastic=Elastic(nodes=value)),
            "elastic.nodes",
            *nodes,
            f"got {value!r}",
        )
    yield wrong(
        "nodes the wrong way round",
        pytorch(elastic=Elastic(nodes="4:2")),
        "elastic.nodes",
        "'4:2'",
        "Write 'MIN:MAX'",
    )
    yield wrong(
        "least and most the wrong way round",
        pytorch(elastic=Elastic(min_nodes=4, max_nodes=2)),
        "elastic.min_nodes",
        "more than max_nodes, 2",
        "got 4",
    )
    yield wrong("no number of nodes", pytorch(elastic=Elastic()), "elastic", "must set the number")
    yield wrong(
        "half a range",
        pytorch(elastic=Elastic(min_nodes=1)),
        "elastic",
        "must set the number",
        "min_nodes and max_nodes",
    )
    yield wrong(
        "nodes said twice",
        pytorch(elastic=Elastic(nodes=2, max_nodes=2)),
        "elastic",
        "both nodes and min_nodes or max_nodes",
    )
    for processes in (0, "many", "-1", "1.5", True, [1]):
        yield wrong(
            f"nproc_per_node={processes!r}",
            pytorch(elastic=Elastic(nodes=2, nproc_per_node=processes)),
            "elastic.nproc_per_node",
            "at least 1, or one of auto, cpu, gpu",
            f"got {processes!r}",
        )
    yield wrong(
        "None for processes",
        pytorch(elastic=Elastic(nodes=2, nproc_per_node=None)),
        "elastic.nproc_per_node",
        "must not be None",
        "Omit it",
    )
    yield wrong(
        "negative restarts",
        pytorch(elastic=Elastic(nodes=2, max_restarts=-1)),
        "elastic.max_restarts",
        "at least 0",
        "got -1",
    )
    yield wrong(
        "a number for a timeout",
        pytorch(elastic=Elastic(nodes=2, join_timeout=2.5)),
        "elastic.join_timeout",
        "must be a timedelta",
        "got 2.5",
        "timedelta(minutes=10)",
    )
    yield wrong(
        "settings in one text",
        pytorch(elastic=Elastic(nodes=2, rdzv_conf="a=1")),
        "elastic.rdzv_conf",
        "must be a mapping",
        "'a=1'",
    )
    yield wrong(
        "a setting that would become two",
        pytorch(elastic=Elastic(nodes=2, rdzv_conf={"a": "1,b=2"})),
        "elastic.rdzv_conf['a']",
        "without ','",
        "'1,b=2'",
    )
    yield wrong(
        "a setting without a value",
        pytorch(elastic=Elastic(nodes=2, rdzv_conf={"a": None})),
        "elastic.rdzv_conf['a']",
        "must be a number, or text without",
        "got None",
    )
    yield wrong(
        "a setting with two names",
        pytorch(elastic=Elastic(nodes=2, rdzv_conf={"a=b": 1})),
        "elastic.rdzv_conf['a=b']",
        "without ',' and '='",
    )
    yield wrong(
        "metrics as a mapping",
        pytorch(elastic=Elastic(nodes=2, metrics={"type": "Resource"})),
        "elastic.metrics",
        "must be a list",
    )
    yield wrong(
        "a policy of the operator's on a single node",
        pytorch(elastic=Elastic(nodes=1), worker=Replica(restart_policy="ExitCode")),
        "worker.restart_policy",
        "is not a known value",
        "'ExitCode'",
        "Never, OnFailure",
    )


def main_container() -> Rows:
    def given(**fields: Any) -> Given:
        return pytorch(container=Container(**fields))

    yield wrong("a dict", pytorch(container={"ports": []}), "container", "must be Container(...)")
    yield wrong(
        "variables from two sources at once",
        given(env_from=[{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]),
        "container.env_from[0]",
        "exactly one source",
        "'secretRef'",
    )
    yield wrong(
        "variables from nowhere",
        pytorch(worker=Replica(container=Container(env_from=[{"prefix": "A_"}]))),
        "worker.container.env_from[0]",
        "exactly one source",
    )
    yield wrong(
        "a pull policy in lower case",
        given(image_pull_policy="always"),
        "container.image_pull_policy",
        "'always'",
        "Always, IfNotPresent, Never",
    )
    yield wrong("an empty folder", given(working_dir=""), "container.working_dir", "empty")
    yield wrong("a bare port", given(ports=[80]), "container.ports[0]", "mapping of fields")
    yield wrong(
        "a folder where code has its own",
        pytorch(command=["a"], code=Code(), container=Container(working_dir="/work")),
        "container.working_dir",
        "no effect together with code",
        "Omit it",
    )
    yield wrong(
        "the same for a role",
        pytorch(
            code=Code(), command=["a"], worker=Replica(container=Container(working_dir="/work"))
        ),
        "worker.container.working_dir",
        "no effect together with code",
    )
    for name, value in {"working_dir": "/a", "env_from": [], "ports": []}.items():
        yield wrong(
            f"{name} of a TrainJob",
            train(container=Container(**{name: value})),
            f"container.{name}",
            "a TrainJob cannot change this field",
            "TrainingRuntime",
        )


def resources() -> Rows:
    def given(**amounts: Any) -> Given:
        return pytorch(container_resources=Resources(**amounts))

    unreadable = ("is not a valid quantity",)
    for value in ("2 cores", "32GB", "", "-1", ".", "1e", "1_000", float("inf"), True, "٣"):
        yield wrong(
            f"memory={value!r}",
            given(memory=value),
            "container_resources.memory",
            *unreadable,
            f"got {value!r}",
            "'32Gi'",
        )
    for value, says in {
        "512m": ("is in thousandths of a byte", "'512m'", "Write '512Mi' or '512Gi'"),
        512: ("is less than a mebibyte", "'512'", "Write '512Mi' or '512Gi'"),
        "0.5k": ("is less than a mebibyte", "Write '2Gi', say"),
    }.items():
        yield wrong(f"memory={value!r}", given(memory=value), "container_resources.memory", *says)
    yield wrong(
        "little storage",
        given(ephemeral_storage=(None, 10)),
        "container_resources.ephemeral_storage",
        "'10Mi' or '10Gi'",
    )
    yield wrong(
        "little memory, in the words of Kubernetes",
        pytorch(worker=Replica(container_resources={"limits": {"memory": "64m"}})),
        "worker.container_resources.limits['memory']",
        "thousandths",
    )
    yield wrong(
        "little shared memory", pytorch(pod=Pod(shared_memory="2")), "pod.shared_memory", "'2Gi'"
    )
    yield wrong("a list of amounts", given(cpu=[1, 2, 3]), "container_resources.cpu", "a pair of")
    yield wrong(
        "more than the limit",
        given(memory=("4Gi", "2Gi")),
        "container_resources.memory",
        "more than its limit of 2Gi",
        "'4Gi'",
    )
    yield wrong(
        "more than the limit, in other units",
        pytorch(container_resources={"requests": {"cpu": "1100m"}, "limits": {"cpu": 1}}),
        "container_resources.requests['cpu']",
        "more than its limit of 1",
        "'1100m'",
    )
    yield wrong(
        "an unequal pair of GPUs",
        given(gpu=(1, 2)),
        "container_resources.gpu",
        "must equal its limit of 2",
        "got '1'",
    )
    yield wrong(
        "GPUs without a limit",
        given(extended={"amd.com/gpu": (1, None)}),
        "container_resources.extended['amd.com/gpu']",
        "needs a limit of the same amount",
    )
    yield wrong("half a GPU", given(gpu=0.5), "container_resources.gpu", "whole number", "'0.5'")
    yield wrong(
        "half a GPU, in thousandths",
        pytorch(container_resources={"limits": {"nvidia.com/gpu": "500m"}}),
        "container_resources.limits['nvidia.com/gpu']",
        "whole number",
        "'500m'",
    )
    yield wrong(
        "a GPU without its maker",
        given(extended={"gpu": 1}),
        "container_resources.extended['gpu']",
        "there is no resource 'gpu'",
        "'nvidia.com/gpu'",
    )
    yield wrong(
        "cpu among the extended ones",
        given(extended={"cpu": 1}),
        "container_resources.extended['cpu']",
        "has a field of its own",
        "Write cpu instead",
    )
    yield wrong(
        "a list of extended ones",
        given(extended=["rdma/hca"]),
        "container_resources.extended",
        "must be a mapping",
        "'amd.com/gpu': 1",
    )
    yield wrong(
        "a number for a name",
        given(extended={1: 2}),
        "container_resources.extended[1]",
        "must be the name of a resource",
    )
    yield wrong(
        "a number for a name in a dict",
        pytorch(container_resources={"limits": {1: 2}}),
        "container_resources.limits",
        "a key that is not text",
        "got 1",
    )
    yield wrong(
        "huge pages unequal to their limit",
        pytorch(
            container_resources={
                "requests": {"hugepages-2Mi": "2Mi"},
                "limits": {"hugepages-2Mi": "4Mi"},
            }
        ),
        "container_resources.requests['hugepages-2Mi']",
        "must equal its limit",
    )
    yield wrong(
        "a resource where a part belongs",
        pytorch(container_resources={"cpu": 1}),
        "container_resources.cpu",
        "there is no such field",
        "limits, requests",
    )
    yield wrong(
        "in a replica",
        pytorch(worker=Replica(container_resources=Resources(gpu="one"))),
        "worker.container_resources.gpu",
        *unreadable,
        "'one'",
    )
    yield wrong(
        "for a node of a TrainJob",
        train(container_resources=Resources(memory=("4Gi", "2Gi"))),
        "container_resources.memory",
        "more than its limit of 2Gi",
    )


def variables() -> Rows:
    yield wrong(
        "a flag",
        pytorch(env={"DEBUG": True}),
        "env['DEBUG']",
        "must be text, a number",
        "got a bool",
        "'true' or '1'",
    )
    yield wrong("None", pytorch(env={"DEBUG": None}), "env['DEBUG']", "got a NoneType")
    yield wrong("a mapping", pytorch(env={"A": {"x": SECRET}}), "env['A']", "got a dict")
    yield wrong("an empty name", pytorch(env={"": SECRET}), "env", "not a valid name", "got ''")
    yield wrong("a number for a name", pytorch(env={1: SECRET}), "env", "not a valid name", "got 1")
    yield wrong("name and value in one", pytorch(env={f"A={SECRET}": "x"}), "env", "got 'A=...'")
    yield wrong(
        "a name in other alphabets", pytorch(env={"NAMÉ": "x"}), "env", "not a valid name", "'NAMÉ'"
    )
    yield wrong(
        "all in one text",
        pytorch(env=f"TOKEN={SECRET}"),
        "env",
        "must be a mapping of names to values, got a str",
        "{'NAME': 'value'}",
    )
    yield wrong("a set", pytorch(env={SECRET}), "env", "must be a mapping", "got a set")
    yield wrong(
        "a list of texts",
        pytorch(env=[f"TOKEN={SECRET}"]),
        "env[0]",
        "must be a mapping of fields",
        "name, and value or valueFrom",
    )
    yield wrong(
        "is duplicated",
        pytorch(env=[{"name": "A", "value": "1"}, {"name": "A", "value": SECRET}]),
        "env[1].name",
        "is duplicated",
        "'A'",
    )
    yield wrong(
        "a number in a list",
        pytorch(env=[{"name": "A", "value": 1}]),
        "env[0].value",
        "must be text, got a value of type int",
        "Quote it",
    )
    yield wrong(
        "a misspelt field",
        pytorch(env=[{"name": "A", "vale": SECRET}]),
        "env[0].vale",
        "there is no such field",
        "Did you mean 'value'?",
    )
    yield wrong("no name", pytorch(env=[{"value": SECRET}]), "env[0].name", "is required")
    yield wrong(
        "a value and a source",
        pytorch(
            env=[{"name": "A", "value": SECRET, "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]
        ),
        "env[0]",
        "both value and valueFrom",
    )
    yield wrong(
        "two sources",
        pytorch(
            env=[
                {
                    "name": "A",
                    "valueFrom": {
                        "fieldRef": {"fieldPath": "metadata.name"},
                        "secretKeyRef": {"name": "a", "key": "b"},
                    },
                }
            ]
        ),
        "env[0].valueFrom",
        "exactly one source",
        "'fieldRef', 'secretKeyRef'",
    )
    yield wrong(
        "a source in one text",
        pytorch(env=[{"name": "A", "valueFrom": SECRET}]),
        "env[0].valueFrom",
        "must be a mapping of fields",
    )
    yield wrong("a secret without a name", pytorch(env={"A": FromSecret("", "k")}), "env['A'].name")
    yield wrong(
        "a secret without a key",
        pytorch(env={"A": FromSecret("s", None)}),
        "env['A'].key",
        "must not be None",
    )
    yield wrong(
        "an uncertain secret",
        pytorch(env={"A": FromSecret("s", "k", optional="maybe")}),
        "env['A'].optional",
        "must be True or False",
        "'maybe'",
    )
    yield wrong(
        "a config map by number",
        pytorch(env={"A": FromConfigMap(7, "k")}),
        "env['A'].name",
        "must be text",
        "got 7",
        "in quotes",
    )
    yield wrong(
        "no path of a field", pytorch(env={"A": FromField("")}), "env['A'].path", "not be empty"
    )
    yield wrong(
        "in a replica", pytorch(worker=Replica(env={"A": False})), "worker.env['A']", "got a bool"
    )
    yield wrong(
        "in a sidecar",
        pytorch(pod=Pod(sidecars=[container("side", env={"TOKEN": SECRET})])),
        "pod.sidecars[0].env",
        "must be a list",
        "name, and value or valueFrom",
    )


def commands() -> Rows:
    yield wrong(
        "one text for a command",
        pytorch(command="python train.py --fast"),
        "command",
        "must be a list of words, not one string",
        "'python train.py --fast'",
        "['sh', '-c', ...]",
    )
    yield wrong("one text for arguments", pytorch(args="--fast"), "args", "must be a list of words")
    yield wrong(
        "bytes", pytorch(command=b"python"), "command", "must be a list of words", "b'python'"
    )
    yield wrong("a mapping for arguments", pytorch(args={"--fast": 1}), "args", "{'--fast': ...}")
    yield wrong("None within a command", pytorch(command=["a", None]), "command[1]", "must be text")
    yield wrong("a flag within arguments", pytorch(args=["--x", True]), "args[1]", "got True")
    yield wrong(
        "one text for a replica's command",
        pytorch(worker=Replica(command="python")),
        "worker.command",
        "must be a list of words",
    )
    yield wrong("an empty image", pytorch(image=""), "image", "must not be empty")
    yield wrong("an image of two words", pytorch(image="my image"), "image", "white space")
    yield wrong("the same, of a TrainJob", train(image="my image"), "image", "'my image'")
    yield wrong("an image with blanks", pytorch(image="img\n"), "image", "white space", "'img\\n'")
    yield wrong("a number for an image", pytorch(image=1), "image", "must be text", "got 1")


def volumes() -> Rows:
    yield wrong(
        "a text for the source of a volume",
        pytorch(pod=Pod(volumes=[{"name": "data", "persistentVolumeClaim": "data"}])),
        "pod.volumes[0].persistentVolumeClaim",
        "must be a mapping",
        "'data'",
    )
    yield wrong(
        "one volume", pytorch(pod=Pod(volumes={"name": "a"})), "pod.volumes", "must be a list"
    )
    yield wrong("a text for a volume", pytorch(pod=Pod(volumes=["a"])), "pod.volumes[0]", "'a'")
    yield wrong(
        "an unknown source of a volume",
        pytorch(pod=Pod(volumes=[{"name": "a", "emptydir": {}}])),
        "pod.volumes[0].emptydir",
        "there is no such field",
        "Did you mean 'emptyDir'?",
    )
    yield wrong(
        "two volumes of one name",
        pytorch(pod=Pod(volumes=[{"name": "a"}, {"name": "a"}])),
        "pod.volumes[1].name",
        "is duplicated",
        "'a'",
    )
    yield wrong(
        "an illegal name of a volume",
        pytorch(pod=Pod(volumes=[{"name": "My_Data"}])),
        "pod.volumes[0].name",
        "is not a valid name",
        "'My_Data'",
        "lower-case",
    )
    yield wrong(
        "a mount without its volume",
        pytorch(pod=Pod(volume_mounts=[{"name": "data", "mountPath": "/data"}])),
        "pod.volume_mounts[0].name",
        "there is no volume of that name",
        "'data'",
        "Add it to volumes",
    )
    yield wrong(
        "a mount without its volume, of one role",
        pytorch(
            master=Replica(),
            worker=Replica(pod=Pod(volume_mounts=[{"name": "data", "mountPath": "/data"}])),
        ),
        "worker.pod.volume_mounts[0].name",
        "there is no volume of that name",
    )
    yield wrong(
        "two mounts at one place",
        pytorch(
            pod=Pod(
                volumes=[{"name": "a"}, {"name": "b"}],
                volume_mounts=[
                    {"name": "a", "mountPath": "/data"},
                    {"name": "b", "mountPath": "/data"},
                ],
            )
        ),
        "pod.volume_mounts[1].mountPath",
        "is duplicated",
        "'/data'",
    )
    yield wrong(
        "a mount without a path",
        pytorch(pod=Pod(volumes=[{"name": "a"}], volume_mounts=[{"name": "a"}])),
        "pod.volume_mounts[0].mountPath",
        "is required",
    )
    yield wrong(
        "an empty path",
        pytorch(pod=Pod(volumes=[{"name": "a"}], volume_mounts=[{"name": "a", "mountPath": ""}])),
        "pod.volume_mounts[0].mountPath",
        "is required",
    )


def containers() -> Rows:
    yield wrong(
        "a sidecar called like the main container",
        pytorch(pod=Pod(sidecars=[container("pytorch")])),
        "pod.sidecars[0].name",
        "the name of two containers",
        "'pytorch'",
    )
    yield wrong(
        "an init container called like a sidecar",
        pytorch(pod=Pod(sidecars=[container("a")], init_containers=[container("a")])),
        "pod.init_containers[0].name",
        "the name of two containers",
        "'a'",
    )
    yield wrong(
        "a sidecar without an image",
        pytorch(pod=Pod(sidecars=[container("a"), {"name": "b"}])),
        "pod.sidecars[1].image",
        "is required",
    )
    yield wrong(
        "a mount of a sidecar without its volume",
        pytorch(
            pod=Pod(sidecars=[container("a", volumeMounts=[{"name": "v", "mountPath": "/v"}])])
        ),
        "pod.sidecars[0].volumeMounts[0].name",
        "there is no volume of that name",
        "'v'",
    )
    yield wrong(
        "one sidecar",
        pytorch(pod=Pod(sidecars=container("a"))),
        "pod.sidecars",
        "must be a list",
        "{'name': ..., 'image': ...}",
    )
    yield wrong(
        "a misspelt field of a sidecar",
        pytorch(pod=Pod(sidecars=[container("a", comand=["x"])])),
        "pod.sidecars[0].comand",
        "Did you mean 'command'?",
    )
    yield wrong(
        "an illegal name of a sidecar",
        pytorch(pod=Pod(sidecars=[container("My Sidecar")])),
        "pod.sidecars[0].name",
        "is not a valid name",
        "'My Sidecar'",
    )
    yield wrong(
        "an unknown pull policy",
        pytorch(pod=Pod(sidecars=[container("a", imagePullPolicy="Sometimes")])),
        "pod.sidecars[0].imagePullPolicy",
        "'Sometimes'",
        "Always, IfNotPresent, Never",
    )


def placements() -> Rows:
    yield wrong(
        "a text for an affinity",
        pytorch(pod=Pod(placement=Placement(affinity="zone=a"))),
        "pod.placement.affinity",
        "must be a mapping",
        "'zone=a'",
    )
    yield wrong(
        "a toleration as a mapping",
        pytorch(pod=Pod(placement=Placement(tolerations={"key": "gpu"}))),
        "pod.placement.tolerations",
        "must be a list",
    )
    yield wrong(
        "an unknown effect",
        pytorch(pod=Pod(placement=Placement(tolerations=[{"effect": "NoStart"}]))),
        "pod.placement.tolerations[0].effect",
        "is not a known value",
        "'NoStart'",
        "NoSchedule",
    )
    yield wrong(
        "a list for a node selector",
        pytorch(pod=Pod(placement=Placement(node_selector=["gpu"]))),
        "pod.placement.node_selector",
        "must be a mapping",
    )
    yield wrong(
        "what no manifest can hold",
        pytorch(pod=Pod(placement=Placement(affinity={"since": date(2026, 1, 1)}))),
        "pod.placement.affinity.since",
        "must be text, a number, a list or a mapping, got a date",
    )
    yield wrong(
        "an uncertain flag",
        pytorch(pod=Pod(placement=Placement(safe_to_evict="no"))),
        "pod.placement.safe_to_evict",
        "must be True or False",
        "'no'",
    )
    yield wrong(
        "a number for an account",
        pytorch(pod=Pod(service_account=5)),
        "pod.service_account",
        "must be text",
    )
    yield wrong(
        "one pull secret",
        pytorch(pod=Pod(image_pull_secrets="reg")),
        "pod.image_pull_secrets",
        "must be a list",
        "'reg'",
    )


def labels() -> Rows:
    yield wrong(
        "an illegal key",
        pytorch(pod=Pod(labels={"a b": "x"})),
        "pod.labels",
        "is not a valid key",
        "'a b'",
        "'example.com/name'",
    )
    for key in ("", "/a", "a/", "Example.com/a", "a/b/c", "x" * 64, 5):
        yield wrong(
            f"the key {key!r}",
            pytorch(pod=Pod(labels={key: "x"})),
            "pod.labels",
            "is not a valid key",
        )
    yield wrong(
        "an illegal label",
        pytorch(pod=Pod(labels={"a": "b c"})),
        "pod.labels['a']",
        "is not a valid label value",
        "'b c'",
        "Use at most 63",
    )
    yield wrong(
        "a long label",
        pytorch(pod=Pod(labels={"a": "x" * 64})),
        "pod.labels['a']",
        "Use at most 63",
    )
    yield wrong(
        "a number for a label", pytorch(pod=Pod(labels={"a": 1})), "pod.labels['a']", "got 1"
    )
    yield wrong(
        "a list of labels", pytorch(pod=Pod(labels=["a"])), "pod.labels", "must be a mapping"
    )
    yield wrong(
        "a flag for an annotation",
        pytorch(pod=Pod(annotations={"a": True})),
        "pod.annotations['a']",
        "must be text",
        "got True",
        "in quotes",
    )
    yield wrong(
        "an illegal key of an annotation",
        pytorch(pod=Pod(annotations={"a:b": "c"})),
        "pod.annotations",
        "is not a valid key",
        "'a:b'",
    )
    yield wrong(
        "a queue label on pods",
        pytorch(pod=Pod(labels={"kueue.x-k8s.io/queue-name": "q"})),
        "pod.labels['kueue.x-k8s.io/queue-name']",
        "must not be set on pods",
        "queue_name",
    )
    yield wrong(
        "an illegal queue",
        pytorch(queue_name="team a"),
        "queue_name",
        "is not a valid label value",
        "'team a'",
    )
    yield wrong("an empty queue", pytorch(queue_name=""), "queue_name", "must not be empty")
    yield wrong(
        "an illegal priority class",
        pytorch(queue_name="q", queue_priority="very high"),
        "queue_priority",
        "is not a valid label value",
        "'very high'",
    )
    yield wrong(
        "a queue for a kind that Kueue does not know",
        mpi(queue_name="q", version="v1"),
        "queue_name",
        "has no effect: Kueue does not queue MPIJobs of kubeflow.org/v1",
        "'q'",
        "Omit it",
    )


def shared_memory() -> Rows:
    at_shm = Pod(
        volumes=[{"name": "shm", "emptyDir": {}}],
        volume_mounts=[{"name": "shm", "mountPath": "/dev/shm/"}],
        shared_memory=True,
    )
    clash = ("/dev/shm is already mounted", "Remove that mount")
    yield wrong("shared memory twice", pytorch(pod=at_shm), "pod.shared_memory", *clash)
    yield wrong(
        "shared memory twice in a role",
        pytorch(worker=Replica(pod=at_shm)),
        "worker.pod.shared_memory",
        *clash,
    )
    yield wrong("shared memory twice in a TrainJob", train(pod=at_shm), "pod.shared_memory", *clash)
    yield wrong(
        "the name of its volume",
        pytorch(pod=Pod(volumes=[{"name": "kftrain-shm"}])),
        "pod.volumes",
        "'kftrain-shm'",
        "shared_memory=False",
    )
    yield wrong(
        "an unreadable size",
        pytorch(pod=Pod(shared_memory="2 GB")),
        "pod.shared_memory",
        "not a valid quantity",
        "'2 GB'",
    )
    yield wrong(
        "a number as size",
        pytorch(pod=Pod(shared_memory=2)),
        "pod.shared_memory",
        "must be True, False or an amount",
        "got 2",
        "'2Gi'",
    )


def patches() -> Rows:
    def patched(patch: Any, **more: Any) -> Given:
        return pytorch(pod=Pod(patch=patch, **more))

    yield wrong(
        "a patch of an unknown container",
        patched(
            {"spec": {"containers": [{"name": "main", "workingDir": "/app"}]}},
            sidecars=[container("side")],
        ),
        "pod.patch.spec.containers[0].name",
        "there is no such container to patch",
        "'main'",
        "There are pytorch, side",
    )
    yield wrong(
        "a patch of an unknown init container",
        patched({"spec": {"initContainers": [{"name": "first"}]}}),
        "pod.patch.spec.initContainers[0].name",
        "There are none",
        "init_containers",
    )
    yield wrong(
        "a patch of a container without its name",
        patched({"spec": {"containers": [{"workingDir": "/app"}]}}),
        "pod.patch.spec.containers[0].name",
        "is required",
    )
    yield wrong(
        "a patch beside the spec",
        patched({"hostNetwork": True, "env": SECRET}),
        "pod.patch",
        "must be a pod template",
        "{'hostNetwork': ..., 'env': ...}",
        "under 'spec'",
    )
    yield wrong("a patch in YAML", patched("spec: {}"), "pod.patch", "must be a pod template")
    yield wrong("a list for a spec", patched({"spec": [1]}), "pod.patch.spec", "must be a mapping")
    yield wrong(
        "an unknown field of a pod",
        patched({"spec": {"hostNetwrk": True}}),
        "pod.patch.spec.hostNetwrk",
        "there is no such field",
        "Did you mean 'hostNetwork'?",
    )
    yield wrong(
        "an unknown field of a container",
        patched({"spec": {"containers": [{"name": "pytorch", "workDir": "/app"}]}}),
        "pod.patch.spec.containers[0].workDir",
        "Did you mean 'workingDir'?",
    )
    yield wrong(
        "a patch with a wrong label",
        pytorch(worker=Replica(pod=Pod(patch={"metadata": {"labels": {"a": "b c"}}}))),
        "worker.pod.patch.metadata.labels['a']",
        "is not a valid label value",
        "'b c'",
    )
    yield wrong(
        "a patch with an endless deadline",
        patched({"spec": {"activeDeadlineSeconds": 0}}),
        "pod.patch.spec.activeDeadlineSeconds",
        "at least 1",
        "got 0",
    )
    yield wrong(
        "a patch that takes the spec", patched({"spec": None}), "pod.patch.spec", "is required"
    )
    yield wrong(
        "a patch that takes the spec of a single node",
        pytorch(
            elastic=Elastic(nodes=1),
            worker=Replica(restart_policy="Never", pod=Pod(patch={"spec": None})),
        ),
        "worker.pod.patch.spec",
        "is required",
    )
    yield wrong(
        "a patch that takes the containers",
        patched({"spec": {"containers": None}}),
        "pod.patch.spec.containers",
        "must have at least one container",
    )
    yield wrong(
        "a patch that takes the image",
        patched({"spec": {"containers": [{"name": "pytorch", "image": None}]}}),
        "image",
        "is required",
    )
    yield wrong(
        "a patch with an illegal name of a volume",
        patched({"spec": {"volumes": [{"name": "Data"}]}}),
        "pod.patch.spec.volumes[0].name",
        "is not a valid name",
        "'Data'",
    )


def policies() -> Rows:
    def given(**fields: Any) -> Given:
        return pytorch(run_policy=RunPolicy(**fields))

    yield wrong(
        "an unknown clean-up",
        given(clean_pods="Sometimes"),
        "run_policy.clean_pods",
        "'Sometimes'",
        "Running, All, None",
    )
    yield wrong(
        "a negative limit", given(backoff_limit=-1), "run_policy.backoff_limit", "at least 0"
    )
    yield wrong("a limit in words", given(backoff_limit="few"), "run_policy.backoff_limit", "'few'")
    yield wrong(
        "a negative ttl",
        given(ttl=timedelta(seconds=-1)),
        "run_policy.ttl",
        "must be a timedelta from 0 s",
    )
    yield wrong(
        "half a second", given(ttl=timedelta(seconds=0.5)), "run_policy.ttl", "whole seconds"
    )
    yield wrong("an endless ttl", given(ttl=timedelta.max), "run_policy.ttl", "to 68 years")
    yield wrong(
        "no time at all",
        given(active_deadline=timedelta(0)),
        "run_policy.active_deadline",
        "from 1 s",
    )
    yield wrong("an uncertain flag", given(suspend="later"), "run_policy.suspend", "True or False")
    yield wrong(
        "an unknown manager",
        given(managed_by="me"),
        "run_policy.managed_by",
        "is not a known value",
        "'me'",
        "kubeflow.org/training-operator",
    )
    yield wrong(
        "the manager of another kind",
        mpi(run_policy=RunPolicy(managed_by="kubeflow.org/training-operator")),
        "run_policy.managed_by",
        "kubeflow.org/mpi-operator",
    )
    yield wrong(
        "a limit that does nothing",
        pytorch(worker=Replica(restart_policy="Never"), run_policy=RunPolicy(backoff_limit=2)),
        "run_policy.backoff_limit",
        "has no effect",
        "of Worker is Never",
        "got 2",
        "OnFailure",
    )
    yield wrong(
        "an unknown restart policy",
        pytorch(worker=Replica(restart_policy="Sometimes")),
        "worker.restart_policy",
        "'Sometimes'",
        "Never, OnFailure, Always, ExitCode",
    )
    yield wrong(
        "a restart policy that mpi-operator lacks",
        mpi(launcher=Replica(restart_policy="Always"), worker=Replica()),
        "launcher.restart_policy",
        "'Always'",
        "Use one of Never, OnFailure.",
    )
    yield wrong(
        "a flag for a restart policy",
        pytorch(master=Replica(restart_policy=True)),
        "master.restart_policy",
        "must be text",
        "got True",
    )
    yield wrong(
        "an empty scheduling policy",
        given(scheduling=SchedulingPolicy()),
        "run_policy.scheduling",
        "is empty",
    )
    yield wrong(
        "negative members",
        given(scheduling=SchedulingPolicy(min_available=-1)),
        "run_policy.scheduling.min_available",
        "at least 0",
    )
    yield wrong(
        "an unreadable amount",
        given(scheduling=SchedulingPolicy(min_resources={"cpu": "2x"})),
        "run_policy.scheduling.min_resources.cpu",
        "not a valid quantity",
        "'2x'",
    )
    yield wrong(
        "one amount",
        given(scheduling=SchedulingPolicy(min_resources="2")),
        "run_policy.scheduling.min_resources",
        "must be a mapping",
    )


def other_kinds() -> Rows:
    yield wrong(
        "an unknown success policy",
        tf(workers=1, success_policy="Any"),
        "success_policy",
        "'Any'",
        "AllWorkers",
    )
    yield wrong(
        "an uncertain flag", tf(workers=1, dynamic_workers="yes"), "dynamic_workers", "'yes'"
    )
    yield wrong(
        "an unknown MPI",
        mpi(implementation="mpich"),
        "implementation",
        "'mpich'",
        "OpenMPI, Intel, MPICH",
    )
    yield wrong(
        "an MPI that v1 cannot be told",
        mpi(implementation="Intel", version="v1"),
        "implementation",
        "MPIJob v1 has no such setting",
        "'Intel'",
        "Omit it",
    )
    yield wrong("an unknown version", mpi(version="v2"), "version", "'v2'", "v2beta1, v1")
    yield wrong(
        "no program for horovodrun",
        (HorovodJob, {"image": "i", "workers": 1}),
        "command",
        "is required",
        "horovodrun",
        "command=['python', 'train.py']",
    )
    yield wrong(
        "more than all ranks",
        horovod(horovod=Horovod(min_np=3)),
        "horovod.min_np",
        "more than the 2 ranks of the workers",
        "got 3",
    )
    yield wrong(
        "less than all ranks",
        horovod(horovod=Horovod(max_np=1)),
        "horovod.max_np",
        "less than the 2 ranks of the workers",
        "got 1",
    )
    yield wrong("no ranks", horovod(horovod=Horovod(min_np=0)), "horovod.min_np", "at least 1")
    yield wrong(
        "an unknown level",
        horovod(horovod=Horovod(log_level="LOUD")),
        "horovod.log_level",
        "'LOUD'",
        "WARNING",
    )
    yield wrong(
        "no script",
        horovod(horovod=Horovod(discovery_script="")),
        "horovod.discovery_script",
        "must not be empty",
    )


def train_jobs() -> Rows:
    yield wrong("no nodes", train(num_nodes=0), "num_nodes", "at least 1", "got 0")
    yield wrong("negative nodes", train(num_nodes=-1), "num_nodes", "at least 1", "got -1")
    yield wrong("no processes", train(num_proc_per_node=0), "num_proc_per_node", "at least 1")
    yield wrong(
        "processes by a word", train(num_proc_per_node="auto"), "num_proc_per_node", "'auto'"
    )
    yield wrong("no runtime", train(runtime=None), "runtime", "must not be None")
    yield wrong("an empty runtime", train(runtime=""), "runtime", "must not be empty")
    yield wrong(
        "a number for a runtime", train(runtime=5), "runtime", "must be Runtime(...)", "got 5"
    )
    yield wrong(
        "a runtime without a name", train(runtime=Runtime(None)), "runtime.name", "not be None"
    )
    yield wrong(
        "a runtime of an unknown kind",
        train(runtime=Runtime("a", kind="Runtime")),
        "runtime.kind",
        "'Runtime'",
        "ClusterTrainingRuntime, TrainingRuntime",
    )
    yield wrong("an empty initializer", train(initializer=Initializer()), "initializer", "is empty")
    yield wrong(
        "not a URI",
        train(initializer=Initializer(model=Source("model"))),
        "initializer.model.uri",
        "must be a URI",
        "'model'",
        "hf://",
    )
    yield wrong(
        "no URI",
        train(initializer=Initializer(model=Source(None))),
        "initializer.model.uri",
        "must not be None",
    )
    yield wrong(
        "a flag in an initializer",
        train(initializer=Initializer(dataset=Source("hf://a", env={"A": True}))),
        "initializer.dataset.env['A']",
        "got a bool",
    )
    for name in ("PET_NNODES", "OMPI_MCA_plm_rsh_args", "DMLC_NUM_WORKER"):
        yield wrong(
            f"the reserved {name}",
            train(env={"A": "b", name: SECRET}),
            "env[1].name",
            "TrainJob sets this variable itself",
            repr(name),
            "Omit it",
        )
    lacks = {
        "clean_pods": "Running",
        "ttl": timedelta(hours=1),
        "backoff_limit": 0,
        "scheduling": SchedulingPolicy(queue="q"),
    }
    for field, value in lacks.items():
        yield wrong(
            f"a TrainJob has no {field}",
            train(run_policy=RunPolicy(**{field: value})),
            f"run_policy.{field}",
            "TrainJob has no such setting",
            "active_deadline, suspend, managed_by",
        )
    of_the_runtime = ("cannot change this field of its runtime", "Set it in a TrainingRuntime")
    for field, value in {
        "init_containers": [container("a")],
        "sidecars": [container("a")],
        "template_file": "/templates/pod.yaml",
    }.items():
        yield wrong(
            f"a TrainJob has no {field}",
            train(pod=Pod(**{field: value})),
            f"pod.{field}",
            *of_the_runtime,
        )
    for field in ("priority_class", "scheduler_name"):
        yield wrong(
            f"a TrainJob has no {field}",
            train(pod=Pod(placement=Placement(**{field: "x"}))),
            f"pod.placement.{field}",
            *of_the_runtime,
        )
    yield wrong(
        "a patch of what a runtime keeps",
        train(pod=Pod(patch={"spec": {"hostNetwork": True}})),
        "pod.patch.spec.hostNetwork",
        "there is no such field",
        "nodeSelector",
    )
    yield wrong(
        "a patch of a container's image",
        train(pod=Pod(patch={"spec": {"containers": [{"name": "node", "image": "i"}]}})),
        "pod.patch.spec.containers[0].image",
        "there is no such field",
    )
    yield wrong(
        "a patch of the trainer's variables",
        train(
            pod=Pod(
                patch={
                    "spec": {"containers": [{"name": "node", "env": [{"name": "A", "value": "b"}]}]}
                }
            )
        ),
        "pod.patch.spec.containers[0].env",
        "must not set variables of the container 'node'",
    )
    yield wrong(
        "two mounts at one place",
        train(
            pod=Pod(
                volume_mounts=[{"name": "a", "mountPath": "/d"}, {"name": "b", "mountPath": "/d"}]
            )
        ),
        "pod.volume_mounts[1].mountPath",
        "is duplicated",
        "'/d'",
    )
    yield wrong(
        "a mount of no volume",
        train(pod=Pod(volume_mounts=[{"mountPath": "/d"}])),
        "pod.volume_mounts[0].name",
        "is required",
    )
    yield wrong(
        "two volumes of one name",
        train(pod=Pod(volumes=[{"name": "a"}, {"name": "a"}])),
        "pod.volumes[1].name",
        "is duplicated",
        "'a'",
    )
    yield wrong(
        "a patch without a manager",
        train(runtime_patches=[{}]),
        "runtime_patches[0].manager",
        "is required",
    )
    yield wrong(
        "a patch in our name",
        train(runtime_patches=[runtime_patch({}, "airflow-kftrain/provider")]),
        "runtime_patches[0].manager",
        "'airflow-kftrain/provider'",
        "Use another",
    )
    yield wrong(
        "two patches of one manager",
        train(runtime_patches=[runtime_patch({})] * 2),
        "runtime_patches[1].manager",
        "is duplicated",
        "'example.com/team'",
    )
    yield wrong(
        "too many patches",
        train(runtime_patches=[runtime_patch({}, f"example.com/{number}") for number in range(16)]),
        "runtime_patches",
        "16 at most",
        "got 17",
    )
    yield wrong(
        "one patch", train(runtime_patches=runtime_patch({})), "runtime_patches", "must be a list"
    )


def code() -> Rows:
    function = Function("train", "kftrain_dag", "def train(): pass\n", "dag.py")
    image = {"image": "i", "workers": 1}
    needs = ("is required together with code", "For example: command=['python', 'train.py']")
    yield wrong("no command", (PyTorchJob, {**image, "code": Code()}), "command", *needs)
    yield wrong(
        "no command, TrainJob",
        (TrainJob, {"runtime": "torch", "code": Code()}),
        "command",
        *needs,
    )
    yield wrong(
        "fatal of a command",
        (PyTorchJob, {**image, "command": ["a"], "code": Code(fatal=["ValueError"])}),
        "code.fatal",
        "is only for functions",
    )
    yield wrong(
        "no exception",
        (PyTorchJob, {**image, "function": function, "code": Code(fatal=["a b"])}),
        "code.fatal[0]",
        "must be the name of an exception",
        "'a b'",
    )
    beside = "cannot be combined with a function"
    yield wrong(
        "function and command",
        (PyTorchJob, {**image, "command": ["a"], "function": function}),
        "command",
        beside,
    )
    yield wrong(
        "function and arguments of a replica",
        (PyTorchJob, {"image": "i", "worker": Replica(args=["a"]), "function": function}),
        "worker.args",
        beside,
    )
    yield wrong(
        "function and a clean-up of elastic pods",
        (
            PyTorchJob,
            {
                "image": "i",
                "elastic": Elastic(nodes=2),
                "function": function,
                "run_policy": RunPolicy(clean_pods="All"),
            },
        ),
        "run_policy.clean_pods",
        "may delete the pod of rank 0",
    )
    yield wrong(
        "mpirun of Horovod",
        (HorovodJob, {**image, "command": ["a"], "mpirun": Mpirun()}),
        "mpirun",
        "horovodrun starts the ranks",
    )
    yield wrong(
        "no ranks",
        (MPIJob, {**image, "command": ["a"], "mpirun": Mpirun(processes=0)}),
        "mpirun.processes",
        "at least 1",
    )
    yield wrong(
        "mpirun of nothing",
        (MPIJob, {**image, "mpirun": Mpirun()}),
        "command",
        "mpirun has to know",
    )
    yield wrong(
        "mpirun of nothing in a TrainJob",
        (TrainJob, {"runtime": "deepspeed-distributed", "mpirun": Mpirun()}),
        "command",
        "mpirun has to know",
    )
    yield wrong(
        "options of mpirun in a TrainJob",
        (TrainJob, {"runtime": "r", "command": ["a"], "mpirun": Mpirun(options="-v")}),
        "mpirun.options",
        "list",
    )
