"""hooks/permissions.py: the required permissions."""

from __future__ import annotations

from airflow_kftrain.hooks import permissions
from airflow_kftrain.kinds import MPI_JOB_V1, MPI_JOB_V2, PYTORCH_JOB


def test_a_right_to_a_part_is_asked_for_as_such() -> None:
    (log,) = (each for each in permissions.of_all_kinds() if each.resource == "pods/log")
    assert log.attributes("ml") == {
        "verb": "get",
        "group": "",
        "resource": "pods",
        "subresource": "log",
        "namespace": "ml",
    }


def test_a_role_has_one_rule_a_resource() -> None:
    assert permissions.role_rules([PYTORCH_JOB]) == [
        {
            "apiGroups": ["kubeflow.org"],
            "resources": ["pytorchjobs"],
            "verbs": ["create", "get", "list", "watch", "patch", "delete"],
        },
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
    ]


def test_two_versions_of_a_kind_have_the_same_rights() -> None:
    one, both = permissions.role_rules([MPI_JOB_V1]), [MPI_JOB_V1, MPI_JOB_V2]
    assert permissions.role_rules(both) == one
