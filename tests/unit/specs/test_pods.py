"""Merging the pod of a replica with that of the job."""

from __future__ import annotations

import pytest

from airflow_kftrain import Pod
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.pods import check_pod, merge_pods


def test_what_a_replica_leaves_out_comes_from_the_job() -> None:
    job = Pod(labels={"a": "1"}, service_account="trainer", shared_memory=True)
    replica = Pod(labels={"b": "2"}, shared_memory=False)
    assert merge_pods(job, replica) == Pod(
        labels={"b": "2"}, service_account="trainer", shared_memory=False
    )


def test_an_empty_list_is_a_value() -> None:
    assert merge_pods(Pod(sidecars=[{"name": "a"}]), Pod(sidecars=[])) == Pod(sidecars=[])


@pytest.mark.parametrize(
    ("job", "replica", "pod"),
    [
        (None, None, Pod()),
        (Pod(service_account="a"), None, Pod(service_account="a")),
        (None, Pod(service_account="a"), Pod(service_account="a")),
        (LATER, Pod(service_account="a"), Pod(service_account="a")),
        (Pod(service_account="a"), LATER, LATER),
    ],
)
def test_either_of_them_may_be_missing(job: Pod, replica: Pod, pod: Pod) -> None:
    assert merge_pods(job, replica) == pod


@pytest.mark.parametrize(
    ("given", "checked"),
    [(True, True), ("False", False), ("2Gi", "2Gi"), (LATER, LATER), ("true", True)],
)
def test_shared_memory_is_a_flag_or_an_amount(given: object, checked: object) -> None:
    assert check_pod("pod", Pod(shared_memory=given)).shared_memory == checked  # type: ignore[arg-type]


def test_pull_secrets_may_be_given_by_name() -> None:
    pod = check_pod("pod", Pod(image_pull_secrets=("a", {"name": "b"})))
    assert pod.image_pull_secrets == [{"name": "a"}, {"name": "b"}]
