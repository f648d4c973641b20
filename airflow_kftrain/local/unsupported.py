"""Fields of a pod that cannot be honoured for processes of this machine. Pure.

What changes nothing about the computation is told and left out. A volume that cannot be had is
refused: a job that reads nothing, or writes where nobody looks, is worse than one that waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]

_VOLUMES = ("configMap", "secret", "emptyDir", "downwardAPI", "projected")
_NO_PROBE = "probes are not run: a container counts as ready as soon as it runs"
_OF_CONTAINER = {
    "livenessProbe": _NO_PROBE,
    "readinessProbe": _NO_PROBE,
    "startupProbe": _NO_PROBE,
    "lifecycle": "lifecycle hooks are not run",
    "volumeDevices": "block devices are not there",
    "tty": "there is no terminal",
}
_OF_POD = {
    "hostNetwork": "every pod shares the network of this machine",
    "hostPID": "every pod sees the processes of this machine",
    "hostIPC": "every pod shares the memory segments of this machine",
    "hostAliases": "names are not added to this machine",
    "dnsConfig": "names are resolved as on this machine",
    "ephemeralContainers": "debug containers are not started",
}


class Unsupported(NamedTuple):
    field: str
    text: str
    refused: bool = False
    """The pod cannot run with it; otherwise it runs without."""


def unsupported(pod: Object) -> list[Unsupported]:
    spec = pod["spec"]
    found = [
        Unsupported(f"spec.{field}", text) for field, text in _OF_POD.items() if spec.get(field)
    ]
    for index, volume in enumerate(spec.get("volumes") or []):
        found += _of_volume(f"spec.volumes[{index}]", volume)
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            found += _of_container(f"spec.{group}[{index}]", container)
    return found


def _of_volume(where: str, volume: Object) -> Iterator[Unsupported]:
    kind = next((key for key in volume if key != "name"), "emptyDir")
    if kind not in _VOLUMES:
        known = ", ".join(_VOLUMES)
        yield Unsupported(f"{where}.{kind}", f"only {known} volumes can be had here", True)
    # What the ServiceAccount admission adds to every pod is nothing that its author asked for.
    if kind == "projected" and not volume["name"].startswith("kube-api-access-"):
        for number, source in enumerate(volume["projected"].get("sources") or []):
            if not {"configMap", "secret", "downwardAPI"} & set(source):
                field = f"{where}.projected.sources[{number}].{next(iter(source), '')}"
                yield Unsupported(field, "is left out of the volume")


def _of_container(where: str, container: Object) -> Iterator[Unsupported]:
    for field, text in _OF_CONTAINER.items():
        if container.get(field):
            yield Unsupported(f"{where}.{field}", text)
    for number, port in enumerate(container.get("ports") or []):
        if port.get("containerPort", 1024) < 1024:
            text = "ports below 1024 belong to this machine; the command may fail to open it"
            yield Unsupported(f"{where}.ports[{number}].containerPort", text)
    if any(entry["name"] == "WORKER_ADDRS" for entry in container.get("env") or []):
        text = "several workers cannot share one port on one address: each has one of its own"
        yield Unsupported(f"{where}.env[WORKER_ADDRS]", text)
