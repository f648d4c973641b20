"""JobSpec: what all job specs have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.code import Code, Function, check_code, check_function
from airflow_kftrain.specs.containers import Container
from airflow_kftrain.specs.env import Env
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import Check, none_given
from airflow_kftrain.specs.pods import Pod
from airflow_kftrain.specs.policies import RunPolicy, check_run_policy
from airflow_kftrain.specs.replicas import CONTAINER_CHECKS, Replica
from airflow_kftrain.specs.resources import Resources
from airflow_kftrain.specs.values import Words, label_value, text


def _name_in_a_label(field: str, value: Any) -> Any:
    # An empty name is a valid label, but the job would then run without waiting in the queue.
    return label_value(field, text(field, value))


_JOB_CHECKS: dict[str, Check] = {
    **CONTAINER_CHECKS,
    "run_policy": check_run_policy,
    "queue_name": _name_in_a_label,
    "queue_priority": _name_in_a_label,
    "code": check_code,
    "function": check_function,
}


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job as its author describes it. It checks itself when it is created. After that its values
    have the form that the builders expect: dicts, numbers, seconds."""

    image: str | None = None
    command: Words | None = None
    args: Words | None = None
    env: Env | None = None
    container_resources: Resources | Any | None = None
    """For each container: Resources, V1ResourceRequirements or a dict."""
    pod: Pod | None = None
    container: Container | None = None
    run_policy: RunPolicy | None = None
    queue_name: str | None = None
    """Kueue's LocalQueue, in which the job waits until there is room for all its pods."""
    queue_priority: str | None = None
    """Kueue's WorkloadPriorityClass: jobs with a higher one go first, and may stop others."""
    code: Code | None = None
    """Files and packages that the job brings along."""
    function: Function | None = None
    """The Python function that a decorator runs, instead of `command`."""

    def __post_init__(self) -> None:
        self._check(_JOB_CHECKS)

    def _check(self, checks: Mapping[str, Check]) -> None:
        """Checks every field that is given, and stores the result."""
        for name, check in checks.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(name, value))
            elif (default := self.__dataclass_fields__[name].default) is not None:
                raise none_given(name, needed=default is MISSING)

    def _refuse_both(self, short: str, *explicit: str) -> None:
        """Rejects both forms together. Only None counts as not given: 0 is a value."""
        if getattr(self, short) is None:
            return
        for name in explicit:
            if getattr(self, name) is not None:
                raise InvalidSpec(
                    short,
                    f"cannot be combined with {name}",
                    advice=f"Use {short} if all replicas are identical, otherwise {name}.",
                )


def sized(replica: Any, count: Any) -> Any:
    """A replica with a count: its own, or `count` if it has none."""
    if replica is None:
        return Replica(count=count)
    if replica is LATER or replica.count is not None:
        return replica
    return replica._replace(count=count)
