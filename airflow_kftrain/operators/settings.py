"""How a task treats its job: parameters that all operators have in addition to the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from airflow_kftrain.specs.lifecycle import (
    Lifecycle,
    Links,
    Logs,
    check_lifecycle,
    check_links,
    check_logs,
)
from airflow_kftrain.specs.timeouts import Timeouts, check_timeouts
from airflow_kftrain.specs.values import flag, object_name, seconds, text

SETTINGS = (
    "namespace",
    "kubernetes_conn_id",
    "poll_interval",
    "timeouts",
    "lifecycle",
    "logs",
    "links",
)
"""Parameters that may be templates."""
SWITCHES = ("deferrable", "wait_for_completion")


class Settings(NamedTuple):
    """The author's values after the checks."""

    namespace: Any
    connection: Any
    poll_interval: Any
    timeouts: Timeouts
    lifecycle: Lifecycle
    logs: Logs
    links: Links


def check_settings(given: Mapping[str, Any]) -> Settings:
    """`given` are the parameters by their names. Raises InvalidSpec."""
    for name in SWITCHES:
        flag(name, given[name])
    namespace, connection = given["namespace"], given["kubernetes_conn_id"]
    return Settings(
        namespace=None if namespace is None else object_name("namespace", namespace),
        connection=None if connection is None else text("kubernetes_conn_id", connection),
        poll_interval=seconds("poll_interval", given["poll_interval"], least=1),
        timeouts=check_timeouts("timeouts", given["timeouts"]),
        lifecycle=check_lifecycle("lifecycle", given["lifecycle"]),
        logs=check_logs("logs", given["logs"]),
        links=check_links("links", given["links"]),
    )
