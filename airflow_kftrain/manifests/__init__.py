"""From a spec to the custom resource: pure, but for the files that a spec names.

Built and raw manifests go the same way: held to their shape, completed with our defaults, checked
against the rules, then marked with their owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import JobKind, find_kind
from airflow_kftrain.manifests.author_fields import author_field
from airflow_kftrain.manifests.defaults import complete
from airflow_kftrain.manifests.identity import Owner, attach
from airflow_kftrain.manifests.loading import is_path, load_files, load_yaml
from airflow_kftrain.manifests.mpi_job import build_mpi_job
from airflow_kftrain.manifests.overwritten import overwritten_env, warning
from airflow_kftrain.manifests.places import pod_templates, put
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

if TYPE_CHECKING:
    from airflow_kftrain.function_payload.carrier import Payload

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
    spec: JobSpec | RawManifest,
    *,
    owner: Owner | None = None,
    namespace: str | None = None,
    folder: str = ".",
    grace: Any = None,
) -> dict[str, Any]:
    """The custom resource for a spec, ready to be created. Raises InvalidSpec.

    With an `owner` it gets its name, labels, annotations and variables; without, it has the name
    that the author gave, if any. The spec is not changed. `folder` is where the files of its
    `code` are, `grace` how many seconds its pods have to end.
    """
    loaded = load_files(spec)
    payload = _payload(loaded, folder)
    kind, manifest = _compose(loaded, payload)
    if namespace is not None:
        manifest["metadata"]["namespace"] = object_name("namespace", namespace)
    if grace is not None:
        for template in pod_templates(kind, manifest):
            put(template, "spec.terminationGracePeriodSeconds", grace)
    if owner is not None:
        attach(kind, manifest, owner)
    if payload is not None:
        from airflow_kftrain.manifests.code import fill_in

        # Last: until then its digest stands there, which does not hang on how it is compressed.
        fill_in(kind, manifest, payload)
    return manifest


def check_given(
    spec_type: type[JobSpec] | type[RawManifest], given: Mapping[str, Any]
) -> list[str]:
    """Everything that can be checked before templates are rendered and files can be read: at
    parse. Returns what to warn the author of. Raises InvalidSpec."""
    spec = spec_type(**mask(dict(given)))
    if isinstance(spec, RawManifest):
        source = spec.manifest
        if source is LATER or is_path(source):
            return []
        manifest = load_yaml("manifest", source)
        if LATER in (manifest.get("apiVersion"), manifest.get("kind"), manifest.get("spec")):
            return []
        spec = RawManifest(manifest, spec.code)
    kind, manifest = _compose(spec, LATER)
    warnings = (
        warning(kind, _in_authors_words(kind, spec, field), name)
        for field, name in overwritten_env(kind, manifest)
    )
    return list(dict.fromkeys(warnings))


def _in_authors_words(kind: JobKind, spec: JobSpec | RawManifest, field: str) -> str:
    return author_field(kind, spec, field) if isinstance(spec, JobSpec) else field


def _payload(spec: JobSpec | RawManifest, folder: str) -> Payload | None:
    function = None if isinstance(spec, RawManifest) else spec.function
    if spec.code is None and function is None:
        return None
    from airflow_kftrain.function_payload.carrier import make_payload

    # Ranks of MPI are in other pods than the runner that waits for them.
    frames = function is not None and (isinstance(spec, MPIJob) or _has_mpirun(spec))
    return make_payload(spec.code, function, folder, frames=frames)


def _has_mpirun(spec: JobSpec | RawManifest) -> bool:
    return getattr(spec, "mpirun", None) is not None


def _compose(spec: JobSpec | RawManifest, payload: Any) -> tuple[JobKind, dict[str, Any]]:
    if isinstance(spec, RawManifest):
        return _normalise(spec.manifest, spec, payload)
    job = spec
    if spec.function is not None:
        from airflow_kftrain.manifests.code import as_command

        job = as_command(spec)
    built = _BUILDERS[type(job)](job)
    kind = find_kind(built["apiVersion"], built["kind"])
    try:
        return _normalise(built, spec, payload)
    except InvalidSpec as error:
        raise error.at(author_field(kind, job, error.field)) from None


def _normalise(
    raw: Any, spec: JobSpec | RawManifest, payload: Any
) -> tuple[JobKind, dict[str, Any]]:
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
    if spec.code is None and getattr(spec, "function", None) is None:
        complete(kind, manifest)
    else:
        _complete_with_code(kind, manifest, spec, payload)
    check_rules(kind, manifest)
    return kind, manifest


def _complete_with_code(
    kind: JobKind, manifest: dict[str, Any], spec: JobSpec | RawManifest, payload: Any
) -> None:
    from airflow_kftrain.manifests.code import carry, keep_pods, refuse_working_dir

    calls = getattr(spec, "function", None) is not None
    if calls:
        keep_pods(kind, manifest)
    elif getattr(spec.code, "fatal", None) is not None:
        raise InvalidSpec(
            "code.fatal",
            "is only for functions: the exceptions of a command are not known",
            advice="Omit it.",
        )
    if isinstance(spec, JobSpec):
        refuse_working_dir(spec)
    complete(kind, manifest)
    carry(kind, manifest, spec.code, payload, by_runtime=calls and not _has_mpirun(spec))
