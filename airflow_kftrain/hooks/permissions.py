"""The rights that this package needs, one row each. Pure.

`airflow-kftrain doctor` asks the cluster for each, docs/permissions.md prints them as a Role, and
tests on a real control plane take them away one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from airflow_kftrain.kinds import KINDS, JobKind


class Permission(NamedTuple):
    """One verb on one resource, as RBAC names them."""

    verb: str
    resource: str
    """Plural, with its subresource: `pods/log`."""
    group: str
    why: str
    needed: bool = True
    """Without those that are not, everything works, but worse."""

    def attributes(self, namespace: str) -> dict[str, str]:
        """As a SelfSubjectAccessReview has them."""
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
    ("watch", "learns at once what happens; without it jobs are polled", False),
    ("patch", "adopts the job of an earlier try", True),
    ("delete", "ends a job whose task was ended", True),
)
_OF_PODS = (
    Permission("list", "pods", "", "tells which replica failed, and why a job waits"),
    Permission("watch", "pods", "", "reads pods before they vanish", needed=False),
    Permission("get", "pods/log", "", "shows logs in the task log"),
    Permission("list", "events", "", "adds what Kubernetes says to a report", needed=False),
)


def of_kind(kind: JobKind) -> tuple[Permission, ...]:
    return tuple(
        Permission(verb, kind.plural, kind.group, why, needed) for verb, why, needed in _OF_JOBS
    )


def of_all_kinds() -> tuple[Permission, ...]:
    """What every kind of job needs beside those of its own."""
    return _OF_PODS


def role_rules(kinds: Iterable[JobKind] = KINDS) -> list[dict[str, Any]]:
    """The rules of a Role with all of them."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in [*(each for kind in kinds for each in of_kind(kind)), *_OF_PODS]:
        of_resource = verbs.setdefault((permission.group, permission.resource), [])
        if permission.verb not in of_resource:
            of_resource.append(permission.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": each}
        for (group, resource), each in verbs.items()
    ]
