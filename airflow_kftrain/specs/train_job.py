"""TrainJob: Kubeflow Trainer v2, where a runtime says how and the job says what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.env import Env, env_list
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import check_fields, check_noun
from airflow_kftrain.specs.pods import Placement, Pod
from airflow_kftrain.specs.shapes import check_of
from airflow_kftrain.specs.values import one_of, positive, text


class Runtime(NamedTuple):
    """The runtime that a TrainJob refers to."""

    name: str
    kind: str = "ClusterTrainingRuntime"
    """Or "TrainingRuntime", for one of the job's own namespace."""


class Source(NamedTuple):
    """Where an initializer fetches from, such as hf://org/name or s3://bucket/path."""

    uri: str
    env: Env | None = None
    secret: str | None = None
    """Name of the Secret with the credentials."""


class Initializer(NamedTuple):
    """What is fetched before training starts. The runtime must have the steps for it."""

    dataset: Source | None = None
    model: Source | None = None


@dataclass(frozen=True, kw_only=True)
class TrainJob(JobSpec):
    """`runtime` is the name of a ClusterTrainingRuntime, or a Runtime; what is left out here comes
    from it."""

    runtime: str | Runtime
    num_nodes: int | str | None = None
    num_proc_per_node: int | str | None = None
    initializer: Initializer | None = None
    runtime_patches: Sequence[Any] | None = None
    """Patches of the runtime as the resource takes them, for what has no field here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            {
                "runtime": _runtime,
                "num_nodes": positive,
                "num_proc_per_node": positive,
                "initializer": _initializer,
                "runtime_patches": check_of("[RuntimePatch]"),
            }
        )
        if isinstance(self.pod, Pod):
            _refuse("pod", self.pod, _NOT_IN_A_PATCH)
            if isinstance(self.pod.placement, Placement):
                _refuse("pod.placement", self.pod.placement, _PLACEMENT_NOT_IN_A_PATCH)


# A patch of a runtime takes no more than its API has fields for.
_NOT_IN_A_PATCH = ("init_containers", "sidecars", "template_file")
_PLACEMENT_NOT_IN_A_PATCH = ("priority_class", "scheduler_name")


def _refuse(field: str, noun: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(noun, name) is not None:
            raise InvalidSpec(
                f"{field}.{name}",
                "TrainJob cannot change this of its runtime",
                advice="Put it into a TrainingRuntime, and name that as runtime.",
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
        raise InvalidSpec(field, "says nothing", advice="Give dataset or model, or leave it out.")
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
    raise InvalidSpec(field, "must be a URI", value=value, advice="Write hf://org/name, say.")
