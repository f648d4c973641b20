"""Patches: (object, patch) -> a new object. Merge (RFC 7386), JSON (RFC 6902) and, for core kinds,
Kubernetes' own, which merges lists by the names of their items."""

from __future__ import annotations

import copy
from typing import Any

from kftrain_local.server.refusals import Refusal

_MERGE_KEYS = ("uid", "mountPath", "containerPort", "type", "name", "key")


def merge(old: Any, patch: Any, *, lists_by_name: bool = False) -> Any:
    if not isinstance(patch, dict):
        by_name = lists_by_name and isinstance(patch, list) and isinstance(old, list)
        return _merge_lists(old, patch) if by_name else patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):  # a directive of kubectl about the order of lists
            continue
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merge(new.get(key), value, lists_by_name=lists_by_name)
    return new


def _merge_lists(old: list[Any], patch: list[Any]) -> list[Any]:
    key = next((key for key in _MERGE_KEYS if all(_has(item, key) for item in patch)), None)
    if key is None:
        return [*old, *(item for item in patch if item not in old)]
    new = [item for item in old if _has(item, key)]
    after = 0  # new items come first, or after the item before them in the patch
    for item in patch:
        place = next((n for n, each in enumerate(new) if each[key] == item[key]), None)
        before = {} if place is None else new.pop(place)
        after = after if place is None else place
        if item.get("$patch") != "delete":
            new.insert(after, merge(before, item, lists_by_name=True))
            after += 1
    return new


def _has(item: Any, key: str) -> bool:
    return isinstance(item, dict) and key in item


def apply_json_patch(old: Any, steps: Any) -> Any:
    """Refusal 422 for a step that is not possible."""
    new = copy.deepcopy(old)
    try:
        for step in steps:
            new = _apply(new, step)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        text = "the server rejected our request due to an error in our request"
        raise Refusal(422, "Invalid", text) from error
    return new


def _apply(root: Any, step: Any) -> Any:
    word, path = step["op"], _split(step["path"])
    if word == "test":
        if _find(root, path) != step["value"]:
            raise ValueError("a test fails")
        return root
    if word in ("move", "copy"):
        value = copy.deepcopy(_find(root, _split(step["from"])))
        if word == "move":
            root = _change(root, _split(step["from"]), "remove", None)
        return _change(root, path, "add", value)
    return _change(root, path, word, step.get("value"))


def _split(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _find(root: Any, path: list[str]) -> Any:
    for part in path:
        root = root[int(part)] if isinstance(root, list) else root[part]
    return root


def _change(root: Any, path: list[str], word: str, value: Any) -> Any:
    if not path:
        return value
    *above, last = path
    parent = _find(root, above)
    place: Any = last
    if isinstance(parent, list):
        place = len(parent) if last == "-" else int(last)
        if word == "add":
            parent[place:place] = [value]
            return root
    if word == "add":
        parent[place] = value
    elif word in ("remove", "replace"):
        parent[place]  # it must exist
        if word == "remove":
            del parent[place]
        else:
            parent[place] = value
    else:
        raise ValueError(word)
    return root
