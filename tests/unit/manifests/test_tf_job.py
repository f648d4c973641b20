"""TFJob."""

from __future__ import annotations

import pytest

from airflow_kftrain import Replica, TFJob, build_manifest

from .reading import groups


def test_every_role_is_called_as_the_operator_calls_it() -> None:
    one = Replica()
    job = TFJob(image="i", chief=one, worker=Replica(count=2), ps=one, evaluator=one)
    assert {role: group["replicas"] for role, group in groups(build_manifest(job)).items()} == {
        "Chief": 1,
        "Worker": 2,
        "PS": 1,
        "Evaluator": 1,
    }


def test_settings_are_written_only_where_they_are_given() -> None:
    plain = build_manifest(TFJob(image="i", workers=1))
    assert set(plain["spec"]) == {"runPolicy", "tfReplicaSpecs"}


@pytest.mark.parametrize("dynamic", [True, False])
def test_false_is_a_value(dynamic: bool) -> None:
    job = TFJob(image="i", workers=1, dynamic_workers=dynamic, success_policy="AllWorkers")
    manifest = build_manifest(job)
    assert manifest["spec"]["enableDynamicWorker"] is dynamic
    assert manifest["spec"]["successPolicy"] == "AllWorkers"
