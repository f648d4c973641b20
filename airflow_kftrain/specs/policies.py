"""RunPolicy and SchedulingPolicy: how the operator treats a job, whatever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering, check_fields, check_noun, given
from airflow_kftrain.specs.shapes import check_of
from airflow_kftrain.specs.values import flag, one_of, seconds, text, whole_number

CLEAN_PODS = ("Running", "All", "None")


@answering
class SchedulingPolicy(NamedTuple):
    """Gang scheduling, if the operator runs with a gang scheduler."""

    min_available: int | str | None = None
    """Pods that must be scheduled together; None: all of them."""
    queue: str | None = None
    """The gang scheduler's queue; for Kueue use the job's `queue_name`."""
    min_resources: Mapping[str, str | int] | None = None
    priority_class: str | None = None
    timeout: timedelta | None = None


@answering
class RunPolicy(NamedTuple):
    """How the operator treats the job. A field that the kind of job does not have is rejected. None
    keeps the default; 0 is a value."""

    clean_pods: str | None = None
    """Pods to delete at the end: "Running" (the default: running pods hold their GPUs), "All" (this
    deletes their logs, too) or "None"."""
    ttl: timedelta | None = None
    """How long the finished job is kept. Default: a day, if the kind supports it."""
    active_deadline: timedelta | None = None
    """How long the job may be active before the cluster ends it."""
    backoff_limit: int | str | None = None
    """The job fails as soon as its containers have restarted this often, so 1 allows no restart.
    MPI v2beta1 and single-node jobs count new pods, so there 1 allows one."""
    suspend: bool | None = None
    managed_by: str | None = None
    scheduling: SchedulingPolicy | None = None


def check_run_policy(field: str, policy: Any) -> Any:
    """The policy with the values of a custom resource: seconds, numbers, flags."""
    if policy is LATER:
        return policy
    return check_fields(field, check_noun(field, policy, RunPolicy), _RUN_POLICY_CHECKS)


def _clean_pods(field: str, value: Any) -> Any:
    return one_of(field, value, CLEAN_PODS)


def _scheduling(field: str, policy: Any) -> Any:
    """The scheduling policy as the dict in the custom resource."""
    if policy is LATER:
        return policy
    checked = check_fields(field, check_noun(field, policy, SchedulingPolicy), _SCHEDULING_CHECKS)
    if all(value is None for value in checked):
        raise InvalidSpec(field, "is empty", advice="Set a field, or omit it.")
    written = {
        "minAvailable": checked.min_available,
        "queue": checked.queue,
        "minResources": checked.min_resources,
        "priorityClass": checked.priority_class,
        "scheduleTimeoutSeconds": checked.timeout,
    }
    return given(written)


def _at_least_a_second(field: str, value: Any) -> Any:
    return seconds(field, value, least=1)


_RUN_POLICY_CHECKS = {
    "clean_pods": _clean_pods,
    "ttl": seconds,
    "active_deadline": _at_least_a_second,
    "backoff_limit": whole_number,
    "suspend": flag,
    "managed_by": text,
    "scheduling": _scheduling,
}
_SCHEDULING_CHECKS = {
    "min_available": whole_number,
    "queue": text,
    "min_resources": check_of("{quantity}"),
    "priority_class": text,
    "timeout": seconds,
}
