"""Label and field selectors: text -> a function that says whether an object matches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kftrain_local.server.refusals import bad_request
from kftrain_local.server.resources import Resource

Object = dict[str, Any]
Matches = Callable[[Object], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^)]*)\)$")
_EQUAL = re.compile(r"^([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)$")
_EXISTS = re.compile(r"^(!?)\s*([\w./-]+)$")
_COMMAS = re.compile(r",(?![^(]*\))")


def everything(_: Object) -> bool:
    return True


def selector(resource: Resource, labels: str, fields: str) -> Matches:
    """Both selectors together. Refusal 400 if one cannot be parsed."""
    tests = [_label_test(part.strip()) for part in _COMMAS.split(labels) if part.strip()]
    tests += [_field_test(resource, part) for part in fields.split(",") if part]
    if len(tests) < 2:  # at every change, each watch calls this
        return tests[0] if tests else everything
    return lambda found: all(test(found) for test in tests)


def _label_test(text: str) -> Matches:
    if found := _SET.match(text):
        key, word, inside = found.groups()
        values = {value.strip() for value in inside.split(",")}
        if word == "in":
            return lambda each: _labels(each).get(key) in values
        return lambda each: _labels(each).get(key) not in values
    if found := _EQUAL.match(text):
        key, sign, value = found.groups()
        return lambda each: (_labels(each).get(key) == value) is (sign != "!=")
    if found := _EXISTS.match(text):
        absent, key = found.groups()
        return lambda each: (key in _labels(each)) is not bool(absent)
    raise bad_request(f"unable to parse requirement: found '{text}'")


def _labels(found: Object) -> dict[str, str]:
    return found["metadata"].get("labels") or {}


def _field_test(resource: Resource, text: str) -> Matches:
    found = _EQUAL.match(text)
    if not found:
        raise bad_request(f"invalid field selector: {text!r}; can't understand it")
    path, sign, value = found.groups()
    if path not in ("metadata.name", "metadata.namespace", *resource.fields):
        raise bad_request(_not_supported(resource, path))
    steps, wanted = path.split("."), sign != "!="

    def test(each: Object) -> bool:
        here: Any = each
        for step in steps:
            here = here.get(step) if isinstance(here, dict) else None
        return (str(here or "") == value) is wanted

    return test


def _not_supported(resource: Resource, path: str) -> str:
    """Kubernetes has three messages for this."""
    if resource.group == "batch":
        return f'field label "{path}" not supported for {resource.kind}'
    if resource.is_custom or resource.fields:
        return f"field label not supported: {path}"
    known = 'only "metadata.name", "metadata.namespace"'
    return f'"{path}" is not a known field selector: {known}'
