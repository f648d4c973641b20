"""Container: what the main container has beside its image, command, variables and resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import Check, answering, check_fields, check_noun, given
from airflow_kftrain.specs.shapes import check_of
from airflow_kftrain.specs.values import text


@answering
class Container(NamedTuple):
    """Further settings of the main container. Accepts Kubernetes model objects and dicts. A
    TrainJob can only set `security_context`."""

    env_from: Sequence[Any] | None = None
    """All keys of a Secret or ConfigMap as variables: [{"secretRef": {"name": "wandb"}}]."""
    image_pull_policy: str | None = None
    """"Always", "IfNotPresent" or "Never"."""
    security_context: Any = None
    """The container's; that of the pod goes into `Pod(patch=...)`."""
    working_dir: str | None = None
    ports: Sequence[Any] | None = None
    liveness_probe: Any = None
    """Restarts a hanging container, if the restart policy is OnFailure."""


WRITTEN = {
    "env_from": "envFrom",
    "image_pull_policy": "imagePullPolicy",
    "security_context": "securityContext",
    "working_dir": "workingDir",
    "ports": "ports",
    "liveness_probe": "livenessProbe",
}
"""The fields as Kubernetes calls them."""


def check_container(field: str, container: Any) -> Any:
    """The container with all its parts checked, and as dicts."""
    if container is LATER:
        return container
    return check_fields(field, check_noun(field, container, Container), _CHECKS)


def merge_containers(base: Any, over: Any) -> Any:
    """A replica's container over the job's, field by field."""
    if base is None or over is None:
        return base or over or Container()
    if base is LATER or over is LATER:
        return over
    return base._replace(**given(over._asdict()))


def check_env_from(field: str, source: Any) -> None:
    """Kubernetes finds out only when it makes the pod."""
    if source is LATER:
        return
    if sum(name in source for name in ("secretRef", "configMapRef")) != 1:
        raise InvalidSpec(
            field,
            "must have exactly one source",
            value=list(source),
            advice="Write {'secretRef': {'name': ...}} or {'configMapRef': {'name': ...}}.",
        )


def _env_from(field: str, value: Any) -> Any:
    checked = check_of("[EnvFrom]")(field, value)
    for number, source in enumerate([] if checked is LATER else checked):
        check_env_from(f"{field}[{number}]", source)
    return checked


_CHECKS: dict[str, Check] = {
    "env_from": _env_from,
    "image_pull_policy": check_of("Always|IfNotPresent|Never"),
    "security_context": check_of("mapping"),
    "working_dir": text,
    "ports": check_of("[Port]"),
    "liveness_probe": check_of("mapping"),
}
