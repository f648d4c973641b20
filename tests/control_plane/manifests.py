"""CRDs, webhook configurations and runtimes, read from the sources of the operators' modules."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane.api import Manifest

# libyaml reads these files, half a megabyte each, ten times as fast, but is not available
# everywhere.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_JOB_WITH_BOTH = "kubeflow.org_mpijobs.yaml"
_WEBHOOKS = {
    "training-operator": "manifests/base/webhook",
    "jobset": "config/components/webhook",
    "trainer": "manifests/base/webhook",
    "kueue": "config/components/webhook",
}

# Kueue's webhooks for kinds that are not served here, or that it leaves alone by default.
_UNUSED = re.compile("[mv](appwrapper|deployment|leaderworkerset|pod|ray.*|statefulset)[.]kb[.]io")


def crds(modules: Mapping[str, Path], *, mpi_v2beta1: bool) -> list[Manifest]:
    """MPIJob v1 and v2beta1 are CRDs of the same name, so there can only be one of them."""
    folders = [
        (modules["training-operator"] / "manifests/base/crds", "kubeflow.org_*.yaml"),
        (modules["trainer"] / "manifests/base/crds", "trainer.kubeflow.org_*.yaml"),
        (modules["jobset"] / "config/components/crd/bases", "*.yaml"),
    ]
    files = [file for folder, pattern in folders for file in sorted(folder.glob(pattern))]
    if mpi_v2beta1:
        files = [file for file in files if file.name != _JOB_WITH_BOTH]
        files.append(modules["mpi-operator"] / "manifests/base" / _JOB_WITH_BOTH)
    return list(_read(files))


def kueue_crds(sources: Path, *, port: int, ca: bytes) -> list[Manifest]:
    """Kueue itself converts objects between the two versions of some of its kinds."""
    folder = sources / "config/components/crd"
    crds = list(_read(sorted((folder / "bases").glob("*.yaml"))))
    by_name = {crd["metadata"]["name"]: crd for crd in crds}
    (kustomization,) = _read([folder / "kustomization.yaml"])
    for patch in _read(folder / each["path"] for each in kustomization["patches"]):
        conversion = patch["spec"]["conversion"]
        _move(conversion["webhook"], port, ca)
        by_name[patch["metadata"]["name"]]["spec"]["conversion"] = conversion
    return crds


def webhooks(module: str, sources: Path, *, port: int, ca: bytes) -> list[Manifest]:
    """The configurations of a module, changed to a port of this machine instead of a Service."""
    folder = sources / _WEBHOOKS[module]
    configurations = list(_read([folder / "manifests.yaml"]))
    _kustomize(configurations, folder)
    for configuration in configurations:
        metadata = configuration["metadata"]
        if metadata["name"].endswith("-webhook-configuration"):  # they all still have the same name
            metadata["name"] = f"{module}-{metadata['name']}"
        used = [each for each in configuration["webhooks"] if not _UNUSED.fullmatch(each["name"])]
        for webhook in used:
            _move(webhook, port, ca)
        configuration["webhooks"] = used
    return configurations


def _move(webhook: Any, port: int, ca: bytes) -> None:
    path = webhook["clientConfig"]["service"]["path"]
    webhook["clientConfig"] = {
        "url": f"https://127.0.0.1:{port}{path}",
        "caBundle": base64.b64encode(ca).decode(),
    }


def runtimes(folder: Path) -> list[Manifest]:
    """The ClusterTrainingRuntimes that Trainer ships."""
    files = sorted((folder / "manifests/base/runtimes").glob("*_distributed.yaml"))
    return [found for found in _read(files) if found["kind"] == "ClusterTrainingRuntime"]


def _kustomize(configurations: list[Manifest], folder: Path) -> None:
    """Applies the patches in the folder's kustomization: names, and the objects that a webhook is
    for.

    They are JSON patches that add and replace; nothing else is supported here. Kueue's are written
    in the kustomization itself, and only for webhooks that are not used.
    """
    (kustomization,) = _read([folder / "kustomization.yaml"])
    for patch in kustomization["patches"]:
        if "path" not in patch:
            continue
        (operations,) = _read([folder / patch["path"]])
        for configuration in configurations:
            if configuration["kind"] == patch["target"]["kind"]:
                for operation in operations:
                    _set(configuration, operation["path"], operation["value"])


def _set(target: Any, pointer: str, value: Any) -> None:
    *way, last = pointer.lstrip("/").split("/")
    for step in way:
        target = target[int(step) if isinstance(target, list) else step]
    target[int(last) if isinstance(target, list) else last] = value


def _read(files: Iterable[Path]) -> Iterable[Any]:
    for file in files:
        with file.open(encoding="utf-8") as text:
            yield from (found for found in yaml.load_all(text, _LOADER) if found)
