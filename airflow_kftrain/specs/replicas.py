"""Replica: a group of identical pods."""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow_kftrain.specs.containers import Container, check_container
from airflow_kftrain.specs.env import Env, env_list
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import Check, answering, check_fields, check_noun
from airflow_kftrain.specs.pods import Pod, check_pod
from airflow_kftrain.specs.resources import Resources, requirements
from airflow_kftrain.specs.values import Words, image, text, text_list, whole_number


@answering
class Replica(NamedTuple):
    """The pods of one role. Fields that you omit come from the job. `env`, `pod` and `container`
    are merged with the job's; `container_resources` replaces the job's completely, so a replica
    whose resources name no GPU gets none."""

    # Hides tuple.count: authors expect this name, and nobody counts in a Replica.
    count: int | str | None = None  # type: ignore[assignment]
    image: str | None = None
    command: Words | None = None
    args: Words | None = None
    env: Env | None = None
    container_resources: Resources | Any | None = None
    restart_policy: str | None = None
    pod: Pod | None = None
    container: Container | None = None


def check_replica(field: str, replica: Any) -> Any:
    if replica is LATER:
        return replica
    return check_fields(field, check_noun(field, replica, Replica), _REPLICA_CHECKS)


CONTAINER_CHECKS: dict[str, Check] = {
    "image": image,
    "command": text_list,
    "args": text_list,
    "env": env_list,
    "container_resources": requirements,
    "pod": check_pod,
    "container": check_container,
}
"""The fields that a job and its replicas have in common."""

_REPLICA_CHECKS = {**CONTAINER_CHECKS, "count": whole_number, "restart_policy": text}
