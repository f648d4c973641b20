"""Faults on PostgreSQL, with two schedulers, two triggerers and two clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.targets import LocalTarget
from tests.e2e import faults_page
from tests.e2e.groups import Matrix
from tests.e2e.play import Row
from tests.e2e.playing import asked_for, playing, temporary_folder
from tests.e2e.postgres import find_programs
from tests.e2e.postgres_rows import POSTGRES_ROWS
from tests.e2e.postgres_stage import PostgresStage

pytestmark = pytest.mark.timeout(2400)


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> Iterator[Matrix]:
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL; scripts/install-postgres installs it, or says why it cannot")
    rows = asked_for(request, POSTGRES_ROWS)
    with LocalTarget() as first, LocalTarget() as second, temporary_folder() as folder:
        stage = PostgresStage(folder, programs, first.kubeconfig, second.kubeconfig)
        try:
            with playing(rows, stage, kept="airflow-postgres") as matrix:
                yield matrix
        finally:
            first.check()
            second.check()
    results = matrix.results()
    if len(results) == len(POSTGRES_ROWS):
        faults_page.write("postgres", results)


@pytest.mark.parametrize("row", POSTGRES_ROWS, ids=lambda row: row.dag)
def test_fault(matrix: Matrix, row: Row) -> None:
    result = matrix.result(row)
    assert result.is_good, str(result)
