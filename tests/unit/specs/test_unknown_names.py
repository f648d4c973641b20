"""What an author is told of a parameter that is not there."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest

import airflow_kftrain
from airflow_kftrain import (
    Elastic,
    FromSecret,
    InvalidSpec,
    Lifecycle,
    MPIJob,
    Placement,
    Pod,
    PyTorchJob,
    RawManifest,
    Replica,
    Resources,
    RunPolicy,
    Runtime,
    SchedulingPolicy,
    Source,
    TFJob,
    Timeouts,
    TrainJob,
)
from airflow_kftrain.specs.foreign_names import WORLDS
from airflow_kftrain.specs.unknown_names import NOUNS

SECRET = "hunter2"
ANSWERS: list[tuple[Any, str, str]] = [
    (PyTorchJob, "volumes", "Write pod=Pod(volumes=...)."),
    (PyTorchJob, "node_selector", "Write pod=Pod(placement=Placement(node_selector=...))."),
    (PyTorchJob, "env_vars", "Write env instead."),
    (PyTorchJob, "image_pull_policy", "Write container=Container(image_pull_policy=...)."),
    (PyTorchJob, "resources", "Write container_resources=Resources(...)."),
    (PyTorchJob, "requests", "Write container_resources=Resources(cpu=(request, limit))."),
    (PyTorchJob, "num_workers", "Write workers instead."),
    (PyTorchJob, "nnodes", "Write elastic=Elastic(nodes=...)."),
    (PyTorchJob, "restart_policy", "Write worker=Replica(restart_policy=...)."),
    (PyTorchJob, "backoff_limit", "Write run_policy=RunPolicy(backoff_limit=...)."),
    (PyTorchJob, "train_func", "It has no equivalent; decorate the function with @task.pytorch"),
    (PyTorchJob, "runtime_patches", "Omit it."),
    (PyTorchJob, "wrokers", "Did you mean 'workers'?"),
    (PyTorchJob, "runPolicy", "Did you mean 'run_policy'?"),
    (PyTorchJob, "volume_mount", "Did you mean 'volume_mounts'? Write pod=Pod(volume_mounts=...)."),
    (TFJob, "nnodes", "Write workers instead."),
    (TFJob, "num_ps_replicas", "Write ps=Replica(count=...)."),
    (MPIJob, "nproc_per_node", "Write slots_per_worker instead."),
    (MPIJob, "slots", "Write slots_per_worker instead."),
    (TrainJob, "num_workers", "Write num_nodes instead."),
    (TrainJob, "restart_policy", "It has no equivalent in TrainJob."),
    (TrainJob, "storage_uri", "Write initializer=Initializer(dataset=Source(uri=...))."),
    (RawManifest, "image", "Write it into the manifest."),
    (Pod, "service_account_name", "Write service_account instead."),
    (Pod, "node_selector", "Write placement=Placement(node_selector=...)."),
    (Pod, "env_vars", "In the operator, write env instead."),
    (Pod, "image", "In the operator, write image instead."),
    (Placement, "priorityClassName", "Write priority_class instead."),
    (Replica, "replicas", "Write count instead."),
    (Replica, "volumes", "Write pod=Pod(volumes=...)."),
    (Resources, "limits", "Write cpu=(request, limit)."),
    (Resources, "mem", "Write memory instead."),
    (Resources, "cpus", "Did you mean 'cpu'?"),
    (RunPolicy, "clean_pod_policy", "Write clean_pods instead."),
    (RunPolicy, "ttlSecondsAfterFinished", "Write ttl=timedelta(seconds=...)."),
    (RunPolicy, "env", "In the operator, write env instead."),
    (SchedulingPolicy, "schedule_timeout_seconds", "Write timeout=timedelta(seconds=...)."),
    (Timeouts, "schedule_timeout_seconds", "Write unschedulable=timedelta(seconds=...)."),
    (Elastic, "nnodes", "Write nodes instead."),
    (Elastic, "start_method", "It has no equivalent; torchrun starts the processes."),
    (Source, "storage_uri", "Write uri instead."),
    (FromSecret, "volumes", "It has name, key, optional."),
    (Lifecycle, "xyz", "It has on_finish, reattach, fail_fast,"),
]


@pytest.mark.parametrize(("thing", "name", "answer"), ANSWERS)
def test_the_answer_says_what_to_write(thing: Any, name: str, answer: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        thing(**{name: SECRET})
    assert caught.value.field == name
    told = f"{name}: not a parameter of {thing.__name__}. {answer}"
    assert str(caught.value).startswith(told)


def test_all_of_them_are_answered_at_once_and_no_value_is_shown() -> None:
    with pytest.raises(InvalidSpec) as caught:
        PyTorchJob(image="i", volumes=[SECRET], env_vars={"A": SECRET})  # type: ignore[call-arg]
    assert str(caught.value) == (
        "volumes: not a parameter of PyTorchJob. Write pod=Pod(volumes=...). "
        "Nor is env_vars. Write env instead."
    )


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(TypeError, match="name"):
        Runtime()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Pod(*range(13))  # type: ignore[call-arg,arg-type]


def test_a_noun_is_copied_and_pickled_as_before() -> None:
    pod = Pod(labels={"a": "b"}, placement=Placement(scheduler_name="s"))
    assert copy.deepcopy(pod) == pickle.loads(pickle.dumps(pod)) == Pod(*pod) == pod


def test_nothing_of_it_is_loaded_before_there_is_a_mistake() -> None:
    code = (
        "import sys; from airflow_kftrain import Pod, PyTorchJob\n"
        "PyTorchJob(image='i', workers=1, pod=Pod(labels={}))\n"
        "print([name for name in sys.modules if name.endswith('_names')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# The table


def fields(name: str) -> dict[str, str]:
    """Of a noun or a spec: field -> its type."""
    return dict(getattr(airflow_kftrain, name).__annotations__)


SPECS = ("PyTorchJob", "TFJob", "MPIJob", "HorovodJob", "TrainJob")
OF_AIRFLOW = {"execution_timeout", "doc_md", "poll_interval", "wait_for_completion"}
ROOTS = {
    *(name for spec in SPECS for name in getattr(airflow_kftrain, spec).__dataclass_fields__),
    *(place for place in NOUNS if "." not in place),
    *OF_AIRFLOW,
}


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.distribution.partition(",")[0])
def test_every_path_of_the_table_is_there(world: Any) -> None:
    for name, paths in world.instead.items():
        for path in paths.split(" | "):
            first, *others = path.partition("=")[0].split(".")
            assert first in ROOTS, name
            place = first
            for part in others:
                assert part in fields(NOUNS[place]), name
                place = f"{place}.{part}"


def test_no_name_has_two_answers_in_one_world() -> None:
    for world in WORLDS:
        assert set(world.instead) & set(world.without) == set()
        assert not any(text.endswith(".") for text in world.without.values())


def test_every_noun_of_a_noun_has_its_place() -> None:
    found = {}
    for name in SPECS:
        for part in getattr(airflow_kftrain, name).__mro__:
            found |= noun_fields("", vars(part).get("__annotations__", {}))
    for name in ("timeouts", "lifecycle", "logs", "links"):
        found[name] = NOUNS[name]
    for place in list(found):
        found |= noun_fields(f"{place}.", fields(found[place]))
    job_again = {place for place in found if place.split(".")[0] in ROLES and "." in place}
    assert {place: found[place] for place in found if place not in job_again} == NOUNS


ROLES = {place for place, noun in NOUNS.items() if noun == "Replica"}


def noun_fields(prefix: str, annotations: dict[str, Any]) -> dict[str, str]:
    """Those that hold a noun."""
    known = set(NOUNS.values())
    typed = {name: re.findall(r"\w+", str(kind)) for name, kind in annotations.items()}
    pairs = ((name, [word for word in words if word in known]) for name, words in typed.items())
    return {f"{prefix}{name}": nouns[0] for name, nouns in pairs if nouns}
