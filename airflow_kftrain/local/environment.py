"""The variables, command and arguments of a container, as the pod's spec says. Pure.

What the spec points to is fetched before, and handed in as `Sources`. `ConfigError` is what a
kubelet calls CreateContainerConfigError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any, NamedTuple

from airflow_kftrain.errors import KfTrainError

Object = dict[str, Any]
Source = tuple[str, str]
"""("configmaps" | "secrets", name)"""
Sources = Mapping[Source, Mapping[str, bytes] | None]
"""Their content, None where there is no such object."""

ADDRESS = "127.0.0.1"
_WORDS = {"configmaps": "configmap", "secrets": "secret"}
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_INDEXED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_QUANTITY = re.compile(r"([+-]?[0-9.]+)(e[+-]?[0-9]+|[KMGTPE]i|[numkMGTPE]?)", re.IGNORECASE)
_SUFFIXES = {
    **{suffix: Decimal(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Decimal(1000) ** (i + 1) for i, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Decimal(1024) ** (i + 1) for i, suffix in enumerate("KMGTPE")},
    "": Decimal(1),
}


class ConfigError(KfTrainError):
    """A variable or file cannot be made from what the spec points to."""


class Environment(NamedTuple):
    values: dict[str, str]
    secret: set[str]
    """Names of variables that hold something from a Secret."""


def quantity(text: object) -> Decimal:
    """A Kubernetes quantity as a number; raises ConfigError."""
    match = _QUANTITY.fullmatch(str(text).strip())
    try:
        if match and match[2] in _SUFFIXES:
            return Decimal(match[1]) * _SUFFIXES[match[2]]
        return Decimal(str(text))
    except InvalidOperation as error:
        raise ConfigError(f"{text!r} is not a quantity") from error


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value where there is one, `$$` a dollar."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else values.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def sources_of_container(container: Object) -> set[Source]:
    """What the variables of a container point to."""
    found: set[Source] = set()
    for entry in container.get("envFrom") or []:
        found |= _sources(entry, "configMapRef", "secretRef")
    for entry in container.get("env") or []:
        found |= _sources(entry.get("valueFrom") or {}, "configMapKeyRef", "secretKeyRef")
    return found


def _sources(entry: Object, config_map: str, secret: str) -> set[Source]:
    pairs = (("configmaps", config_map), ("secrets", secret))
    return {(plural, entry[key]["name"]) for plural, key in pairs if entry.get(key)}


def content_of(
    sources: Sources, kind: str, reference: Object, field: str
) -> Mapping[str, bytes] | None:
    """What a reference points to; None if it is missing and may be; raises ConfigError."""
    content = sources.get((kind, reference[field]))
    if content is None and not reference.get("optional"):
        raise ConfigError(f'{_WORDS[kind]} "{reference[field]}" not found')
    return content


def make_environment(pod: Object, container: Object, sources: Sources) -> Environment:
    """All variables that the spec declares, in its order; raises ConfigError."""
    values: dict[str, str] = {}
    secret: set[str] = set()
    for name, value, is_secret in _from_whole_sources(container, sources):
        values[name] = value
        (secret.add if is_secret else secret.discard)(name)
    for entry in container.get("env") or []:
        name, origin = entry["name"], entry.get("valueFrom")
        made = _value_from(pod, container, origin, sources) if origin else entry.get("value") or ""
        if made is None:
            continue
        used = {match[1] for match in _REFERENCE.finditer(made)} if not origin else set()
        is_secret = bool(used & secret) or bool(origin and "secretKeyRef" in origin)
        values[name] = made if origin else expand(made, values)
        (secret.add if is_secret else secret.discard)(name)
    return Environment(values, secret)


def _from_whole_sources(container: Object, sources: Sources) -> Iterator[tuple[str, str, bool]]:
    for entry in container.get("envFrom") or []:
        for kind, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference := entry.get(key):
                content = content_of(sources, kind, reference, "name") or {}
                for name, value in content.items():
                    prefixed = (entry.get("prefix") or "") + name
                    yield prefixed, value.decode("utf-8", "replace"), kind == "secrets"


def _value_from(pod: Object, container: Object, origin: Object, sources: Sources) -> str | None:
    if field := origin.get("fieldRef"):
        return field_of(pod, field["fieldPath"])
    if resource := origin.get("resourceFieldRef"):
        return resource_of(pod, container, resource)
    for kind, name in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if reference := origin.get(name):
            content = content_of(sources, kind, reference, "name")
            if content is not None and reference["key"] in content:
                return content[reference["key"]].decode("utf-8", "replace")
            if reference.get("optional"):
                return None
            raise ConfigError(
                f"couldn't find key {reference['key']} in {_WORDS[kind]} {reference['name']}"
            )
    raise ConfigError(f"valueFrom.{next(iter(origin), '')} is not supported")


def field_of(pod: Object, path: str) -> str:
    """A field of the pod, as the downward API writes it; raises ConfigError."""
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _INDEXED_FIELD.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.partition(".")[2]) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        **dict.fromkeys(
            ("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"), ADDRESS
        ),
    }
    if path not in simple:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return str(simple[path])


def resource_of(pod: Object, container: Object, reference: Object) -> str:
    """A request or limit, divided as asked and rounded up; raises ConfigError."""
    if name := reference.get("containerName"):
        container = next(c for c in pod["spec"]["containers"] if c["name"] == name)
    group, _, resource = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    # Without a limit it is the node's, which the agent declares and the machine does not have.
    given = (resources.get(group) or {}).get(resource, "0")
    divisor = quantity(reference.get("divisor") or "1") or Decimal(1)
    return str((quantity(given) / divisor).to_integral_value(ROUND_CEILING))
