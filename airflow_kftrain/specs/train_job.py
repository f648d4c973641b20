"""TrainJob of Kubeflow Trainer v2: the job says what to run, its runtime says how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.containers import Container
from airflow_kftrain.specs.env import Env, env_list
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.mpi_job import Mpirun, check_mpirun
from airflow_kftrain.specs.nouns import answering, check_fields, check_noun
from airflow_kftrain.specs.pods import Placement, Pod
from airflow_kftrain.specs.shapes import check_of
from airflow_kftrain.specs.values import one_of, positive, text


@answering
class Runtime(NamedTuple):
    """The runtime that a TrainJob refers to."""

    name: str
    kind: str = "ClusterTrainingRuntime"
    """Or "TrainingRuntime", for a runtime in the job's own namespace."""


@answering
class Source(NamedTuple):
    """Where an initializer fetches from, such as hf://org/name or s3://bucket/path."""

    uri: str
    env: Env | None = None
    secret: str | None = None
    """Name of the Secret with the credentials."""


@answering
class Initializer(NamedTuple):
    """What is fetched before training starts. The runtime must have the steps for it."""

    dataset: Source | None = None
    model: Source | None = None


@answering
@dataclass(frozen=True, kw_only=True)
class TrainJob(JobSpec):
    """`runtime` is the name of a ClusterTrainingRuntime, or a Runtime. Fields that you omit come
    from it."""

    runtime: str | Runtime
    num_nodes: int | str | None = None
    num_proc_per_node: int | str | None = None
    initializer: Initializer | None = None
    runtime_patches: Sequence[Any] | None = None
    """Patches of the runtime as in the resource, for everything that has no field here."""
    mpirun: Mpirun | None = None
    """For a runtime with MPI: run `command` with mpirun, once per rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            {
                "runtime": _runtime,
                "num_nodes": positive,
                "num_proc_per_node": positive,
                "initializer": _initializer,
                "runtime_patches": check_of("[RuntimePatch]"),
                "mpirun": check_mpirun,
            }
        )
        if isinstance(self.pod, Pod):
            _refuse("pod", self.pod, _NOT_IN_A_PATCH)
            if isinstance(self.pod.placement, Placement):
                _refuse("pod.placement", self.pod.placement, _PLACEMENT_NOT_IN_A_PATCH)
        if isinstance(self.container, Container):
            _refuse("container", self.container, _CONTAINER_NOT_IN_A_PATCH)


# The API of runtime patches has no other fields.
_NOT_IN_A_PATCH = ("init_containers", "sidecars", "template_file")
_PLACEMENT_NOT_IN_A_PATCH = ("priority_class", "scheduler_name")
_CONTAINER_NOT_IN_A_PATCH = tuple(name for name in Container._fields if name != "security_context")


def _refuse(field: str, noun: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(noun, name) is not None:
            raise InvalidSpec(
                f"{field}.{name}",
                "a TrainJob cannot change this field of its runtime",
                advice="Set it in a TrainingRuntime, and use that as runtime.",
            )


def _runtime(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    if isinstance(value, str):
        return Runtime(text(field, value))
    return check_fields(
        field,
        check_noun(field, value, Runtime),
        {
            "name": text,
            "kind": lambda name, kind: one_of(
                name, kind, ["ClusterTrainingRuntime", "TrainingRuntime"]
            ),
        },
    )


def _initializer(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    checked = check_fields(
        field, check_noun(field, value, Initializer), {"dataset": _source, "model": _source}
    )
    if checked.dataset is None and checked.model is None:
        raise InvalidSpec(field, "is empty", advice="Set dataset or model, or omit it.")
    return checked


def _source(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    return check_fields(
        field,
        check_noun(field, value, Source),
        {"uri": _uri, "env": env_list, "secret": text},
    )


def _uri(field: str, value: Any) -> Any:
    if value is LATER or (isinstance(value, str) and "://" in value):
        return value
    raise InvalidSpec(field, "must be a URI", value=value, advice="For example: hf://org/name.")
