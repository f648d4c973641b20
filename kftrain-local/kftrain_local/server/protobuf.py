"""Reads what kubectl sends in protobuf instead of JSON: a few built-in kinds, when it creates them.

Answers are in JSON, which kubectl accepts, too. The numbers are those of Kubernetes' own messages.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

_MAGIC = b"k8s\0"

_MESSAGES = {
    "Envelope": "1:type:Type 2:raw:raw",
    "Type": "1:apiVersion:text 2:kind:text",
    "Metadata": (
        "1:name:text 2:generateName:text 3:namespace:text 11:labels:{text} 12:annotations:{text}"
    ),
    "ConfigMap": "1:metadata:Metadata 2:data:{text} 3:binaryData:{bytes} 4:immutable:flag",
    "Secret": "1:metadata:Metadata 2:data:{bytes} 3:type:text 4:stringData:{text} 5:immutable:flag",
    "Namespace": "1:metadata:Metadata",
    "ServiceAccount": "1:metadata:Metadata",
    "SelfSubjectAccessReview": "1:metadata:Metadata 2:spec:Review",
    "Review": "1:resourceAttributes:Attributes 2:nonResourceAttributes:Path",
    "Attributes": (
        "1:namespace:text 2:verb:text 3:group:text 4:version:text 5:resource:text "
        "6:subresource:text 7:name:text"
    ),
    "Path": "1:path:text 2:verb:text",
}
"""number:name:type of each field; {X} is a map of text to X."""


def read_protobuf(data: bytes) -> Object:
    """The object in an envelope. Raises ValueError and LookupError for everything that is not
    supported."""
    if not data.startswith(_MAGIC):
        raise ValueError("this is not a message of Kubernetes")
    envelope = _message("Envelope", data[len(_MAGIC) :])
    if (kind := envelope["type"]["kind"]) not in _MESSAGES:
        raise ValueError(f"{kind} is not supported in protobuf; send it as JSON or YAML")
    return {**envelope["type"], **_message(kind, envelope["raw"])}


def _message(name: str, data: bytes) -> Object:
    fields = (field.split(":") for field in _MESSAGES[name].split())
    known = {int(number): (key, kind) for number, key, kind in fields}
    found: Object = {}
    for number, value in _parts(data):
        if number in known:
            key, kind = known[number]
            if kind[0] == "{":
                pair = dict(_parts(value))
                text = _value("text", pair.get(1, b""))
                found.setdefault(key, {})[text] = _value(kind[1:-1], pair.get(2, b""))
            elif value or kind != "text":  # empty text means that the field was not set
                found[key] = _value(kind, value)
    return found


def _value(kind: str, value: Any) -> Any:
    if kind == "text":
        return value.decode()
    if kind == "bytes":  # JSON has them in base64
        return base64.b64encode(value).decode()
    if kind == "flag":
        return bool(value)
    return value if kind == "raw" else _message(kind, value)


def _parts(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, bytes or integer) of each field."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        if tag & 7 == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, place = _varint(data, place)
            yield tag >> 3, data[place : place + size]
            place += size
        else:
            raise ValueError("a field is of a type that Kubernetes does not use")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[place] & 127) << shift
        shift, place = shift + 7, place + 1
        if data[place - 1] < 128:
            return value, place
