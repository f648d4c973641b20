"""The fault matrix runs on the targets of tests/cluster: `pytest tests/e2e --target real`."""

from __future__ import annotations

from tests.cluster.conftest import pytest_generate_tests, target

__all__ = ["pytest_generate_tests", "target"]
