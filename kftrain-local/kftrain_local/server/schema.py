"""The fields of all kinds: finds unknown fields, wrong types and exceeded limits, in Kubernetes'
words.

The fields are in schemas.json, which `make schemas` generates from what the real API server
publishes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kftrain_local.kinds import TRAIN_JOB
from kftrain_local.server.refusals import (
    Refusal,
    bad_request,
    invalid,
    unsupported_value,
)
from kftrain_local.server.resources import RESOURCES, Resource
from kftrain_local.server.train_admission import check_numbers

Object = dict[str, Any]
Rule = str | Mapping[str, Any]
"""The type of a field: a type, the name of a shape, or a type with limits."""

FILE = Path(__file__).with_name("schemas.json")
_PUBLISHED = json.loads(FILE.read_text(encoding="utf-8"))
_RESOURCES: Mapping[str, str] = _PUBLISHED["resources"]
_SHAPES: Mapping[str, Mapping[str, Any]] = _PUBLISHED["shapes"]

_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "string": ("string", (str,)),
    "integer": ("integer", (int,)),
    "number": ("number", (int, float)),
    "boolean": ("boolean", (bool,)),
    "array": ("array", (list,)),
    "object": ("object", (dict,)),
    "int-or-string": ("integer,string", (int, str)),
    "quantity": ("string", (str, int, float)),
    "any": ("", (object, bool)),
}
_QUANTITY = "quantity"
_IS_QUANTITY = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
)
_GO_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_MISSING = "Required value"
_JSON_NAMES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}


class _Fault(NamedTuple):
    field: str
    what: str
    """"" for an unknown field."""
    wanted: str = ""
    """The type, if it differs."""


def check(
    resource: Resource, found: Object, validation: str, twice: Sequence[str] = (), patch: Any = None
) -> list[str]:
    """Drops nulls and unknown fields. Returns warnings about these and about fields that were given
    `twice`; under Strict they are a Refusal. With a `patch`, `found` is the patched object."""
    faults = [*_object(found, _RESOURCES[f"{resource.api_version}/{resource.kind}"], "")]
    warnings = sorted(f'unknown field "{fault.field}"' for fault in faults if not fault.what)
    warnings += [f'duplicate field "{field}"' for field in twice]
    if warnings and validation == "Strict":
        raise _strict(resource, found, f"strict decoding error: {', '.join(warnings)}", patch)
    if resource.job is TRAIN_JOB:
        check_numbers(found)
    if resource.is_custom:
        if wrong := [f"{fault.field}: {fault.what}" for fault in faults if fault.what]:
            raise invalid(resource, found["metadata"].get("name", ""), *wrong)
    else:  # their types have no limits, and duplicates are allowed
        for fault in faults:
            if fault.wanted:
                raise _not_handled(resource, _go_words(fault))
        if missing := [f"{fault.field}: {_MISSING}" for fault in faults if fault.what == _MISSING]:
            raise invalid(resource, found["metadata"].get("name", ""), *missing)
    return warnings if validation != "Ignore" else []


def check_status(resource: Resource, found: Object) -> None:
    """Before a write to the status alone. Its content is left to the operators."""
    for key, rule in (("metadata", "ObjectMeta"), ("status", "object")):
        for fault in [*_value(found.get(key, {}), rule, key)]:
            if fault.wanted:
                raise _not_handled(resource, _go_words(fault))


def check_options(options: Object) -> None:
    """Checks the options of a deletion: drops nulls and unknown fields."""
    for fault in [*_object(options, _RESOURCES["DeleteOptions"], "")]:
        if fault.wanted:
            kind = "DeleteOptions"
            text = f'{kind} in version "v1" cannot be handled as a {kind}: '
            raise bad_request(text + _go_words(fault))


def _strict(resource: Resource, found: Object, why: str, patch: Any) -> Refusal:
    if patch is None:
        return _not_handled(resource, why)
    name = found["metadata"].get("name", "")
    return invalid(resource, name, f"patch: Invalid value: {json.dumps(patch)}: {why}")


def _not_handled(resource: Resource, why: str) -> Refusal:
    kind = resource.kind
    text = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: '
    return bad_request(text + why)


def _go_words(fault: _Fault) -> str:
    if fault.wanted == _QUANTITY:
        return f"quantities must match the regular expression '{_GO_QUANTITY}'"
    got = fault.what.rpartition(": ")[2].strip('"')
    return (
        f"json: cannot unmarshal {got} into Go struct field .{fault.field} of type {fault.wanted}"
    )


def _object(value: Object, shape: str, path: str) -> Iterator[_Fault]:
    known = _SHAPES[shape]["fields"]
    for key in [*value]:
        place = f"{path}.{key}" if path else key
        if key not in known:
            yield _Fault(place, "")
        if key not in known or value[key] is None:
            del value[key]
        else:
            yield from _value(value[key], known[key], place)
    for key in _SHAPES[shape].get("required", ()):
        if key not in value:
            yield _Fault(f"{path}.{key}" if path else key, _MISSING)


def _value(value: Any, rule: Rule, path: str) -> Iterator[_Fault]:
    limits = {"type": rule} if isinstance(rule, str) else rule
    name = limits["type"]
    wanted, types = _TYPES["object" if name in _SHAPES else name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        got = _JSON_NAMES[type(value)]
        text = f'Invalid value: "{got}": {path} in body must be of type {wanted}: "{got}"'
        yield _Fault(path, text, wanted)
        return
    if name == _QUANTITY and not _IS_QUANTITY.fullmatch(str(value)):
        text = f"Invalid value: \"{value}\": {path} in body should match '{_GO_QUANTITY}'"
        yield _Fault(path, text, _QUANTITY)
    for limit in limits.keys() & _LIMITS.keys():
        yield from (_Fault(path, text) for text in _LIMITS[limit](value, limits[limit], path))
    yield from _inside(value, limits, path)


def _inside(value: Any, rule: Mapping[str, Any], path: str) -> Iterator[_Fault]:
    if rule["type"] in _SHAPES:
        yield from _object(value, rule["type"], path)
    if "items" in rule:
        for number, item in enumerate(value):
            yield from _value(item, rule["items"], f"{path}[{number}]")
    if "keys" in rule:
        yield from _repeated(value, rule["keys"], path)
    if "values" in rule:
        for key in [*value]:
            if value[key] is None:
                del value[key]
            else:
                yield from _value(value[key], rule["values"], f"{path}.{key}")


def _repeated(items: list[Any], keys: Sequence[str], path: str) -> Iterator[_Fault]:
    """Items are distinguished by these of their fields, or as a whole if there are none."""
    seen = set()
    for number, item in enumerate(items):
        fields = item if isinstance(item, dict) else {}
        own = {key: fields[key] for key in keys if key in fields} if keys else item
        text = json.dumps(own, sort_keys=True)
        if own != {} and text in seen:
            yield _Fault(f"{path}[{number}]", f"Duplicate value: {text}")
        seen.add(text)


# ----- limits of values


def _enum(value: Any, known: Sequence[str], path: str) -> Iterator[str]:
    if value not in known:
        yield unsupported_value("", value, known).removeprefix(": ")


def _pattern(value: Any, pattern: str, path: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(pattern, value):
        yield f"Invalid value: {json.dumps(value)}: {path} in body should match '{pattern}'"


def _minimum(value: int, least: int, path: str) -> Iterator[str]:
    if value < least:
        text = f"{path} in body should be greater than or equal to {least}"
        yield f"Invalid value: {value}: {text}"


def _maximum(value: int, most: int, path: str) -> Iterator[str]:
    if value > most:
        yield f"Invalid value: {value}: {path} in body should be less than or equal to {most}"


def _min_length(value: str, least: int, path: str) -> Iterator[str]:
    if len(value) < least:
        text = f"{path} in body should be at least {least} chars long"
        yield f"Invalid value: {json.dumps(value)}: {text}"


def _max_length(value: str, most: int, path: str) -> Iterator[str]:
    if len(value) > most:
        yield f"Too long: may not be more than {most} bytes"


def _min_items(value: list[Any], least: int, path: str) -> Iterator[str]:
    if len(value) < least:
        text = f"{path} in body should have at least {least} items"
        yield f"Invalid value: {len(value)}: {text}"


def _max_items(value: list[Any], most: int, path: str) -> Iterator[str]:
    if len(value) > most:
        yield f"Too many: {len(value)}: must have at most {most} items"


_LIMITS: Mapping[str, Callable[[Any, Any, str], Iterator[str]]] = {
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _minimum,
    "maximum": _maximum,
    "minLength": _min_length,
    "maxLength": _max_length,
    "minItems": _min_items,
    "maxItems": _max_items,
}


def openapi(path: str) -> Object:
    """The part from which kubectl sees that the server validates fields itself."""
    versions = sorted({resource.api_version for resource in RESOURCES})
    places = {
        version: f"apis/{version}" if "/" in version else f"api/{version}" for version in versions
    }
    place = path.removeprefix("/openapi/v3").strip("/")
    if not place:
        urls = {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in places.values()}
        return {"paths": urls}
    paths = {}
    for resource in RESOURCES:
        if places[resource.api_version] == place:
            kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
            validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
            method = {"parameters": [validation], "x-kubernetes-group-version-kind": kind}
            scope = "namespaces/{namespace}/" if resource.namespaced else ""
            methods = {"post": method, "patch": method, "put": method}
            paths[f"/{place}/{scope}{resource.plural}"] = methods
    return {"openapi": "3.0.0", "info": {"title": "kftrain", "version": "1"}, "paths": paths}
