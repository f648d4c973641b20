"""Checks single values. Each function takes the name of a field and its value. It returns the value
in the form that the rest of the package expects, or raises InvalidSpec.

Numbers may be given as text, since templates render to text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER, is_template

Words = Sequence[str | int | float]
"""A command or its arguments. Numbers are accepted, since they are common in arguments."""

_Check = Callable[[str, Any], Any]

_WHOLE_NUMBER = re.compile(r"\s*-?[0-9]{1,20}\s*")
_QUANTITY = re.compile(
    r"(?P<digits>[0-9]*)(?:\.(?P<decimals>[0-9]*))?"
    r"(?:[eE](?P<power>[+-]?[0-9]{1,2})|(?P<suffix>[numkMGTPE]|[KMGTPE]i))?"
)
_NANO = 10**9
_SUFFIXES = {
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    "k": _NANO * 10**3,
    "M": _NANO * 10**6,
    "G": _NANO * 10**9,
    "T": _NANO * 10**12,
    "P": _NANO * 10**15,
    "E": _NANO * 10**18,
    "Ki": _NANO * 2**10,
    "Mi": _NANO * 2**20,
    "Gi": _NANO * 2**30,
    "Ti": _NANO * 2**40,
    "Pi": _NANO * 2**50,
    "Ei": _NANO * 2**60,
}
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_MOST = 2**31 - 1


def whole_number(field: str, value: Any, *, least: int = 0) -> Any:
    if value is LATER:
        return value
    number = value
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidSpec(field, "must be a whole number", value=value)
    if number < least:
        raise InvalidSpec(field, f"must be at least {least}", value=value)
    if number > _MOST:
        raise InvalidSpec(field, f"must be at most {_MOST}", value=value)
    return number


def positive(field: str, value: Any) -> Any:
    return whole_number(field, value, least=1)


def seconds(field: str, value: Any, *, least: int = 0) -> Any:
    """A duration in whole seconds, as custom resources have it."""
    if value is LATER:
        return value
    if isinstance(value, timedelta):
        number = value.total_seconds()
        if number != int(number):
            raise InvalidSpec(field, "must be whole seconds", value=value)
        value = int(number)
    try:
        return whole_number(field, value, least=least)
    except InvalidSpec as error:
        raise InvalidSpec(
            field,
            f"must be a timedelta from {least} s to 68 years",
            value=value,
            advice="For example: timedelta(minutes=10).",
        ) from error


def flag(field: str, value: Any) -> Any:
    if value is LATER or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise InvalidSpec(field, "must be True or False", value=value)


def text(field: str, value: Any) -> Any:
    if value is LATER or (isinstance(value, str) and value):
        return value
    if value == "":
        raise InvalidSpec(field, "must not be empty")
    raise InvalidSpec(field, "must be text", value=value, advice="Put it in quotes.")


def image(field: str, value: Any) -> Any:
    """A template in a model object is not masked at parse."""
    if value is LATER or is_template(text(field, value)):
        return value
    if any(map(str.isspace, value)):
        raise InvalidSpec(field, "must not have white space in it", value=value)
    return value


def text_list(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    if isinstance(value, str):
        raise InvalidSpec(
            field,
            "must be a list of words, not one string",
            value=value,
            advice="For example: ['python', 'train.py'], or ['sh', '-c', ...] for a shell command.",
        )
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InvalidSpec(field, "must be a list of words", value=value)
    return [_word(f"{field}[{number}]", item) for number, item in enumerate(value)]


def _word(field: str, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if value is LATER or isinstance(value, str):
        return value
    raise InvalidSpec(field, "must be text", value=value)


def one_of(field: str, value: Any, allowed: Iterable[str]) -> Any:
    if value is LATER or value in (choices := list(allowed)):
        return value
    raise InvalidSpec(
        field, "is not a known value", value=value, advice=f"Use one of {', '.join(choices)}."
    )


def quantity(field: str, value: Any) -> Any:
    """An amount as Kubernetes writes it, always as text: it would reject a float."""
    if value is LATER:
        return value
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        written = str(value).strip()
        if _is_quantity(written):
            return written
    raise InvalidSpec(
        field,
        "is not a valid quantity",
        value=value,
        advice="Use 2, '500m' or '32Gi', for example.",
    )


def _is_quantity(written: str) -> bool:
    match = _QUANTITY.fullmatch(written)
    return match is not None and bool(match["digits"] or match["decimals"])


@lru_cache(maxsize=1024)  # a job contains the same few values many times
def nano_units(written: str) -> int:
    """The exact size of a quantity, in units of 1e-9."""
    match = _QUANTITY.fullmatch(written)
    if match is None or not _is_quantity(written):
        raise ValueError(written)
    decimals = match["decimals"] or ""
    number = int(match["digits"] + decimals)
    factor = _SUFFIXES[match["suffix"]] if match["suffix"] else _NANO
    power = int(match["power"] or 0) - len(decimals)
    # Positive and negative powers separately, since 10**-3 is a float.
    return number * factor * int(10 ** max(power, 0)) // int(10 ** max(-power, 0))


def object_name(field: str, value: Any) -> Any:
    """The name of a container or a volume."""
    if value is LATER or (
        isinstance(value, str) and len(value) <= 63 and re.fullmatch(_DNS_LABEL, value)
    ):
        return value
    raise InvalidSpec(
        field,
        "is not a valid name",
        value=value,
        advice="Use at most 63 lower-case letters, digits and '-',"
        " starting and ending with a letter or digit.",
    )


def label_value(field: str, value: Any) -> Any:
    if value is LATER or (isinstance(value, str) and LABEL_VALUE.fullmatch(value)):
        return value
    raise InvalidSpec(
        field,
        "is not a valid label value",
        value=value,
        advice="Use at most 63 letters, digits, '-', '_' and '.',"
        " starting and ending with a letter or digit.",
    )


def label_map(field: str, value: Any) -> Any:
    """Labels: only few characters are allowed in keys and values. Kubernetes rejects a wrong label
    of a pod template only when the operator creates the pod, so the job would hang."""
    return _pairs(field, value, _key, label_value)


def annotation_map(field: str, value: Any) -> Any:
    return _pairs(field, value, _key, _any_text)


def _pairs(field: str, value: Any, check_key: _Check, check_value: _Check) -> Any:
    if value is LATER:
        return value
    if not isinstance(value, Mapping):
        raise InvalidSpec(field, "must be a mapping of text to text", value=value)
    return {
        check_key(field, key): check_value(f"{field}[{key!r}]", item) for key, item in value.items()
    }


def _any_text(field: str, value: Any) -> Any:
    if value is LATER or isinstance(value, str):
        return value
    raise InvalidSpec(field, "must be text", value=value, advice="Put it in quotes.")


def _key(field: str, key: Any) -> Any:
    if isinstance(key, str):
        prefix, slash, name = key.rpartition("/")
        legal_prefix = not slash or (len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix))
        if legal_prefix and _LABEL_NAME.fullmatch(name):
            return key
    raise InvalidSpec(
        field,
        "is not a valid key",
        value=key,
        advice="Write 'name' or 'example.com/name', the name at most 63 characters.",
    )
