"""The job specs: the two forms, their values, and that they cannot be changed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from airflow_kftrain import (
    Elastic,
    HorovodJob,
    MPIJob,
    PyTorchJob,
    RawManifest,
    Replica,
    Runtime,
    TFJob,
    TrainJob,
)
from airflow_kftrain.specs.later import LATER


def counts(job: Any) -> dict[str, Any]:
    return {
        role: replica if replica is LATER else replica.count
        for role, replica in job.replicas.items()
    }


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (PyTorchJob(workers=4), {"Master": 1, "Worker": 4}),
        (PyTorchJob(workers="4"), {"Master": 1, "Worker": 4}),
        (PyTorchJob(workers=0), {"Master": 1, "Worker": 0}),
        (PyTorchJob(master=Replica()), {"Master": 1, "Worker": 0}),
        (PyTorchJob(worker=Replica()), {"Master": 1, "Worker": 1}),
        (PyTorchJob(worker=Replica(count=3)), {"Master": 1, "Worker": 3}),
        (PyTorchJob(elastic=Elastic(nodes="2:5")), {"Worker": 5}),
        (PyTorchJob(elastic=Elastic(nodes=2), worker=Replica()), {"Worker": 2}),
        (PyTorchJob(elastic=LATER), {"Worker": LATER}),
        (PyTorchJob(workers=LATER), {"Master": 1, "Worker": LATER}),
        (PyTorchJob(master=LATER, worker=LATER), {"Master": LATER, "Worker": LATER}),
        (TFJob(workers=2), {"Worker": 2}),
        (TFJob(chief=Replica(), ps=Replica(count=2)), {"Chief": 1, "PS": 2}),
        (TFJob(worker=Replica(), evaluator=Replica()), {"Worker": 1, "Evaluator": 1}),
        (MPIJob(workers=2), {"Launcher": 1, "Worker": 2}),
        (MPIJob(worker=Replica()), {"Launcher": 1, "Worker": 1}),
        (MPIJob(launcher=Replica(), worker=Replica(count=4)), {"Launcher": 1, "Worker": 4}),
    ],
)
def test_every_form_says_how_many_there_are(job: Any, expected: dict[str, Any]) -> None:
    assert counts(job) == expected


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        (MPIJob(workers=4), 4),
        (MPIJob(workers="4", slots_per_worker="2"), 8),
        (HorovodJob(worker=Replica(count=3), slots_per_worker=8), 24),
        (MPIJob(workers=LATER), LATER),
        (MPIJob(worker=LATER), LATER),
        (MPIJob(workers=2, slots_per_worker=LATER), LATER),
    ],
)
def test_the_workers_take_as_many_ranks_as_they_have_slots(job: MPIJob, ranks: Any) -> None:
    assert job.ranks == ranks


def test_a_runtime_may_be_given_by_name() -> None:
    assert TrainJob(runtime="torch").runtime == Runtime("torch", kind="ClusterTrainingRuntime")


def test_a_spec_cannot_be_changed() -> None:
    job = PyTorchJob(workers=1)
    with pytest.raises(FrozenInstanceError):
        job.workers = 2  # type: ignore[misc]


def test_equal_specs_are_equal() -> None:
    assert PyTorchJob(workers="2", env={"A": 1}) == PyTorchJob(workers=2, env={"A": "1"})


@pytest.mark.parametrize("field", ["image", "command", "env", "pod", "workers"])
def test_specs_take_words_only_by_their_names(field: str) -> None:
    with pytest.raises(TypeError, match="positional"):
        PyTorchJob(field)  # type: ignore[misc]


def test_a_manifest_may_be_any_object_that_stands_for_a_mapping() -> None:
    class ModelObject:
        openapi_types = {"kind": "str"}
        attribute_map = {"kind": "kind"}
        kind = "PyTorchJob"

    assert RawManifest(ModelObject()).manifest == {"kind": "PyTorchJob"}  # type: ignore[arg-type]
