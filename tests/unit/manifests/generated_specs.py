"""Strategies for valid specs of every kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from airflow_kftrain import (
    Container,
    Elastic,
    FromConfigMap,
    FromField,
    FromSecret,
    Horovod,
    HorovodJob,
    Initializer,
    MPIJob,
    Owner,
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


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def number(least: int, most: int) -> st.SearchStrategy[Any]:
    """A number, or the text that a template renders to."""
    return st.integers(least, most).flatmap(lambda value: st.sampled_from([value, str(value)]))


def some(items: list[Any]) -> st.SearchStrategy[list[Any]]:
    """Some of the items, in their order."""
    return st.lists(st.sampled_from(range(len(items))), unique=True, max_size=3).map(
        lambda chosen: [items[place] for place in sorted(chosen)]
    )


def noun(kind: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: kind(**given))


texts = st.text("abcß ö-{}:#'\"\n", max_size=8)
durations = st.integers(1, 10**6).map(lambda seconds: timedelta(seconds=seconds))
images = st.sampled_from(["img", "registry.example.com/train:1.4"])
commands = st.sampled_from(
    [
        ["python", "train.py"],
        ("python3.11", "-u", "train.py", "--rate", 0.1),
        ["torchrun", "train.py"],
        ["mpirun", "-np", 4],
        ["sh", "-c", "python train.py"],
        [],
    ]
)
arguments = st.lists(texts | st.integers(0, 9), max_size=3)
env_values = st.one_of(
    texts,
    st.integers(0, 9),
    st.builds(FromSecret, st.just("secret"), st.just("key"), st.booleans()),
    st.builds(FromConfigMap, st.just("settings"), st.just("key")),
    st.just(FromField("metadata.name")),
)
env_names = st.sampled_from(
    ["A", "B_1", "lower", "OMP_NUM_THREADS", "KFTRAIN_RUN_ID", "PET_MAX_RESTARTS"]
)
envs = st.dictionaries(env_names, env_values, max_size=4) | st.lists(
    st.fixed_dictionaries({"name": env_names}, optional={"value": texts}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
resources = noun(
    Resources,
    cpu=st.sampled_from([1, "500m", (1, 2), (None, 4), 0.5]),
    memory=st.sampled_from(["1Gi", ("1Gi", "2Gi"), ("1Gi", None)]),
    gpu=st.sampled_from([0, 1, "2"]),
    ephemeral_storage=st.just("10Gi"),
    extended=st.sampled_from([{"rdma/hca": 1}, {"amd.com/gpu": "1"}]),
) | st.just({"limits": {"cpu": 1, "nvidia.com/gpu": 1}})
label_maps = st.dictionaries(
    st.sampled_from(["team", "example.com/tier"]), st.sampled_from(["", "a", "b-c"]), max_size=2
)
placements = noun(
    Placement,
    node_selector=label_maps,
    tolerations=some([{"key": "gpu", "operator": "Exists"}, {"effect": "NoExecute"}]),
    affinity=st.just({"nodeAffinity": {"preferred": [{"weight": 1, "none": None}]}}),
    priority_class=st.just("high"),
    scheduler_name=st.just("volcano"),
    safe_to_evict=st.booleans(),
)

_VOLUMES = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "cache", "emptyDir": {"medium": "Memory"}},
    {"name": "shm", "emptyDir": {}},
]
_MOUNTS = [
    {"name": "data", "mountPath": "/data", "subPath": ""},
    {"name": "cache", "mountPath": "/cache", "readOnly": "true"},
    {"name": "shm", "mountPath": "/dev/shm"},
]
_SIDECARS = [
    {"name": "metrics", "image": "img", "env": [{"name": "PORT", "value": "1"}]},
    {"name": "proxy", "image": "img", "terminationMessagePolicy": "File"},
]
_PATCHES = [
    {"metadata": {"annotations": {"sidecar.istio.io/inject": "true"}}},
    {"spec": {"hostNetwork": True, "dnsConfig": {"options": [{"name": "ndots", "value": None}]}}},
    {"spec": {"terminationGracePeriodSeconds": "60", "hostname": None}},
]


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    mounts = draw(st.sampled_from([0, 1, 2, 3]))
    at_shm = mounts == 3
    return Pod(
        volumes=draw(st.just(_VOLUMES) if mounts else maybe(some(_VOLUMES))),
        volume_mounts=_MOUNTS[:mounts] or draw(maybe(st.just([]))),
        shared_memory=draw(st.sampled_from([None, False] if at_shm else [None, True, "1Gi"])),
        placement=draw(maybe(placements)),
        service_account=draw(maybe(st.just("trainer"))),
        image_pull_secrets=draw(maybe(some(["registry", {"name": "mirror"}]))),
        labels=draw(maybe(label_maps)),
        annotations=draw(maybe(st.dictionaries(st.just("note"), texts, max_size=1))),
        init_containers=draw(maybe(some([{"name": "first", "image": "img", "command": ["a"]}]))),
        sidecars=draw(maybe(some(_SIDECARS))),
        patch=draw(maybe(st.sampled_from(_PATCHES))),
    )


run_policies = noun(
    RunPolicy,
    clean_pods=st.sampled_from(["Running", "All", "None"]),
    ttl=durations | st.just(timedelta(0)),
    active_deadline=durations,
    backoff_limit=number(0, 5),
    suspend=st.sampled_from([True, False, "True"]),
    managed_by=st.just("kueue.x-k8s.io/multikueue"),
    scheduling=st.just(SchedulingPolicy(min_available="2", min_resources={"cpu": 1})),
)
single_node_policies = noun(
    RunPolicy, ttl=durations, backoff_limit=number(0, 5), suspend=st.booleans()
)
# With Never, a limit on restarts would be an error.
restarts = st.sampled_from(["OnFailure", "Always", "ExitCode"])


containers = noun(
    Container,
    env_from=some(
        [{"secretRef": {"name": "wandb"}}, {"prefix": "C_", "configMapRef": {"name": "c"}}]
    ),
    image_pull_policy=st.sampled_from(["Always", "IfNotPresent", "Never"]),
    security_context=st.just({"runAsUser": 1000}),
    working_dir=st.just("/work"),
    ports=st.just([{"containerPort": "6006"}]),
    liveness_probe=st.just({"exec": {"command": ["true"]}}),
)


def replicas(
    counts: st.SearchStrategy[Any], policies: st.SearchStrategy[Any] = restarts
) -> st.SearchStrategy[Replica]:
    return noun(
        Replica,
        count=counts,
        image=images,
        command=commands,
        args=arguments,
        env=envs,
        container_resources=resources,
        restart_policy=policies,
        pod=_alone(),
        container=containers,
    )


def _alone() -> st.SearchStrategy[Pod]:
    """The pod of a replica that fits any pod of its job."""
    return noun(
        Pod,
        placement=placements,
        service_account=st.just("other"),
        labels=label_maps,
        sidecars=st.just([_SIDECARS[0]]),
    )


_COMMON = {
    "command": commands,
    "args": arguments,
    "env": envs,
    "container_resources": resources,
    "pod": pods(),
    "container": containers,
    "queue_name": st.sampled_from(["team-a", "q.1"]),
    "queue_priority": st.sampled_from(["urgent", "p.1"]),
}
_WITH_POLICY = {**_COMMON, "run_policy": run_policies}


def jobs(
    kind: type[Any],
    needed: dict[str, st.SearchStrategy[Any]],
    optional: dict[str, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[type[Any], dict[str, Any]]]:
    """The type of a spec with its arguments."""
    always = {"image": images, **needed}
    others = {name: strategy for name, strategy in optional.items() if name not in always}
    return st.fixed_dictionaries(always, optional=others).map(lambda given: (kind, given))


elastic_settings = {
    "nproc_per_node": st.sampled_from([1, "2", 8, "gpu", "auto"]),
    "max_restarts": number(0, 3),
    "rdzv_id": st.just("ours"),
    "rdzv_conf": st.just({"last_call_timeout": 30}),
    "join_timeout": durations,
}
several_nodes = st.sampled_from([2, "4", "1:2", "2:8"])


def elastics(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Elastic]:
    return st.fixed_dictionaries({"nodes": nodes}, optional=elastic_settings).map(
        lambda given: Elastic(**given)
    )


pytorch_jobs = st.one_of(
    jobs(PyTorchJob, {"workers": number(0, 20)}, _WITH_POLICY),
    jobs(
        PyTorchJob,
        {"worker": replicas(number(0, 20))},
        {**_WITH_POLICY, "master": replicas(st.just(1))},
    ),
    jobs(
        PyTorchJob,
        {"elastic": elastics(several_nodes)},
        {**_WITH_POLICY, "worker": replicas(st.none())},
    ),
    jobs(
        PyTorchJob,
        {"elastic": elastics(st.sampled_from([1, "1", "1:1"]))},
        {
            **_COMMON,
            "run_policy": single_node_policies,
            "worker": replicas(st.none(), st.sampled_from(["Never", "OnFailure"])),
        },
    ),
)
tf_jobs = st.one_of(
    jobs(TFJob, {"workers": number(1, 20)}, {**_WITH_POLICY, "dynamic_workers": st.booleans()}),
    jobs(
        TFJob,
        {"worker": replicas(number(1, 9))},
        {
            **_WITH_POLICY,
            "chief": replicas(number(0, 1)),
            "ps": replicas(number(0, 3)),
            "evaluator": replicas(number(0, 1)),
            "success_policy": st.just("AllWorkers"),
        },
    ),
)
_MPI = {"slots_per_worker": number(1, 8)}
_V1 = {name: each for name, each in _WITH_POLICY.items() if name != "queue_name"}
_mpi_replicas = replicas(number(1, 9), st.just("OnFailure"))
mpi_jobs = st.one_of(
    jobs(MPIJob, {"workers": number(1, 20)}, {**_WITH_POLICY, **_MPI}),
    jobs(MPIJob, {"workers": number(1, 20), "version": st.just("v1")}, {**_V1, **_MPI}),
    jobs(
        MPIJob,
        {"worker": _mpi_replicas},
        {
            **_WITH_POLICY,
            **_MPI,
            "launcher": replicas(st.just(1), st.just("OnFailure")),
        },
    ),
    jobs(
        MPIJob,
        {"workers": number(1, 2), "implementation": st.sampled_from(["Intel", "MPICH"])},
        _COMMON,
    ),
)
horovod_jobs = jobs(
    HorovodJob,
    {"workers": number(2, 9), "command": commands},
    {
        **_WITH_POLICY,
        **_MPI,
        "horovod": noun(
            Horovod,
            min_np=number(1, 2),
            max_np=number(100, 200),
            elastic_timeout=durations,
            network_interface=st.just("eth0"),
            verbose=st.booleans(),
        ),
    },
)
_runtimes = st.sampled_from(["torch", Runtime("own", kind="TrainingRuntime")])
queued_train_jobs = jobs(
    TrainJob,
    {"runtime": _runtimes, "queue_name": _COMMON["queue_name"]},
    {name: each for name, each in _COMMON.items() if name not in ("pod", "container")},
)
unqueued_train_jobs = jobs(
    TrainJob,
    {"runtime": _runtimes},
    {
        **{name: each for name, each in _COMMON.items() if name not in ("pod", "queue_name")},
        "container": noun(Container, security_context=st.just({"runAsUser": 1000})),
        "pod": noun(
            Pod,
            volumes=some(_VOLUMES),
            volume_mounts=some(_MOUNTS[:2]),
            shared_memory=st.sampled_from([True, False, "1Gi"]),
            placement=noun(Placement, node_selector=label_maps, safe_to_evict=st.booleans()),
            labels=label_maps,
            patch=st.just({"spec": {"terminationGracePeriodSeconds": "60"}}),
        ),
        "run_policy": noun(RunPolicy, active_deadline=durations, suspend=st.booleans()),
        "num_nodes": number(1, 8),
        "num_proc_per_node": number(1, 8),
        "initializer": st.just(Initializer(model=Source("hf://a", env={"A": 1}, secret="s"))),
        "runtime_patches": st.just([{"manager": "example.com/team", "trainingRuntimeSpec": {}}]),
    },
)
train_jobs = st.one_of(queued_train_jobs, unqueued_train_jobs)
given_jobs = st.one_of(pytorch_jobs, tf_jobs, mpi_jobs, horovod_jobs, train_jobs)

short_ids = st.text(min_size=1, max_size=80)
owners = st.builds(
    Owner,
    instance=short_ids,
    dag_id=short_ids,
    task_id=short_ids,
    run_id=short_ids,
    ti_id=short_ids,
    map_index=st.integers(-1, 3),
    try_number=st.integers(1, 9),
    clears=st.integers(0, 3),
)
