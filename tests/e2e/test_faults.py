"""The fault matrix: whatever befalls a task, no job is lost, doubled, wrongly killed or leaked."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster.targets import Target
from tests.e2e import faults_page
from tests.e2e.groups import Matrix
from tests.e2e.play import Row
from tests.e2e.rows import ROWS
from tests.e2e.stage import Background, Stage

_KEPT = Path(__file__).parents[2] / "build" / "e2e"

pytestmark = pytest.mark.timeout(2400)


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest, target: Target) -> Iterator[Matrix]:
    rows = _asked_for(request.session.items)
    tasks = {name: task for row in rows for name, task in row.tasks().items()}
    connections = {row.connection for row in rows}
    # Not one of pytest's own, which other runs of pytest remove.
    folder = tempfile.mkdtemp(prefix="kftrain-faults-")
    stage = Stage(Path(folder), target.kubeconfig)
    background = Background()
    ending = AsyncExitStack()
    try:
        background.start(stage.open(tasks, connections, ending)).result()
        matrix = Matrix(background, stage, rows)
        try:
            yield matrix
        finally:
            matrix.stop()
        results = matrix.results()
        if len(results) == len(ROWS):
            faults_page.write(target.name, results)
    finally:
        try:
            _keep(stage, target)
            target.check()
        finally:
            background.start(ending.aclose()).result()
            background.close()
            shutil.rmtree(folder, ignore_errors=True)


def _asked_for(items: Sequence[pytest.Item]) -> list[Row]:
    calls = [
        item.callspec
        for item in items
        if isinstance(item, pytest.Function) and item.path == Path(__file__)
    ]
    found = [call.params["row"] for call in calls]
    return [row for row in ROWS if row in found]


def _keep(stage: Stage, target: Target) -> None:
    """Logs of Airflow, for whoever wants to know why a row has failed."""
    kept = _KEPT / f"airflow-{target.name}"
    shutil.rmtree(kept, ignore_errors=True)
    if hasattr(stage, "airflow"):
        shutil.copytree(stage.airflow.home, kept, ignore=shutil.ignore_patterns("*.db*"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.dag)
def test_fault(matrix: Matrix, row: Row) -> None:
    result = matrix.result(row)
    assert result.is_good, result
