"""CRDs, webhook configurations and runtimes, read from the sources of the operators' modules."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane.api import Manifest

# libyaml reads these files, half a megabyte each, ten times as fast; it is not everywhere.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_JOB_WITH_BOTH = "kubeflow.org_mpijobs.yaml"
_WEBHOOKS = {
    "training-operator": "manifests/base/webhook",
    "jobset": "config/components/webhook",
    "trainer": "manifests/base/webhook",
}


def crds(modules: Mapping[str, Path], *, mpi_v2beta1: bool) -> list[Manifest]:
    """MPIJob v1 and v2beta1 are CRDs of one name, so it is the one or the other."""
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


def webhooks(module: str, sources: Path, *, port: int, ca: bytes) -> list[Manifest]:
    """The configurations of a module, pointed at a port of this machine instead of a Service."""
    folder = sources / _WEBHOOKS[module]
    configurations = list(_read([folder / "manifests.yaml"]))
    _kustomize(configurations, folder)
    for configuration in configurations:
        metadata = configuration["metadata"]
        if metadata["name"].endswith("-webhook-configuration"):  # still what all of them are called
            metadata["name"] = f"{module}-{metadata['name']}"
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{port}{path}",
                "caBundle": base64.b64encode(ca).decode(),
            }
    return configurations


def runtimes(folder: Path) -> list[Manifest]:
    """The ClusterTrainingRuntimes that Trainer ships."""
    files = sorted((folder / "manifests/base/runtimes").glob("*_distributed.yaml"))
    return [found for found in _read(files) if found["kind"] == "ClusterTrainingRuntime"]


def _kustomize(configurations: list[Manifest], folder: Path) -> None:
    """The patches of the folder's kustomization: names, and which objects a webhook is for.

    They are JSON patches that add and replace, all that is understood here.
    """
    (kustomization,) = _read([folder / "kustomization.yaml"])
    for patch in kustomization["patches"]:
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
