"""Merges parts of a pod, like kubectl's strategic merge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Lists whose items have names. All other lists are replaced as a whole.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
}


def merge(base: Any, over: Any, name: str = "") -> Any:
    """Merges `over` into `base`: mappings by key, named lists by item; everything else is replaced.
    None removes. Neither argument is changed."""
    if isinstance(over, Mapping):
        return _merge_mappings(base if isinstance(base, Mapping) else {}, over)
    key = _KEYS.get(name)
    if key and isinstance(base, list) and isinstance(over, list):
        return _merge_lists(base, over, name)
    return over


def _merge_mappings(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, item in over.items():
        if item is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(base.get(key), item, key)
    return merged


def _merge_lists(base: list[Any], over: list[Any], name: str) -> list[Any]:
    key = _KEYS[name]
    merged = list(base)
    taken: set[int] = set()
    for item in over:
        place = _find(base, key, item)
        if place is None or place in taken:
            # Two items of the same name in `over` both stay, so that they are found and rejected.
            merged.append(item)
        else:
            merged[place] = _merge_items(base[place], item, name)
            taken.add(place)
    return merged


def _merge_items(base: Mapping[str, Any], over: Mapping[str, Any], name: str) -> Any:
    """A variable and a volume have exactly one of several sources. If the source changes, the old
    one is removed."""
    if name == "env":
        return over
    if name == "volumes":
        base = {key: item for key, item in base.items() if key in over}
    return merge(base, over)


def _find(items: list[Any], key: str, wanted: Any) -> int | None:
    if not isinstance(wanted, Mapping) or wanted.get(key) is None:
        return None
    for place, item in enumerate(items):
        if isinstance(item, Mapping) and item.get(key) == wanted[key]:
            return place
    return None
