"""The volumes of a pod as folders, and paths rewritten to them.

Nothing can be mounted without rights, so a volume is a folder of the pod, and every mention of its
mount path in variables, command and arguments becomes that folder. Paths that stand inside
programs or files are not seen. Files are the user's own (0600), a Secret's among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_kftrain.local.environment import (
    ConfigError,
    Source,
    Sources,
    content_of,
    expand,
    field_of,
    resource_of,
)

Object = dict[str, Any]

_NAME_FIELDS = {"configmaps": "name", "secrets": "secretName"}


def sources_of_volumes(pod: Object) -> set[Source]:
    """What the volumes of a pod point to."""
    found: set[Source] = set()
    for volume in pod["spec"].get("volumes") or []:
        for part in _parts(volume):
            found |= {
                (kind, reference[field]) for kind, reference, field in _references(part) if field
            }
    return found


def _parts(volume: Object) -> list[Object]:
    if projected := volume.get("projected"):
        return list(projected.get("sources") or [])
    return [volume]


def _references(part: Object) -> Iterator[tuple[str, Object, str]]:
    if reference := part.get("configMap"):
        yield "configmaps", reference, "name"
    if reference := part.get("secret"):
        # A projected source calls the field otherwise than a volume does.
        yield "secrets", reference, "secretName" if "secretName" in reference else "name"


def make_volumes(pod: Object, folder: Path, sources: Sources) -> dict[str, Path]:
    """A folder for each volume; raises ConfigError for what is missing or not supported."""
    made = {}
    for volume in pod["spec"].get("volumes") or []:
        place = made[volume["name"]] = folder / volume["name"]
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in _parts(volume):
            _fill(pod, part, place, sources)
    return made


def _fill(pod: Object, part: Object, place: Path, sources: Sources) -> None:
    for kind, reference, field in _references(part):
        content = content_of(sources, kind, reference, field) or {}
        mode = reference.get("defaultMode")
        for path, data, own_mode in _chosen(reference, content):
            _write(place, path, data, own_mode if own_mode is not None else mode)
    if downward := part.get("downwardAPI"):
        for item in downward.get("items") or []:
            text = (
                field_of(pod, item["fieldRef"]["fieldPath"])
                if "fieldRef" in item
                else resource_of(pod, {}, item["resourceFieldRef"])
            )
            mode = item.get("mode", downward.get("defaultMode"))
            _write(place, item["path"], text.encode(), mode)


def _chosen(
    reference: Object, content: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes, int | None]]:
    """(path, data, mode): all keys, or the items that are named."""
    if "items" not in reference:
        yield from ((key, data, None) for key, data in content.items())
        return
    for item in reference["items"]:
        if item["key"] in content:
            yield item["path"], content[item["key"]], item.get("mode")
        elif not reference.get("optional"):
            raise ConfigError(f"references non-existent config key: {item['key']}")


def _write(place: Path, path: str, data: bytes, mode: int | None) -> None:
    file = place / path
    if ".." in Path(path).parts or file == place:
        raise ConfigError(f"{path!r} leads out of the volume")
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_bytes(data)
    file.chmod(0o600 | ((mode or 0) & 0o700))


def mount_paths(
    container: Object, volumes: Mapping[str, Path], values: Mapping[str, str]
) -> dict[str, str]:
    """Mount path -> folder or file, for the mounts of a container."""
    paths = {}
    for mount in container.get("volumeMounts") or []:
        sub = mount.get("subPath") or expand(mount.get("subPathExpr") or "", values)
        if ".." in Path(sub).parts:
            raise ConfigError(f"subPath {sub!r} must not contain '..'")
        place = volumes[mount["name"]] / sub
        if sub and not place.exists():
            place.mkdir(parents=True, mode=0o700)
        paths[mount["mountPath"].rstrip("/")] = str(place)
    return paths


def rewrite_paths(text: str, paths: Mapping[str, str]) -> str:
    """Every mention of a path, or of something below it."""
    if not paths:
        return text
    choices = "|".join(map(re.escape, sorted(paths, key=len, reverse=True)))
    pattern = rf"(?<![\w./-])({choices})(?![\w.-])"
    return re.sub(pattern, lambda match: paths[match[1]], text)
