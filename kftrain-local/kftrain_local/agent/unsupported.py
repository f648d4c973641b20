"""Fields of a pod that are ignored, since a process on this machine cannot have them. Pure."""

from __future__ import annotations

from kftrain_local.api_client import Object

_OF_POD = ("hostNetwork", "hostPID", "hostIPC", "hostAliases", "dnsConfig", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_OF_CONTAINER = (*_PROBES, "lifecycle", "restartPolicyRules", "volumeDevices", "tty")
_ANY = "is ignored: a process on this machine cannot have it"
_OF_PORT = "ports below 1024 belong to this machine; the command may fail to open it"
_WORKERS = "all workers share one address, so each of them has another port"
_SOURCES = {"configMap", "secret", "downwardAPI"}


def unsupported(pod: Object) -> dict[str, str]:
    """Field -> why it is ignored."""
    spec = pod["spec"]
    found = {f"spec.{field}": _ANY for field in _OF_POD if spec.get(field)}
    for number, volume in enumerate(spec.get("volumes") or []):
        # What the admission of ServiceAccounts adds to every pod was not requested by its author.
        if "projected" in volume and not volume["name"].startswith("kube-api-access-"):
            for place, source in enumerate(volume["projected"].get("sources") or []):
                if not _SOURCES & set(source):
                    field = f"projected.sources[{place}].{next(iter(source), '')}"
                    found[f"spec.volumes[{number}].{field}"] = _ANY
    for group in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(group) or []):
            found |= _of_container(f"spec.{group}[{number}]", container)
    return found


def _of_container(where: str, container: Object) -> dict[str, str]:
    found = {f"{where}.{field}": _ANY for field in _OF_CONTAINER if container.get(field)}
    for number, port in enumerate(container.get("ports") or []):
        if port.get("containerPort", 1024) < 1024:
            found[f"{where}.ports[{number}].containerPort"] = _OF_PORT
    if any(entry["name"] == "WORKER_ADDRS" for entry in container.get("env") or []):
        found[f"{where}.env[WORKER_ADDRS]"] = _WORKERS
    return found
