"""The messages of kubectl, written by hand for machines without kubectl."""

from __future__ import annotations

import pytest

from kftrain_local.server.protobuf import read_protobuf


def field(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    size = len(data)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + data


def flag(number: int, value: bool) -> bytes:
    return bytes([number << 3, value])


def pair(key: str, value: bytes | str) -> bytes:
    return field(1, key) + field(2, value)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    kind_of = field(1, api_version) + field(2, kind)
    return b"k8s\0" + field(1, kind_of) + field(2, raw) + field(3, "") + field(4, "")


METADATA = field(1, field(1, "n") + field(2, "") + field(11, pair("a", "b")) + field(8, ""))


def test_a_secret_is_read_with_its_bytes_in_base64() -> None:
    raw = METADATA + field(2, pair("k", b"\xff" * 150)) + field(3, "Opaque") + flag(5, True)
    assert read_protobuf(envelope("v1", "Secret", raw)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "data": {"k": "/" * 200},
        "type": "Opaque",
        "immutable": True,
    }


def test_a_map_holds_all_its_pairs() -> None:
    raw = METADATA + field(2, pair("k", "1")) + field(2, pair("l", "")) + field(2, pair("m", "3"))
    read = read_protobuf(envelope("v1", "ConfigMap", raw))
    assert read["data"] == {"k": "1", "l": "", "m": "3"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"k8s\0",
        b"k8s\0\xff",
        envelope("v1", "Pod", b""),
        envelope("v1", "Secret", b"\x0d"),
    ],
    ids=["nothing", "json", "empty", "cut", "another-kind", "another-type"],
)
def test_what_is_not_understood_is_an_error(data: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        read_protobuf(data)
