"""Resources: requests and limits of a container, written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering
from airflow_kftrain.specs.shapes import conform
from airflow_kftrain.specs.values import nano_units, quantity

GPU = "nvidia.com/gpu"
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_IN_BYTES = ("memory", "ephemeral-storage")
_LEAST_BYTES = "1Mi"
"""Nobody means less."""

Amount = str | int | float
AmountOrPair = Amount | tuple[Amount | None, Amount | None]


@answering
class Resources(NamedTuple):
    """Amounts for each container. A single value sets request and limit; a pair is (request,
    limit), and None omits one of them."""

    cpu: AmountOrPair | None = None
    memory: AmountOrPair | None = None
    gpu: Amount | None = None
    """Number of `nvidia.com/gpu`; use `extended` for other devices."""
    ephemeral_storage: AmountOrPair | None = None
    extended: Mapping[str, Amount] | None = None
    """Any other resource by its full name, such as {"amd.com/gpu": 1, "rdma/hca": 1}."""


def requirements(field: str, value: Any) -> Any:
    """Requests and limits as a container has them. Accepts Resources, V1ResourceRequirements or a
    dict of the same form."""
    if value is LATER:
        return value
    names: dict[str, str] = {}
    if isinstance(value, Resources):
        value, names = _from_noun(field, value)
    checked = conform(value, "ResourceRequirements", field)
    check_amounts(field, checked, names)
    return checked


def check_amounts(
    field: str, checked: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> None:
    """Kubernetes rejects these only when it creates the pod, so the job would hang. `names` maps
    resources to the author's fields if these are not requests and limits."""
    amounts = {}
    for part in ("requests", "limits"):
        amounts[part] = checked.get(part, {})
        if amounts[part] is LATER:
            return
    for part, listed in amounts.items():
        for name, amount in listed.items():
            where = (names or {}).get(name, f"{field}.{part}[{name!r}]")
            _check_amount(where, name, amount)
            if part == "requests":
                _check_pair(where, name, amount, amounts["limits"].get(name))


def _check_amount(field: str, name: str, amount: Any) -> None:
    if not is_device(name) and name not in _NATIVE and not name.startswith(_HUGE_PAGES):
        raise InvalidSpec(
            field,
            f"there is no resource {name!r}",
            value=amount,
            advice=f"Use the full name of a device, such as {GPU!r}.",
        )
    if name in _IN_BYTES:
        check_bytes(field, amount)
    if is_device(name) and amount is not LATER and nano_units(amount) % nano_units("1"):
        raise InvalidSpec(field, "must be a whole number: devices cannot be split", value=amount)


def check_bytes(field: str, amount: Any) -> None:
    """An amount that is so small that its unit is missing, or is another one than was meant."""
    if amount is LATER or not 0 < nano_units(amount) < nano_units(_LEAST_BYTES):
        return
    digits = amount.rstrip("m")
    example = f"'{digits}Mi' or '{digits}Gi'" if digits.isdigit() else "'2Gi', say"
    problem = "is in thousandths of a byte" if amount != digits else "is less than a mebibyte"
    raise InvalidSpec(field, problem, value=amount, advice=f"Write {example}.")


def _check_pair(field: str, name: str, request: Any, limit: Any) -> None:
    if limit is LATER or request is LATER:
        return
    exact = is_device(name) or name.startswith(_HUGE_PAGES)
    if limit is None:
        if exact:
            raise InvalidSpec(field, f"{name} needs a limit of the same amount", value=request)
    elif nano_units(request) > nano_units(limit):
        raise InvalidSpec(field, f"more than its limit of {limit}", value=request)
    elif exact and nano_units(request) != nano_units(limit):
        raise InvalidSpec(
            field, f"must equal its limit of {limit}: devices cannot be shared", value=request
        )


def is_device(name: str) -> bool:
    """Names of devices such as GPUs have a domain; cpu, memory and hugepages have none."""
    return "/" in name


def without_devices(checked: Any) -> Any:
    """The same requirements for a container that only starts processes elsewhere, such as an MPI
    launcher."""
    if checked is LATER:
        return checked
    kept = {}
    for part, amounts in checked.items():
        if isinstance(amounts, Mapping):
            amounts = {name: item for name, item in amounts.items() if not is_device(name)}
        if amounts:
            kept[part] = amounts
    return kept


def _from_noun(field: str, noun: Resources) -> tuple[dict[str, Any], dict[str, str]]:
    """Requests and limits, and the names of the fields that they come from."""
    given: dict[str, Any] = {
        "cpu": noun.cpu,
        "memory": noun.memory,
        "ephemeral-storage": noun.ephemeral_storage,
        GPU: noun.gpu,
    }
    short = {"ephemeral-storage": "ephemeral_storage", GPU: "gpu"}
    fields = {name: f"{field}.{short.get(name, name)}" for name in given}
    if noun.extended is LATER:
        return {"requests": LATER, "limits": LATER}, fields
    extended = {} if noun.extended is None else noun.extended
    if not isinstance(extended, Mapping):
        raise InvalidSpec(
            f"{field}.extended",
            "must be a mapping of names to amounts",
            value=extended,
            advice="For example: {'amd.com/gpu': 1}.",
        )
    for name, amount in extended.items():
        where = f"{field}.extended[{name!r}]"
        if not isinstance(name, str):
            raise InvalidSpec(where, "must be the name of a resource")
        if name in given:
            advice = f"Write {short.get(name, name)} instead."
            raise InvalidSpec(where, "has a field of its own", value=amount, advice=advice)
        given[name], fields[name] = amount, where
    result: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for name, amount in given.items():
        for part, item in zip(("requests", "limits"), _pair(fields[name], amount), strict=True):
            if item is not None:
                result[part][name] = quantity(fields[name], item)
    return {part: amounts for part, amounts in result.items() if amounts}, fields


def _pair(field: str, amount: Any) -> tuple[Any, Any]:
    if not isinstance(amount, tuple | list):
        return amount, amount
    if len(amount) != 2:
        raise InvalidSpec(field, "must be one amount, or a pair of request and limit", value=amount)
    return amount[0], amount[1]
