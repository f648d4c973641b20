"""From a spec to the custom resource: pure, but for the files that a spec names.

Built and raw manifests go the same way: held to their shape, completed with our defaults, checked
against the rules, then marked with their owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import JobKind, find_kind
from airflow_kftrain.manifests.author_fields import author_field
from airflow_kftrain.manifests.defaults import complete
from airflow_kftrain.manifests.identity import Owner, attach
from airflow_kftrain.manifests.loading import is_path, load_files, load_yaml
from airflow_kftrain.manifests.mpi_job import build_mpi_job
from airflow_kftrain.manifests.pytorch_job import build_pytorch_job
from airflow_kftrain.manifests.rules import check_rules
from airflow_kftrain.manifests.tf_job import build_tf_job
from airflow_kftrain.manifests.train_job import build_train_job
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER, mask
from airflow_kftrain.specs.mpi_job import HorovodJob, MPIJob
from airflow_kftrain.specs.pytorch_job import PyTorchJob
from airflow_kftrain.specs.raw_manifest import RawManifest
from airflow_kftrain.specs.shapes import conform, conform_fields
from airflow_kftrain.specs.tf_job import TFJob
from airflow_kftrain.specs.train_job import TrainJob
from airflow_kftrain.specs.values import object_name

_BUILDERS: dict[type[JobSpec], Callable[[Any], dict[str, Any]]] = {
    PyTorchJob: build_pytorch_job,
    TFJob: build_tf_job,
    MPIJob: build_mpi_job,
    HorovodJob: build_mpi_job,
    TrainJob: build_train_job,
}

# What a server writes into metadata: there in a manifest that was read from a cluster.
_SERVER_METADATA = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    }
)


def build_manifest(
    spec: JobSpec | RawManifest, *, owner: Owner | None = None, namespace: str | None = None
) -> dict[str, Any]:
    """The custom resource for a spec, ready to be created. Raises InvalidSpec.

    With an `owner` it gets its name, labels, annotations and variables; without, it has the name
    that the author gave, if any. The spec is not changed.
    """
    kind, manifest = _compose(load_files(spec))
    if namespace is not None:
        manifest["metadata"]["namespace"] = object_name("namespace", namespace)
    if owner is not None:
        attach(kind, manifest, owner)
    return manifest


def check_given(spec_type: type[JobSpec] | type[RawManifest], given: Mapping[str, Any]) -> None:
    """Everything that can be checked before templates are rendered and files can be read: at
    parse. Raises InvalidSpec."""
    spec = spec_type(**mask(dict(given)))
    if isinstance(spec, RawManifest):
        source = spec.manifest
        if source is LATER or is_path(source):
            return
        manifest = load_yaml("manifest", source)
        if LATER in (manifest.get("apiVersion"), manifest.get("kind"), manifest.get("spec")):
            return
        spec = RawManifest(manifest)
    _compose(spec)


def _compose(spec: JobSpec | RawManifest) -> tuple[JobKind, dict[str, Any]]:
    if isinstance(spec, RawManifest):
        return _normalise(spec.manifest)
    built = _BUILDERS[type(spec)](spec)
    kind = find_kind(built["apiVersion"], built["kind"])
    try:
        return _normalise(built)
    except InvalidSpec as error:
        raise error.at(author_field(kind, spec, error.field)) from None


def _normalise(raw: Any) -> tuple[JobKind, dict[str, Any]]:
    """A manifest of our own, whole and checked."""
    kind = find_kind(raw.get("apiVersion"), raw.get("kind"))
    metadata = raw.get("metadata")
    if metadata is None:
        metadata = {}
    elif isinstance(metadata, Mapping):
        metadata = {key: item for key, item in metadata.items() if key not in _SERVER_METADATA}
    top = {key: item for key, item in raw.items() if key not in ("metadata", "spec", "status")}
    manifest = {
        **conform_fields(top, "apiVersion:str kind:str metadata:any spec:any", ""),
        "metadata": conform(metadata, "ObjectMeta", "metadata"),
        "spec": conform_fields(raw.get("spec"), kind.spec_fields, "spec"),
    }
    complete(kind, manifest)
    check_rules(kind, manifest)
    return kind, manifest
