"""The variables of a container, as the pod's spec defines them, and the objects that they come
from."""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from kftrain_local.api_client import ApiClient, ApiFailure, Object, core
from kftrain_local.errors import LocalError

ADDRESS = "127.0.0.1"
SOURCES = {"configMap": "ConfigMap", "secret": "Secret"}
"""The kinds of objects that hold data, by their names in the fields of a spec."""
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_INDEXED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_UNITS = {
    "": Decimal(1),
    **{unit: Decimal(10) ** power for unit, power in (("n", -9), ("u", -6), ("m", -3))},
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTPE")},
}


class CannotStart(LocalError):
    """Why a container waits: the message, and the reason as a kubelet names it."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


def quantity(text: object) -> Decimal:
    """A Kubernetes quantity as a number. Raises CannotStart."""
    given = str(text)
    number = given.rstrip(string.ascii_letters)
    try:
        return Decimal(number) * _UNITS[given[len(number) :]]
    except (ArithmeticError, KeyError) as error:
        raise CannotStart(f"{text!r} is not a quantity") from error


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by its value if there is one, and `$$` by a dollar."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else values.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


class Sources:
    """The config maps and secrets of a namespace. Each is read once."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._known: dict[tuple[str, str], dict[str, bytes] | None] = {}

    async def content(self, kind: str, reference: Object) -> Mapping[str, bytes]:
        """The content of the object that a reference names; empty if it is missing and optional.
        Raises CannotStart."""
        # Volumes have another name for this field than everything else.
        name = reference.get("secretName") or reference["name"]
        if (kind, name) not in self._known:
            self._known[kind, name] = await self._read(kind, name)
        content = self._known[kind, name]
        if content is None and not reference.get("optional"):
            raise CannotStart(f'{kind.lower()} "{name}" not found')
        return content or {}

    async def _read(self, kind: str, name: str) -> dict[str, bytes] | None:
        try:
            found = await self._api.get(core(self._namespace, f"{kind.lower()}s", name))
        except ApiFailure as error:
            if error.code == 404:
                return None
            raise CannotStart(str(error)) from error
        plain = (found.get("data") or {}) if kind == "configMap" else {}
        encoded = found.get("data" if kind == "secret" else "binaryData") or {}
        return {
            **{key: value.encode() for key, value in plain.items()},
            **{key: base64.b64decode(value) for key, value in encoded.items()},
        }


class Environment(NamedTuple):
    values: dict[str, str]
    secret: set[str]
    """The names of variables whose values come from a Secret."""


async def make_environment(pod: Object, container: Object, sources: Sources) -> Environment:
    """All variables of the spec, in its order. Raises CannotStart."""
    values: dict[str, str] = {}
    secret: set[str] = set()

    def put(name: str, value: str, is_secret: bool) -> None:
        values[name] = value
        (secret.add if is_secret else secret.discard)(name)

    for entry in container.get("envFrom") or []:
        for kind in SOURCES:
            if reference := entry.get(f"{kind}Ref"):
                for key, data in (await sources.content(kind, reference)).items():
                    name = (entry.get("prefix") or "") + key
                    put(name, data.decode("utf-8", "replace"), kind == "secret")
    for entry in container.get("env") or []:
        if origin := entry.get("valueFrom"):
            value = await _value_from(pod, container, origin, sources)
            if value is not None:
                put(entry["name"], value, "secretKeyRef" in origin)
        else:
            text = entry.get("value") or ""
            mentioned = {match[1] for match in _REFERENCE.finditer(text)}
            put(entry["name"], expand(text, values), bool(mentioned & secret))
    return Environment(values, secret)


async def _value_from(
    pod: Object, container: Object, origin: Object, sources: Sources
) -> str | None:
    for field, kind in SOURCES.items():
        if reference := origin.get(f"{field}KeyRef"):
            content = await sources.content(field, reference)
            if reference["key"] in content:
                return content[reference["key"]].decode("utf-8", "replace")
            if reference.get("optional"):
                return None
            where = f"{pod['metadata']['namespace']}/{reference['name']}"
            raise CannotStart(f"couldn't find key {reference['key']} in {kind} {where}")
    return downward(pod, container, origin)


def downward(pod: Object, container: Object, origin: Object) -> str:
    """The value that the downward API writes for a fieldRef or resourceFieldRef. Raises
    CannotStart."""
    if field := origin.get("fieldRef"):
        return _field(pod, field["fieldPath"])
    if resource := origin.get("resourceFieldRef"):
        return _resource(pod, container, resource)
    raise CannotStart(f"valueFrom.{next(iter(origin), '')} is not supported")


def _field(pod: Object, path: str) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _INDEXED_FIELD.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.partition(".")[2]) or {}
        # Quoted: an annotation may contain line breaks and quotes.
        quoted = {key: json.dumps(entries[key], ensure_ascii=False) for key in sorted(entries)}
        return "\n".join(f"{key}={value}" for key, value in quoted.items())
    simple = {
        **{f"metadata.{key}": metadata[key] for key in ("name", "namespace", "uid")},
        **{f"status.{key}": ADDRESS for key in ("podIP", "podIPs", "hostIP", "hostIPs")},
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
    }
    if path not in simple:
        raise CannotStart(f"unsupported fieldPath: {path}")
    return str(simple[path])


def _resource(pod: Object, container: Object, reference: Object) -> str:
    """A request or limit, divided as requested and rounded up."""
    if name := reference.get("containerName"):
        spec = pod["spec"]
        all_of_it = [*(spec.get("initContainers") or []), *spec["containers"]]
        found = next((each for each in all_of_it if each["name"] == name), None)
        if found is None:
            raise CannotStart(f"container {name} not found")
        container = found
    group, _, resource = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    # Without a limit it is the node's: the amount that the agent offers, which is not that of the
    # machine.
    given = (resources.get(group) or {}).get(resource, "0")
    divisor = quantity(reference.get("divisor") or "1") or Decimal(1)
    return str((quantity(given) / divisor).to_integral_value(ROUND_CEILING))
