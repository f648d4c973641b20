"""The pytest plugin: the fixture `kftrain_cluster`. It imports nothing until a test uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kftrain_local.testing import ClusterForTests


@pytest.fixture(scope="session")
def kftrain_cluster() -> Iterator[ClusterForTests]:
    """An embedded cluster for this test run; Airflow's `kubernetes_default` leads to it."""
    from kftrain_local.testing import running_cluster

    with running_cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.variables.items():
            patch.setenv(name, value)
        yield cluster
