"""The fault matrix: whatever happens to a task, no job is lost, doubled, killed by mistake or
leaked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.cluster.targets import Target
from tests.e2e import faults_page
from tests.e2e.groups import Matrix
from tests.e2e.play import Row
from tests.e2e.playing import asked_for, playing_on
from tests.e2e.rows import GATES, ROWS

pytestmark = pytest.mark.timeout(2400)


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest, target: Target) -> Iterator[Matrix]:
    with playing_on(target, asked_for(request, ROWS), f"airflow-{target.name}") as matrix:
        yield matrix
    results = matrix.results()
    if len(results) == len(ROWS) or request.config.getoption("--record"):
        faults_page.write(target.name, results)


def _case(row: Row) -> ParameterSet:
    return pytest.param(row, id=row.dag, marks=[pytest.mark.gate] * (row.name in GATES))


@pytest.mark.parametrize("row", [_case(row) for row in ROWS])
def test_fault(matrix: Matrix, row: Row) -> None:
    result = matrix.result(row)
    assert result.is_good, str(result)
