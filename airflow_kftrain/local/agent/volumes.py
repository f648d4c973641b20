"""The volumes of a pod as folders, and paths rewritten to them.

Nothing can be mounted without rights, so a volume is a folder of the pod, and every mention of its
mount path in variables, command and arguments becomes that folder. Paths that stand inside
programs or files are not seen. Files are the user's own (0600), a Secret's among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_kftrain.local.agent.environment import SOURCES, CannotStart, Sources, downward, expand
from airflow_kftrain.local.api_client import Object

_KINDS = (*SOURCES, "emptyDir", "downwardAPI", "projected")


async def make_volumes(pod: Object, folder: Path, sources: Sources) -> dict[str, Path]:
    """A folder for each volume; raises CannotStart for what is missing or not supported."""
    made = {}
    for volume in pod["spec"].get("volumes") or []:
        kind = next((key for key in volume if key != "name"), "emptyDir")
        if kind not in _KINDS:
            # A job that reads nothing, or writes where nobody looks, is worse than one that waits.
            raise CannotStart(
                f"volume {volume['name']}: {kind} is not supported, only {', '.join(_KINDS)}"
            )
        place = made[volume["name"]] = folder / volume["name"]
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in (volume.get("projected") or {}).get("sources") or [volume]:
            await _fill(pod, part, place, sources)
    return made


async def _fill(pod: Object, part: Object, place: Path, sources: Sources) -> None:
    for kind in SOURCES:
        if reference := part.get(kind):
            content = await sources.content(kind, reference)
            for path, data, mode in _chosen(reference, content):
                _write(place, path, data, mode or reference.get("defaultMode"))
    if own := part.get("downwardAPI"):
        for item in own.get("items") or []:
            data = downward(pod, {}, item).encode()
            _write(place, item["path"], data, item.get("mode") or own.get("defaultMode"))


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
            raise CannotStart(f"references non-existent config key: {item['key']}")


def _write(place: Path, path: str, data: bytes, mode: int | None) -> None:
    file = _inside(place, path)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_bytes(data)
    file.chmod(0o600 | ((mode or 0) & 0o700))


def _inside(volume: Path, path: str) -> Path:
    """Raises CannotStart: the API server does not see what is made of variables."""
    if ".." in Path(path).parts or Path(path).is_absolute():
        raise CannotStart(f"{path!r} leads out of the volume")
    return volume / path


def mount_paths(
    container: Object, volumes: Mapping[str, Path], values: Mapping[str, str]
) -> dict[str, str]:
    """Mount path -> folder or file, for the mounts of a container; raises CannotStart."""
    paths = {}
    for mount in container.get("volumeMounts") or []:
        part = mount.get("subPath") or expand(mount.get("subPathExpr") or "", values)
        place = _inside(volumes[mount["name"]], part)
        if not place.exists():
            place.mkdir(parents=True, mode=0o700)
        # A relative one is below the root.
        paths[f"/{mount['mountPath'].strip('/')}"] = str(place)
    return paths


def rewrite_paths(text: str, paths: Mapping[str, str]) -> str:
    """Every mention of a path, or of something below it."""
    if not paths:
        return text
    choices = "|".join(map(re.escape, sorted(paths, key=len, reverse=True)))
    pattern = rf"(?<![\w./-])({choices})(?![\w.-])"
    return re.sub(pattern, lambda match: paths[match[1]], text)
