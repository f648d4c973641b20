"""The real API servers and webhooks accept every golden manifest, to the last field."""

from __future__ import annotations

import copy

import pytest

from tests.control_plane import ControlPlane
from tests.control_plane.api import Api, Manifest
from tests.control_plane.launcher import MPI_OPERATOR, TRAINING_OPERATOR
from tests.unit.manifests.golden_specs import OWNED, SPECS
from tests.unit.manifests.test_golden import golden_manifest


def golden_and_profile() -> list[tuple[str, str]]:
    """Each on the profiles that serve its kind: MPIJob on one, the others on both."""
    pairs = []
    for name in (*SPECS, *OWNED):
        manifest = golden_manifest(name)
        only = {
            ("MPIJob", "kubeflow.org/v1"): [TRAINING_OPERATOR],
            ("MPIJob", "kubeflow.org/v2beta1"): [MPI_OPERATOR],
        }
        kind = (manifest["kind"], manifest["apiVersion"])
        pairs += [(name, profile) for profile in only.get(kind, [TRAINING_OPERATOR, MPI_OPERATOR])]
    return pairs


# Next to `name`, which is not indirect, pytest would give `plane` the scope of a function: a
# control plane for each test.
@pytest.mark.parametrize(
    ("name", "plane"), golden_and_profile(), indirect=["plane"], scope="session"
)
def test_golden_manifest_is_accepted_to_the_last_field(
    name: str, plane: ControlPlane, namespace: str
) -> None:
    manifest = copy.deepcopy(golden_manifest(name))
    manifest["metadata"].setdefault("name", "golden")
    manifest["metadata"]["namespace"] = namespace
    if manifest["spec"].get("runtimeRef", {}).get("kind") == "TrainingRuntime":
        create_runtime_with_initializers(plane.api(), manifest, namespace)

    created = plane.api().create(manifest, fieldValidation="Strict")

    assert (created.code, created.message if not created.ok else "") == (201, "")
    assert keeps(created.object["spec"], manifest["spec"]) == []


def create_runtime_with_initializers(api: Api, job: Manifest, namespace: str) -> None:
    """Creates the runtime to which the golden TrainJob refers: that of torch, with two more
    steps."""
    path = api.path("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime")
    runtime = api.call("GET", f"{path}/torch-distributed").object
    runtime["kind"] = "TrainingRuntime"
    runtime["metadata"] = {
        "name": job["spec"]["runtimeRef"]["name"],
        "namespace": namespace,
        "labels": runtime["metadata"]["labels"],
    }
    steps = [initializer_step(f"{what}-initializer") for what in ("dataset", "model")]
    runtime["spec"]["template"]["spec"]["replicatedJobs"][:0] = steps
    created = api.create(runtime)
    assert created.ok, created.message


def initializer_step(name: str) -> Manifest:
    mount = {"name": "initializer", "mountPath": "/workspace"}
    pod = {
        "containers": [{"name": name, "image": "initializer:1", "volumeMounts": [mount]}],
        "volumes": [{"name": "initializer", "emptyDir": {}}],
    }
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": name}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}
    return {"name": name, "template": template}


def keeps(kept: object, sent: object, place: str = "spec") -> list[str]:
    """The fields that were sent and did not come back: the server may add fields, but not drop
    any."""
    if isinstance(sent, dict):
        if not isinstance(kept, dict):
            return [place]
        return [
            lost
            for key, value in sent.items()
            for lost in keeps(kept.get(key), value, f"{place}.{key}")
        ]
    if isinstance(sent, list):
        if not isinstance(kept, list) or len(kept) != len(sent):
            return [place]
        return [
            lost
            for number, value in enumerate(sent)
            for lost in keeps(kept[number], value, f"{place}[{number}]")
        ]
    return [] if kept == sent else [f"{place}: {sent!r} became {kept!r}"]
