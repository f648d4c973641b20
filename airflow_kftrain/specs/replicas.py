"""Replica: a group of pods that are all alike."""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow_kftrain.specs.env import Env, env_list
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import Check, check_fields, check_noun
from airflow_kftrain.specs.pods import Pod, check_pod
from airflow_kftrain.specs.resources import Resources, requirements
from airflow_kftrain.specs.values import Words, text, text_list, whole_number


class Replica(NamedTuple):
    """One role's pods. What is left out comes from the job's own fields; `env` is joined with the
    job's, `container_resources` replaces the job's whole, so that a replica without a GPU of its
    own gets none."""

    # tuple.count gives way: authors know the word, and nobody counts in a Replica.
    count: int | str | None = None  # type: ignore[assignment]
    image: str | None = None
    command: Words | None = None
    args: Words | None = None
    env: Env | None = None
    container_resources: Resources | Any | None = None
    restart_policy: str | None = None
    pod: Pod | None = None


def check_replica(field: str, replica: Any) -> Any:
    if replica is LATER:
        return replica
    return check_fields(field, check_noun(field, replica, Replica), _REPLICA_CHECKS)


CONTAINER_CHECKS: dict[str, Check] = {
    "image": text,
    "command": text_list,
    "args": text_list,
    "env": env_list,
    "container_resources": requirements,
    "pod": check_pod,
}
"""The fields that a job and its replicas have in common."""

_REPLICA_CHECKS = {**CONTAINER_CHECKS, "count": whole_number, "restart_policy": text}
