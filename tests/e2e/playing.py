"""Runs the rows that pytest has selected on a stage."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.targets import Target
from tests.e2e.groups import Matrix
from tests.e2e.play import Row
from tests.e2e.stage import Background, Stage

_KEPT = Path(__file__).parents[2] / "build" / "e2e"


def asked_for(request: pytest.FixtureRequest, rows: Sequence[Row]) -> list[Row]:
    """The selected tests of the module."""
    calls = [
        item.callspec
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    found = [call.params["row"] for call in calls]
    return [row for row in rows if row in found]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Not a folder of pytest, which other runs of pytest remove."""
    folder = tempfile.mkdtemp(prefix="kftrain-faults-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def playing(rows: Sequence[Row], stage: Stage, kept: str) -> Iterator[Matrix]:
    """Airflow's logs are kept in build/e2e under that name."""
    tasks = {name: task for row in rows for name, task in row.tasks().items()}
    connections = {row.connection for row in rows}
    background = Background()
    ending = AsyncExitStack()
    try:
        background.start(stage.open(tasks, connections, ending)).result()
        matrix = Matrix(background, stage, rows)
        try:
            yield matrix
        finally:
            matrix.stop()
    finally:
        try:
            _keep(stage, _KEPT / kept)
        finally:
            background.start(ending.aclose()).result()
            background.close()


def _keep(stage: Stage, kept: Path) -> None:
    """Keeps the logs of Airflow, to find out why a row has failed."""
    shutil.rmtree(kept, ignore_errors=True)
    if hasattr(stage, "airflow"):
        shutil.copytree(stage.airflow.home, kept, ignore=shutil.ignore_patterns("*.db*"))


@contextmanager
def playing_on(target: Target, rows: Sequence[Row], kept: str) -> Iterator[Matrix]:
    """On one Airflow and one cluster."""
    try:
        with (
            temporary_folder() as folder,
            playing(rows, Stage(folder, target.kubeconfig), kept) as matrix,
        ):
            yield matrix
    finally:
        target.check()
