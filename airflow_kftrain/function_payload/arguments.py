"""Arguments of a function as JSON. A value that JSON would change is rejected, with its path."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_kftrain.errors import InvalidSpec

_DEEPEST = 50
_MOST_BITS = 10_000
"""Python reads no number of more than 4300 digits."""
_ADVICE = {
    "tuple": "Pass a list.",
    "set": "Pass a list.",
    "frozenset": "Pass a list.",
    "datetime": "Pass a string, such as '{{ ds }}'.",
    "date": "Pass a string, such as '{{ ds }}'.",
    "timedelta": "Pass a number of seconds.",
    "Path": "Pass a string.",
    "PosixPath": "Pass a string.",
    "bytes": "Pass a string, or add the data as a file to code=Code(files=[...]).",
    "Decimal": "Pass a float, or a string.",
}


def arguments_json(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The arguments of a call. Raises InvalidSpec."""
    said = {
        "args": [plain_json(f"argument {number + 1}", item) for number, item in enumerate(args)],
        "kwargs": {name: plain_json(name, item) for name, item in kwargs.items()},
    }
    return json.dumps(said, sort_keys=False)


def plain_json(field: str, value: Any, depth: int = _DEEPEST) -> Any:
    """The value, if a trip through JSON does not change it. Raises InvalidSpec."""
    if depth < 0:
        raise InvalidSpec(
            field, f"is nested more than {_DEEPEST} levels deep", advice="Use fewer levels."
        )
    if type(value).__name__ == "LazyXComSequence":
        value = list(value)  # the return values of mapped tasks
    kind = type(value)
    if kind is int and value.bit_length() > _MOST_BITS:
        raise InvalidSpec(field, f"has {value.bit_length()} bits", advice="Pass a string.")
    if value is None or kind in (bool, int):
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise InvalidSpec(
            field, "cannot be written in JSON", value=value, advice="Pass None, or a string."
        )
    if kind is str:
        return _text(field, value)
    if kind is list:
        return [plain_json(f"{field}[{n}]", item, depth - 1) for n, item in enumerate(value)]
    if kind is dict:
        return {
            _key(field, key): plain_json(f"{field}[{key!r}]", item, depth - 1)
            for key, item in value.items()
        }
    raise InvalidSpec(
        field,
        f"is of type {kind.__name__}, which cannot be passed as JSON",
        advice=_ADVICE.get(kind.__name__, "Pass numbers, strings, lists and dicts."),
    )


def _text(field: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidSpec(field, "is not valid text: it contains half a surrogate pair") from None
    return value


def _key(field: str, key: Any) -> str:
    if type(key) is not str:
        raise InvalidSpec(
            f"{field}[{key!r}]",
            f"has a key of type {type(key).__name__}, which JSON turns into a string",
            advice="Use strings as keys.",
        )
    return _text(field, key)
