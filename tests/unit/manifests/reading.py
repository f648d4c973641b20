"""Shortcuts to parts of a manifest."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]


def groups(manifest: Manifest) -> dict[str, Any]:
    """The replica groups by role."""
    (key,) = (key for key in manifest["spec"] if key.endswith("ReplicaSpecs"))
    found: dict[str, Any] = manifest["spec"][key]
    return found


def pod(manifest: Manifest, role: str = "Worker") -> dict[str, Any]:
    """The pod spec of a role, or of the one template of a Job."""
    spec = manifest["spec"]
    template = spec["template"] if "template" in spec else groups(manifest)[role]["template"]
    found: dict[str, Any] = template["spec"]
    return found


def main(manifest: Manifest, role: str = "Worker") -> dict[str, Any]:
    """The main container of a role."""
    found: dict[str, Any] = pod(manifest, role)["containers"][0]
    return found


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container.get("env", [])}


def annotations(manifest: Manifest, role: str = "Worker") -> dict[str, Any]:
    found: dict[str, Any] = groups(manifest)[role]["template"]["metadata"]["annotations"]
    return found
