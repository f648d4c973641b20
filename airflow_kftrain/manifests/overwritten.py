"""Variables that an operator sets itself, whatever the author gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_kftrain.kinds import JobKind
from airflow_kftrain.manifests.places import containers_of, listed, role_groups, templates_by_path
from airflow_kftrain.specs.later import LATER


def overwritten_env(kind: JobKind, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The field and the name of each variable that has no effect, in the main containers. A job of
    one pod is left alone: not all operators tell a single pod about the others."""
    whole = dict(manifest)
    counts = [group.get("replicas") for group in role_groups(kind, whole).values()]
    if counts == [1]:
        return
    names = dict(kind.overwritten_env)
    if kind.elastic_key and manifest["spec"].get(kind.elastic_key) not in (None, LATER):
        names |= kind.overwritten_elastic_env
    for path, template in templates_by_path(kind, whole):
        for where, container in containers_of(template):
            if container.get("name") != kind.container or not where.startswith("spec.containers"):
                continue
            for variable in listed(container, "env"):
                if variable is not LATER and variable["name"] in names:
                    yield f"{path}.{where}.env", variable["name"]


def warning(kind: JobKind, field: str, name: str) -> str:
    """What its author is told."""
    instead = {**kind.overwritten_env, **kind.overwritten_elastic_env}[name]
    return f"{field}: {kind.operator} sets {name} itself, so this value has no effect. {instead}"
