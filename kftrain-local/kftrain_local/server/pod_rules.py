"""The defaults and rejections of Kubernetes for pods, as far as clients see them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kftrain_local.agent.volumes import KINDS, kind_of
from kftrain_local.server.refusals import invalid, unsupported_value
from kftrain_local.server.resources import PODS

Object = dict[str, Any]

_POLICIES = ("Always", "OnFailure", "Never")
_ABSENT_NODE = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_DEFAULTS_OF_PODS: Object = {
    "enableServiceLinks": True,
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "nodeName")
_COUNTED = ("cpu", "memory")
_VARIABLE = re.compile("[ -<>-~]+")
_VARIABLE_WORDS = (
    "a valid environment variable name must consist only of printable ASCII characters other than "
    "'='"
)


def filled(found: Object, *path: str) -> Object:
    """The mapping at the end of the path: Go's structs exist even if nobody has written them."""
    for key in path:
        found = found.setdefault(key, {})
    return found


def admit_pod(pod: Object, old: Object | None) -> Object:
    """With defaults; `old` is the object before. Raises Refusal."""
    pod = {**pod, "spec": _pod_spec(filled(pod, "spec"))}
    if faults := [*pod_faults(pod["spec"], "spec")]:
        raise invalid(PODS, pod["metadata"]["name"], *faults)
    if old is None:
        status = {"phase": "Pending", "qosClass": _quality(pod["spec"])}
        return {**pod, "status": status}
    if _fixed(pod["spec"]) != _fixed(old["spec"]):
        text = (
            "spec: Forbidden: pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
            "tolerations)"
        )
        raise invalid(PODS, pod["metadata"]["name"], text)
    return {**pod, "status": _without_empty(pod.get("status") or {})}


def template_spec(spec: Object) -> Object:
    """With the defaults that a pod template gets, too."""
    filled = {**_DEFAULTS, **spec}
    for key, fill in (
        ("initContainers", _container),
        ("containers", _container),
        ("volumes", _volume),
    ):
        if filled.get(key):
            filled[key] = [*map(fill, filled[key])]
    return filled


def _volume(volume: Object) -> Object:
    files = ("configMap", "secret", "downwardAPI", "projected")
    filled = {kind: {"defaultMode": 0o644, **volume[kind]} for kind in files if volume.get(kind)}
    return {**volume, **filled}


def _pod_spec(spec: Object) -> Object:
    filled = {**_DEFAULTS_OF_PODS, **template_spec(spec)}
    for key in ("initContainers", "containers"):
        if key in filled:
            filled[key] = [
                {**each, "resources": _resources(each["resources"])} for each in filled[key]
            ]
    tolerations = [*(filled.get("tolerations") or ())]
    for what in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{what}"
        if all(each.get("key") != key for each in tolerations):
            tolerations.append({"key": key, **_ABSENT_NODE})
    return {**filled, "tolerations": tolerations}


def _container(container: Object) -> Object:
    last = str(container.get("image", "")).rpartition("/")[2]
    is_fixed = "@" in last or (":" in last and not last.endswith(":latest"))
    defaults = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent" if is_fixed else "Always",
    }
    filled = {**defaults, **container}
    if container.get("ports"):
        filled["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    return filled


def _resources(resources: Object) -> Object:
    """The limits are also the requests, unless these are set."""
    texts = {
        word: {key: str(value) for key, value in (resources.get(word) or {}).items()}
        for word in ("limits", "requests")
    }
    texts["requests"] = {**texts["limits"], **texts["requests"]}
    return {**resources, **{word: amounts for word, amounts in texts.items() if amounts}}


def _quality(spec: Object) -> str:
    asked = [
        (
            each["resources"].get("requests", {}).get(key),
            each["resources"].get("limits", {}).get(key),
        )
        for each in (*spec["containers"], *(spec.get("initContainers") or ()))
        for key in _COUNTED
    ]
    if all(pair == (None, None) for pair in asked):
        return "BestEffort"
    return "Guaranteed" if all(request == limit for request, limit in asked) else "Burstable"


def pod_faults(spec: Object, path: str) -> Iterator[str]:
    if not spec.get("containers"):
        yield f"{path}.containers: Required value"
    if (policy := spec["restartPolicy"]) not in _POLICIES:
        yield unsupported_value(f"{path}.restartPolicy", policy, _POLICIES)
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    for key in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(key) or ()):
            yield from _container_faults(container, volumes, f"{path}.{key}[{number}]")


def _container_faults(container: Object, volumes: set[Any], path: str) -> Iterator[str]:
    for key in ("name", "image"):
        if not container.get(key):
            yield f"{path}.{key}: Required value"
    for number, variable in enumerate(container.get("env") or ()):
        name = variable.get("name", "")
        if not name:
            yield f"{path}.env[{number}].name: Required value"
        elif not _VARIABLE.fullmatch(name):
            yield f"{path}.env[{number}].name: Invalid value: {json.dumps(name)}: {_VARIABLE_WORDS}"
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield f'{path}.volumeMounts[{number}].name: Not found: "{mount.get("name")}"'


def volume_faults(holder: Any, path: str) -> Iterator[str]:
    """The volumes that are not supported, in all pod templates of a manifest. Authors see that a
    job is rejected, but easily miss the event of a pod that waits."""
    items = holder.items() if isinstance(holder, dict) else ()
    for key, item in items:
        for number, each in enumerate(item if isinstance(item, list) else ()):
            place = f"{path}.{key}[{number}]"
            if key == "volumes" and isinstance(each, dict) and kind_of(each) not in KINDS:
                text = f"the embedded cluster only supports {', '.join(KINDS)}"
                yield f"{place}.{kind_of(each)}: Forbidden: {text}"
            yield from volume_faults(each, place)
        yield from volume_faults(item, f"{path}.{key}")


def _fixed(spec: Object) -> Object:
    """Fields that nobody may change."""
    kept = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    for key in ("initContainers", "containers"):
        kept[key] = [{**each, "image": ""} for each in kept.get(key) or ()]
    return kept


def _without_empty(value: Any) -> Any:
    """Drops empty texts of a status, except those that clients expect."""
    if isinstance(value, dict):
        return {
            key: _without_empty(item)
            for key, item in value.items()
            if item not in ("", None) or key in ("image", "imageID")
        }
    return [_without_empty(item) for item in value] if isinstance(value, list) else value
