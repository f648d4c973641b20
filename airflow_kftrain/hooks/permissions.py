"""The permissions that this package needs, one row each. Pure.

`airflow-kftrain doctor` asks the cluster for each of them, docs/permissions.md prints them as a
Role, and tests on a real control plane take them away one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from airflow_kftrain.kinds import KINDS, KUEUE_GROUP, JobKind


class Permission(NamedTuple):
    """One verb on one resource, as RBAC names them."""

    verb: str
    resource: str
    """Plural, with the subresource: `pods/log`."""
    group: str
    why: str
    needed: bool = True
    """If False, everything works without it, but less well."""

    def attributes(self, namespace: str) -> dict[str, str]:
        """The fields of a SelfSubjectAccessReview."""
        resource, _, part = self.resource.partition("/")
        return {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": part,
            "namespace": namespace,
        }


_OF_JOBS = (
    ("create", "submits a job", True),
    ("get", "reads its state", True),
    ("list", "finds the job of an earlier try", True),
    ("watch", "sees changes at once; without it jobs are polled", False),
    ("patch", "adopts the job of an earlier try", True),
    ("delete", "deletes a job whose task has ended", True),
)
_OF_PODS = (
    Permission("list", "pods", "", "shows which replica failed, and why a job waits"),
    Permission("watch", "pods", "", "reads pods before they are deleted", needed=False),
    Permission("get", "pods/log", "", "shows logs in the task log"),
    Permission("list", "events", "", "says why a volume is not mounted, and more", needed=False),
)
_OF_QUEUES = (
    Permission(
        "list", "workloads", KUEUE_GROUP, "says what a job waits for in its queue", needed=False
    ),
)


def of_kind(kind: JobKind) -> tuple[Permission, ...]:
    return tuple(
        Permission(verb, kind.plural, kind.group, why, needed) for verb, why, needed in _OF_JOBS
    )


def of_all_kinds() -> tuple[Permission, ...]:
    """The permissions that all kinds need in addition to their own."""
    return _OF_PODS


def of_queues() -> tuple[Permission, ...]:
    """The permissions for a cluster with Kueue."""
    return _OF_QUEUES


def role_rules(kinds: Iterable[JobKind] = KINDS) -> list[dict[str, Any]]:
    """The rules of a Role with all these permissions."""
    verbs: dict[tuple[str, str], list[str]] = {}
    of_kinds = [each for kind in kinds for each in of_kind(kind)]
    for permission in (*of_kinds, *_OF_PODS, *_OF_QUEUES):
        of_resource = verbs.setdefault((permission.group, permission.resource), [])
        if permission.verb not in of_resource:
            of_resource.append(permission.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": each}
        for (group, resource), each in verbs.items()
    ]
