"""The answer to a parameter that does not exist. Loaded only when there is one.

Values are never shown: one of them may be a secret, and a model object fills a screen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.foreign_names import WORLDS

NOUNS = {
    "pod": "Pod",
    "pod.placement": "Placement",
    "container": "Container",
    "container_resources": "Resources",
    "run_policy": "RunPolicy",
    "run_policy.scheduling": "SchedulingPolicy",
    "elastic": "Elastic",
    "horovod": "Horovod",
    "mpirun": "Mpirun",
    "code": "Code",
    "timeouts": "Timeouts",
    "lifecycle": "Lifecycle",
    "logs": "Logs",
    "links": "Links",
    "runtime": "Runtime",
    "initializer": "Initializer",
    "initializer.dataset": "Source",
    "initializer.model": "Source",
    "worker": "Replica",
    "master": "Replica",
    "launcher": "Replica",
    "chief": "Replica",
    "ps": "Replica",
    "evaluator": "Replica",
}
"""Where each noun goes."""

_VALUES = ("FromSecret", "FromConfigMap", "FromField")
"""What stands in `env`, for any variable."""
_SPECS = ("PyTorchJob", "TFJob", "HorovodJob", "TrainJob")
_OF_ALL = ("namespace", "kubernetes_conn_id", "deferrable", "wait_for_completion", "poll_interval")
_ALIKE = 0.7
_FEW = 12


def refuse_unknown(thing: str, known: Collection[str], given: Iterable[str]) -> None:
    """Raise InvalidSpec if one of the names that were `given` is not among the parameters that
    `thing` has, by its name."""
    first, *others = [name for name in given if name not in known] or [""]
    if not first:
        return
    advice = [_advice(thing, known, first)]
    advice += [f"Nor is {name}. {_advice(thing, known, name)}" for name in others]
    # Without the TypeError that it replaces, since Airflow's shows the values.
    raise InvalidSpec(first, f"not a parameter of {thing}", advice=" ".join(advice)) from None


def _advice(thing: str, known: Collection[str], name: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    if snake in known:
        return f"Did you mean {snake!r}?"
    found = "" if thing in _VALUES else _elsewhere(thing, known, snake)
    if found:
        return found
    others = {each for world in WORLDS for each in (*world.instead, *world.without)}
    others |= {each for noun in NOUNS.values() for each in _fields(noun)}
    close = get_close_matches(snake, [*known, *sorted(others - set(known))], n=1, cutoff=_ALIKE)
    if close and (thing not in _VALUES or close[0] in known):
        answer = "" if close[0] in known else f" {_elsewhere(thing, known, close[0])}"
        return f"Did you mean {close[0]!r}?{answer}"
    if len(known) <= _FEW:
        return f"It has {', '.join(known)}."
    return "Omit it."


def _elsewhere(thing: str, known: Collection[str], name: str) -> str:
    """What to write for a name of another world, or of another noun of ours."""
    for world in WORLDS:
        if name in world.instead and (found := _fitting(thing, known, world.instead[name])):
            return found
        if name in world.without:
            return f"It has no equivalent; {world.without[name]}."
    own = [f"{place}.{name}" for place, noun in NOUNS.items() if name in _fields(noun)]
    jobs = (_fields(spec) for spec in _SPECS)
    if thing in NOUNS.values() and any(name in each for each in (*jobs, NOUNS, _OF_ALL)):
        own.insert(0, name)
    if own and (found := _fitting(thing, known, " | ".join(own))):
        return found
    if not own and not any(name in world.instead for world in WORLDS):
        return ""
    if "manifest" in known:
        return "Write it into the manifest."
    return f"It has no equivalent in {thing}."


def _fitting(thing: str, known: Collection[str], paths: str) -> str:
    """The first of the paths that can be written in the thing; in a noun, any other belongs to the
    operator."""
    each = [path.partition("=")[::2] for path in paths.split(" | ")]
    for path, value in each:
        parts = path.split(".")
        for start in range(len(parts)):
            inside = NOUNS.get(".".join(parts[:start]))
            if parts[start] in known and (start == 0 or inside == thing):
                return f"Write {_written(parts, start, value)}."
    if thing in NOUNS.values():
        path, value = each[0]
        return f"In the operator, write {_written(path.split('.'), 0, value)}."
    return ""


def _written(parts: list[str], start: int, value: str) -> str:
    """The path from one of its parts on, as an author writes it."""
    if start == len(parts) - 1 and not value:
        return f"{parts[-1]} instead"
    text = f"{parts[-1]}={value or '...'}"
    for end in range(len(parts) - 1, start, -1):
        noun = NOUNS[".".join(parts[:end])]
        text = f"{parts[end - 1]}={noun}({text})"
    return text


def fields_of(cls: Any) -> list[str]:
    """Of a noun or a spec."""
    fields: Any = cls._fields if hasattr(cls, "_fields") else cls.__dataclass_fields__
    return list(fields)


def _fields(name: str) -> list[str]:
    return fields_of(getattr(import_module("airflow_kftrain"), name))
