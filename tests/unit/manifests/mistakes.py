"""What the tables of mistakes have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

SECRET = "hunter2"
"""Occurs in the tables wherever an author may have written a secret."""

Given = tuple[type[Any], dict[str, Any]]
"""The type of a spec, and its arguments."""


class Wrong(NamedTuple):
    """A mistake, and what its author reads."""

    what: str
    spec: type[Any]
    given: dict[str, Any]
    field: str
    says: tuple[str, ...]


Rows = Iterator[Wrong]


def wrong(what: str, given: Given, field: str, *says: str) -> Wrong:
    """A row of a table: the mistake, the field in the error, and parts of the text."""
    return Wrong(what, *given, field, says)


def container(name: str = "pytorch", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "img", **more}


def runtime_patch(pod_spec: Any, manager: str = "example.com/team") -> dict[str, Any]:
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod_spec}}}}
    jobs = {"spec": {"replicatedJobs": [job]}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": jobs}}
