"""JobSpec: what all job specs have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.env import Env
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import Check, none_given
from airflow_kftrain.specs.pods import Pod
from airflow_kftrain.specs.policies import RunPolicy, check_run_policy
from airflow_kftrain.specs.replicas import CONTAINER_CHECKS, Replica
from airflow_kftrain.specs.resources import Resources
from airflow_kftrain.specs.values import Words, label_value, text


def _queue_name(field: str, value: Any) -> Any:
    # An empty one is a legal label, and would let the job run without waiting for its turn.
    return label_value(field, text(field, value))


_JOB_CHECKS: dict[str, Check] = {
    **CONTAINER_CHECKS,
    "run_policy": check_run_policy,
    "queue_name": _queue_name,
}


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job as its author describes it. It checks itself when it is made, and then holds its
    values in the one form that the builders know: dicts, numbers, seconds."""

    image: str | None = None
    command: Words | None = None
    args: Words | None = None
    env: Env | None = None
    container_resources: Resources | Any | None = None
    """For each container; Resources, V1ResourceRequirements or a dict."""
    pod: Pod | None = None
    run_policy: RunPolicy | None = None
    queue_name: str | None = None
    """Kueue's local queue."""

    def __post_init__(self) -> None:
        self._check(_JOB_CHECKS)

    def _check(self, checks: Mapping[str, Check]) -> None:
        """Put every field that is given through its check, and keep what comes back."""
        for name, check in checks.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(name, value))
            elif (default := self.__dataclass_fields__[name].default) is not None:
                raise none_given(name, needed=default is MISSING)

    def _refuse_both(self, short: str, *explicit: str) -> None:
        """The two forms never go together. Counted by `is None`: 0 is a value."""
        if getattr(self, short) is None:
            return
        for name in explicit:
            if getattr(self, name) is not None:
                raise InvalidSpec(
                    short,
                    f"cannot go together with {name}",
                    advice=f"Give {short} where all replicas are alike, else {name}.",
                )


def sized(replica: Any, count: Any) -> Any:
    """A replica that says how many it is; `count` fills in where it does not."""
    if replica is None:
        return Replica(count=count)
    if replica is LATER or replica.count is not None:
        return replica
    return replica._replace(count=count)
