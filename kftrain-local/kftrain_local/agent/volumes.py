"""The volumes of a pod as folders, and paths rewritten to them.

Mounting needs root, so a volume is a folder of the pod, and its mount path is replaced by that
folder in variables, command and arguments. Paths inside programs or files are not replaced. All
files are private to the user (0600), including those of Secrets.

A hostPath is the path itself, and a claim is a folder that outlives the pod. Nothing keeps a pod
from writing there, not even `readOnly`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kftrain_local.agent.environment import SOURCES, CannotStart, Sources, downward, expand
from kftrain_local.api_client import Object

HOST_PATH = "hostPath"
CLAIM = "persistentVolumeClaim"
KINDS = (*SOURCES, "emptyDir", "downwardAPI", "projected", HOST_PATH, CLAIM)

_TYPES: Mapping[str, tuple[str, Callable[[Path], bool]]] = {
    "Directory": ("a directory", Path.is_dir),
    "File": ("a file", Path.is_file),
    "Socket": ("a socket file", Path.is_socket),
    "CharDevice": ("a character device", Path.is_char_device),
    "BlockDevice": ("a block device", Path.is_block_device),
}
"""What the type of a hostPath requires, and the check."""


def kind_of(volume: Object) -> str:
    return next((key for key in volume if key != "name"), "emptyDir")


async def make_volumes(
    pod: Object, folder: Path, sources: Sources, claims: Callable[[str], Path]
) -> dict[str, Path]:
    """A folder for each volume; `claims` returns that of a PersistentVolumeClaim.

    Raises CannotStart for a volume that is missing or not supported.
    """
    made = {}
    for volume in pod["spec"].get("volumes") or []:
        name = volume["name"]
        try:
            made[name] = await _make(pod, volume, folder / name, sources, claims)
        except (CannotStart, OSError) as error:
            # In the words of a kubelet, with its blank before the colon.
            what = f'MountVolume.SetUp failed for volume "{name}"'
            raise CannotStart(f"{what} : {error}") from error
    return made


async def _make(
    pod: Object, volume: Object, place: Path, sources: Sources, claims: Callable[[str], Path]
) -> Path:
    kind = kind_of(volume)
    if kind not in KINDS:
        # A job that reads nothing, or writes where nobody looks, is worse than one that waits.
        raise CannotStart(f"{kind} is not supported, only {', '.join(KINDS)}")
    if kind == HOST_PATH:
        return _host_path(volume[HOST_PATH])
    if kind == CLAIM:
        place = claims(volume[CLAIM]["claimName"])
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if kind != CLAIM:
        for part in (volume.get("projected") or {}).get("sources") or [volume]:
            await _fill(pod, part, place, sources)
    return place


def _host_path(source: Object) -> Path:
    """The path itself. It is created if its type is empty, as container runtimes do, or says so."""
    path, wanted = Path(source["path"]), source.get("type") or ""
    if wanted == "FileOrCreate" and not path.exists():
        path.touch(0o600)
    if wanted in ("", "DirectoryOrCreate") and not path.exists():
        path.mkdir(parents=True, mode=0o700)
    what, is_it = _TYPES.get(wanted.removesuffix("OrCreate"), ("", Path.exists))
    if not is_it(path):
        raise CannotStart(f"hostPath type check failed: {path} is not {what}")
    return path


async def _fill(pod: Object, part: Object, place: Path, sources: Sources) -> None:
    for kind in SOURCES:
        if reference := part.get(kind):
            content = await sources.content(kind, reference)
            for path, data, mode in _chosen(kind, reference, content):
                _write(place, path, data, mode or reference.get("defaultMode"))
    if own := part.get("downwardAPI"):
        for item in own.get("items") or []:
            data = downward(pod, {}, item).encode()
            _write(place, item["path"], data, item.get("mode") or own.get("defaultMode"))


def _chosen(
    kind: str, reference: Object, content: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes, int | None]]:
    """(path, data, mode): all keys, or the listed items."""
    if "items" not in reference:
        yield from ((key, data, None) for key, data in content.items())
        return
    for item in reference["items"]:
        if item["key"] in content:
            yield item["path"], content[item["key"]], item.get("mode")
        elif not reference.get("optional"):
            what = "secret" if kind == "secret" else "config"
            raise CannotStart(f"references non-existent {what} key: {item['key']}")


def _write(place: Path, path: str, data: bytes, mode: int | None) -> None:
    file = _inside(place, path)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_bytes(data)
    file.chmod(0o600 | ((mode or 0) & 0o700))


def _inside(volume: Path, path: str) -> Path:
    """Raises CannotStart: the API server does not see the values of variables."""
    if ".." in Path(path).parts or Path(path).is_absolute():
        raise CannotStart(f"{path!r} leads out of the volume")
    return volume / path


def mount_paths(
    container: Object, volumes: Mapping[str, Path], values: Mapping[str, str]
) -> dict[str, str]:
    """Mount path -> folder or file, for the mounts of a container. Raises CannotStart."""
    paths = {}
    for mount in container.get("volumeMounts") or []:
        part = mount.get("subPath") or expand(mount.get("subPathExpr") or "", values)
        place = _inside(volumes[mount["name"]], part)
        if not place.exists():
            place.mkdir(parents=True, mode=0o700)
        # A relative path is relative to the root.
        paths[f"/{mount['mountPath'].strip('/')}"] = str(place)
    return paths


def rewrite_paths(text: str, paths: Mapping[str, str]) -> str:
    """Replaces a path, and paths below it, everywhere in the text."""
    if not paths:
        return text
    choices = "|".join(map(re.escape, sorted(paths, key=len, reverse=True)))
    pattern = rf"(?<![\w./-])({choices})(?![\w.-])"
    return re.sub(pattern, lambda match: paths[match[1]], text)
