"""Fixtures that several modules of these tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.airflow.command_line import CommandLine, started


@pytest.fixture(scope="session")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with started(tmp_path_factory.mktemp("airflow")) as command_line:
        yield command_line
