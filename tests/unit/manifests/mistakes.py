"""What the tables of mistakes have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

SECRET = "hunter2"
"""Stands in the tables wherever an author may have written a secret."""

Given = tuple[type[Any], dict[str, Any]]
"""The type of a spec, and what its author gives to it."""


class Wrong(NamedTuple):
    """One mistake, and what its author is told."""

    what: str
    spec: type[Any]
    given: dict[str, Any]
    field: str
    says: tuple[str, ...]


Rows = Iterator[Wrong]


def wrong(what: str, given: Given, field: str, *says: str) -> Wrong:
    """A row of a table: the mistake, the field that is named, and pieces of the text."""
    return Wrong(what, *given, field, says)


def container(name: str = "pytorch", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "img", **more}


def runtime_patch(pod_spec: Any, manager: str = "example.com/team") -> dict[str, Any]:
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod_spec}}}}
    jobs = {"spec": {"replicatedJobs": [job]}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": jobs}}
