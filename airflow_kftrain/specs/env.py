"""Environment variables: plain values, and values that Kubernetes fills in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering, check_fields
from airflow_kftrain.specs.shapes import conform
from airflow_kftrain.specs.values import flag, text


@answering
class FromSecret(NamedTuple):
    """The value of one key of a Secret. The secret never passes through Airflow."""

    name: str
    key: str
    optional: bool = False


@answering
class FromConfigMap(NamedTuple):
    """The value of one key of a ConfigMap."""

    name: str
    key: str
    optional: bool = False


@answering
class FromField(NamedTuple):
    """A field of the pod itself, such as `metadata.name` or `status.hostIP`."""

    path: str


EnvValue = str | int | float | FromSecret | FromConfigMap | FromField
Env = Mapping[str, EnvValue] | Sequence[Any]


def env_list(field: str, env: Any) -> Any:
    """The variables as a list, as a container has them. Accepts a mapping, or a list of V1EnvVar or
    dicts."""
    if env is LATER:
        return env
    if isinstance(env, Mapping):
        return [
            {
                "name": conform(name, "env_name", field),
                **_value(f"{field}[{name!r}]", value),
            }
            for name, value in env.items()
        ]
    if isinstance(env, str) or not isinstance(env, Sequence):
        raise InvalidSpec(
            field,
            f"must be a mapping of names to values, got a {type(env).__name__}",
            advice="Write {'NAME': 'value'}.",
        )
    listed = conform(env, "[EnvVar]", field)
    names: set[str] = set()
    for number, item in enumerate(listed):
        name = LATER if item is LATER else item["name"]
        if name is not LATER and name in names:
            raise InvalidSpec(f"{field}[{number}].name", "is duplicated", value=name)
        names.add(name)
        check_source(f"{field}[{number}]", item)
    return listed


def check_source(field: str, variable: Any) -> None:
    """A variable has exactly one source. Kubernetes checks that only when it creates the pod."""
    if variable is LATER or variable.get("valueFrom") in (None, LATER):
        return
    sources = variable["valueFrom"]
    if variable.get("value"):
        raise InvalidSpec(field, "has both value and valueFrom", advice="Use one or the other.")
    if len(sources) != 1:
        raise InvalidSpec(f"{field}.valueFrom", "must have exactly one source", value=list(sources))


def merge_env(base: Any, over: Any) -> Any:
    """Merges variables by name: those of `over` win, and take the place of those that they
    replace."""
    if any(listed is LATER or LATER in listed for listed in (base, over)):
        return LATER
    merged = {item["name"]: item for item in base}
    merged.update({item["name"]: item for item in over})
    return list(merged.values())


def _value(field: str, value: Any) -> dict[str, Any]:
    if isinstance(value, FromSecret):
        return {"valueFrom": {"secretKeyRef": _key(field, value)}}
    if isinstance(value, FromConfigMap):
        return {"valueFrom": {"configMapKeyRef": _key(field, value)}}
    if isinstance(value, FromField):
        return {"valueFrom": {"fieldRef": {"fieldPath": text(f"{field}.path", value.path)}}}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"value": str(value)}
    if value is LATER or isinstance(value, str):
        return {"value": value}
    # The value is not shown: it may be a secret.
    raise InvalidSpec(
        field,
        f"must be text, a number, FromSecret, FromConfigMap or FromField, "
        f"got a {type(value).__name__}",
        advice="Write 'true' or '1' for a flag." if isinstance(value, bool) else "",
    )


def _key(field: str, source: FromSecret | FromConfigMap) -> dict[str, Any]:
    checked = check_fields(field, source, {"name": text, "key": text, "optional": flag})
    reference: dict[str, Any] = {"name": checked.name, "key": checked.key}
    if checked.optional is not False:
        reference["optional"] = checked.optional
    return reference
