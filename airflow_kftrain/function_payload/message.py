"""Reads what the runner has written to a termination message: a value, or an exception."""

from __future__ import annotations

import base64
import json
import zlib
from datetime import datetime, timezone
from typing import Any, NamedTuple

_MARK = "KFTRAIN "
_MOST_BYTES = 1024 * 1024
"""The most that a compressed value may expand to. The runner never writes more."""


class Returned(NamedTuple):
    """What rank 0 returned."""

    value: Any = None
    problem: str = ""
    """Why there is no value, although the function has returned."""


class Raised(NamedTuple):
    """An exception of a rank, or the reason why the runner could not start one."""

    headline: str
    """`ValueError: the rate is 0, in rank 2`."""
    text: str
    """The traceback, with the DAG file's lines."""
    time: datetime | None = None
    fatal: bool = False


def read_returned(message: str) -> Returned | None:
    """None if the message does not come from a function that has returned."""
    header, _ = _read(message)
    if "value" in header:
        return Returned(header["value"])
    if "packed" in header:
        return _unpacked(header["packed"])
    if "problem" in header:
        return Returned(problem=str(header["problem"]))
    return None


def read_raised(message: str) -> Raised | None:
    """None if the message contains no exception."""
    header, text = _read(message)
    if "time" not in header:
        return None
    said = ": ".join(str(header[key]) for key in ("type", "text") if header.get(key))
    where = f", in rank {header['rank']}" if "rank" in header else ""
    return Raised(f"{said}{where}", text, _moment(header["time"]), header.get("fatal") is True)


def _read(message: str) -> tuple[dict[str, Any], str]:
    if not message.startswith(_MARK):
        return {}, ""
    line, _, text = message[len(_MARK) :].partition("\n")
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return {}, ""
    return (header, text) if isinstance(header, dict) else ({}, "")


def _unpacked(packed: object) -> Returned | None:
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(str(packed)), _MOST_BYTES)
        return Returned(json.loads(data))
    except (ValueError, zlib.error, RecursionError):
        return None


def _moment(said: object) -> datetime | None:
    if not isinstance(said, int | float):
        return None
    try:
        return datetime.fromtimestamp(said, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
