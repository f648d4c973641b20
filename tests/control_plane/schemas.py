"""Condenses what the API server publishes about the resources that the embedded cluster serves.

`/openapi/v3` describes each field in prose, with defaults and hints for tools: twelve megabytes in
total. The embedded cluster needs names, types and limits. Equal objects are stored once, so the pod
template, which twenty fields of the operators' definitions repeat, exists once per version.

    {"kubernetes": "v1.36.3",
     "resources": {"kubeflow.org/v1/PyTorchJob": "PyTorchJob"},
     "shapes": {"PyTorchJob": {"fields": {"metadata": "ObjectMeta", ...}, "required": [...]}}}

A field is a type (in lower case), the name of a shape (with a capital letter), or a mapping with
`type`, the type of its content (`items` of a list, `values` of a mapping with any keys) and its
limits. `keys` are the fields that distinguish the items of a list; without them, the whole items
do. An object whose shape has no fields is emptied, `object` may contain anything. The status is
omitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kftrain_local.server.resources import RESOURCES, REVIEWS
from kftrain_local.server.schema import FILE
from tests.control_plane.api import Api
from tests.control_plane.build import KUBERNETES
from tests.control_plane.launcher import WITHOUT_KUEUE, ControlPlane

Published = Mapping[str, Any]
"""The schemas of one version of a group, by name."""

_LIMITS = (
    *("enum", "pattern", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems"),
)
_BUILT_IN = "io.k8s."
_OPTIONS = f"{_BUILT_IN}apimachinery.pkg.apis.meta.v1.DeleteOptions"
_SCALARS = {
    f"{_BUILT_IN}apimachinery.pkg.api.resource.Quantity": "quantity",
    f"{_BUILT_IN}apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
}


def write_schemas() -> Path:
    """Asks two profiles, since each serves another version of MPIJob."""
    shapes = _Shapes()
    wanted = {
        f"{each.api_version}/{each.kind}": each.group for each in RESOURCES if each != REVIEWS
    }
    found: dict[str, str] = {}
    for profile in WITHOUT_KUEUE:
        with ControlPlane(profile) as plane:
            for version in sorted({name.rpartition("/")[0] for name in wanted.keys() - found}):
                published = _published(plane.api(), version)
                for name in sorted(name for name in wanted if name.rpartition("/")[0] == version):
                    if name not in found and (schema := _schema_of(published, name)):
                        found[name] = shapes.of_resource(published, *schema)
                if version == "v1":
                    found["DeleteOptions"] = shapes.named(published, _OPTIONS)
    if missing := wanted.keys() - found:
        raise LookupError(f"the API server publishes nothing of {', '.join(sorted(missing))}")
    FILE.write_text(_text(found, shapes.all), encoding="utf-8")
    return FILE


def _published(api: Api, version: str) -> Published:
    place = f"apis/{version}" if "/" in version else f"api/{version}"
    answer = api.call("GET", f"/openapi/v3/{place}")
    return answer.object["components"]["schemas"] if answer.ok else {}


def _schema_of(published: Published, name: str) -> tuple[str, Any] | None:
    """The name and the schema of a kind, by "GROUP/VERSION/KIND"."""
    version, _, kind = name.rpartition("/")
    group, _, version = version.rpartition("/")
    wanted = {"group": group, "kind": kind, "version": version}
    for each, schema in published.items():
        if schema.get("x-kubernetes-group-version-kind") == [wanted]:
            return each, schema
    return None


class _Shapes:
    def __init__(self) -> None:
        self.all: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        """By the text of the shape."""

    def of_resource(self, published: Published, name: str, schema: Any) -> str:
        fields = {key: each for key, each in schema["properties"].items() if key != "status"}
        if "status" in schema["properties"]:
            fields["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        shape = self._rule(published, {**schema, "properties": fields}, name)
        return str(shape)

    def named(self, published: Published, name: str) -> Any:
        return _SCALARS.get(name) or self._rule(published, published[name], name)

    def _rule(self, published: Published, schema: Any, name: str) -> Any:
        """`name`: that of the type for built-in types, else that of the field."""
        for part in (schema, *schema.get("allOf", ())):
            if reference := part.get("$ref"):
                return self.named(published, reference.rpartition("/")[2])
        rule = {"type": _type(schema)}
        rule |= {limit: schema[limit] for limit in _LIMITS if limit in schema}
        if schema.get("x-kubernetes-list-type") in ("map", "set"):
            rule["keys"] = schema.get("x-kubernetes-list-map-keys", [])
        for word, key in (("items", "items"), ("additionalProperties", "values")):
            if isinstance(schema.get(word), dict):
                rule[key] = self._rule(published, schema[word], name)
        if _is_open(schema, name):
            return rule["type"] if len(rule) == 1 else rule
        return self._shape(published, schema, name)

    def _shape(self, published: Published, schema: Any, name: str) -> str:
        built_in = f"{_BUILT_IN}x." if name.startswith(_BUILT_IN) else ""
        shape: dict[str, Any] = {
            "fields": {
                key: self._rule(published, each, f"{built_in}{key}")
                for key, each in sorted(schema.get("properties", {}).items())
            }
        }
        if needed := schema.get("required"):
            shape["required"] = sorted(needed)
        return self._name(shape, name)

    def _name(self, shape: Any, name: str) -> str:
        text = json.dumps(shape, sort_keys=True)
        if text not in self._names:
            word = name.rpartition(".")[2]
            word = word[0].upper() + word[1:]
            others = sum(each.rstrip("0123456789-") == word for each in self.all)
            self._names[text] = f"{word}-{others + 1}" if others else word
            self.all[self._names[text]] = shape
        return self._names[text]


def _type(schema: Any) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    return str(schema.get("type", "any"))


def _is_open(schema: Any, name: str) -> bool:
    """True if it is no object, or one that may contain fields that are not listed. The API server
    empties an object of a custom resource that lists no fields; a built-in type that lists none may
    contain anything."""
    if schema.get("type") != "object" or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    if "properties" in schema:
        return False
    return "additionalProperties" in schema or name.startswith(_BUILT_IN)


def _text(resources: Mapping[str, str], shapes: Mapping[str, Any]) -> str:
    """One shape per line, so that a new version of an operator shows what it changes."""
    parts = {"resources": resources, "shapes": shapes}
    blocks = [f'"kubernetes": "v{KUBERNETES}"']
    for name, part in parts.items():
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(part[key])}" for key in sorted(part))
        blocks.append(f'"{name}": {{\n{lines}\n}}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"
