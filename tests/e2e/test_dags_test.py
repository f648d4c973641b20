"""`airflow dags test` of each example of a function, as its reader types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.targets import LocalTarget

_EXAMPLES = Path(__file__).parents[2] / "example_dags"
FUNCTIONS = sorted(file.stem for file in _EXAMPLES.glob("function_*.py"))
_AIRFLOW = str(Path(sys.executable).with_name("airflow"))

pytestmark = [pytest.mark.gate, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Those of a shell with an Airflow and a cluster of its own."""
    with pytest.MonkeyPatch.context() as patch:
        # The pods take their PATH from the cluster.
        patch.setenv("PATH", f"{_EXAMPLES / 'stand_ins'}{os.pathsep}{os.environ['PATH']}")
        with LocalTarget() as cluster:
            env = {
                **os.environ,
                **cluster.airflow(),
                "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
                "AIRFLOW__CORE__DAGS_FOLDER": str(_EXAMPLES),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            }
            subprocess.run([_AIRFLOW, "db", "migrate"], env=env, check=True, capture_output=True)
            yield env


@pytest.mark.parametrize("name", FUNCTIONS)
def test_airflow_dags_test(variables: dict[str, str], name: str) -> None:
    words = [_AIRFLOW, "dags", "test", name]
    ran = subprocess.run(words, env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "state=success" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
