"""Tests of the embedded cluster that are not scenarios: they share one cluster."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.cluster.targets import LocalTarget
from tests.cluster.world import World


@pytest.fixture(scope="session")
def target() -> Iterator[LocalTarget]:
    with LocalTarget() as target:
        yield target


@pytest.fixture
def world(target: LocalTarget) -> Iterator[World]:
    """A namespace for one test."""
    metadata = {"name": f"t-{secrets.token_hex(4)}"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    target.api.create(namespace).required("a namespace")
    yield World(target, metadata["name"])
    target.api.delete(namespace)
