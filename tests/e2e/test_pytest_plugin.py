"""The pytest plugin, as a team uses it: in a project with DAGs and tests of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Airflow takes its time to start.
pytestmark = [pytest.mark.gate, pytest.mark.timeout(600)]

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "how-to" / "test-dags.md"
_DAG = """
from airflow.sdk import DAG, task
from airflow_kftrain import TrainingJobOperator

JOB = '''
apiVersion: batch/v1
kind: Job
metadata: {name: swept}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: not/run
        command: [sh, -c, 'echo tried %s; test %s != bad']
'''

@task
def count():
    return 3

with DAG("swept") as dag:
    count()
    manifests = [JOB % (each, each) for each in ("good", "bad")]
    TrainingJobOperator.partial(task_id="train", deferrable=True).expand(manifest=manifests)
"""
_TEST = """
from swept import dag

def test_a_run_that_fails(kftrain_cluster):
    run = kftrain_cluster.run_dag(dag)
    assert run.state == "failed"
    assert run.states == {"count": "success", "train": ["success", "failed"]}
    assert run.values == {"count": 3, "train": [None, None]}
    assert "tried good" in run.log
    assert "tried bad" in run.log
    (job,) = kftrain_cluster.jobs()
    assert (job["kind"], job["metadata"]["labels"]["map_index"]) == ("Job", "1")

def test_the_cluster_is_that_of_the_previous_test(kftrain_cluster):
    assert len(kftrain_cluster.jobs()) == 1
"""
_RECIPE = """
from recipe_code_files import dag

def test_the_program_runs_in_each_pod(kftrain_cluster):
    run = kftrain_cluster.run_dag(dag)
    assert run.states == {"train": "success"}
    assert "rank 0 of 3" in run.log
"""
_UNUSED = """
import sys

def test_without_a_cluster():
    heavy = {"kftrain_local.testing", "kftrain_local.cluster", "aiohttp", "yaml", "airflow"}
    assert heavy & set(sys.modules) == set()
    assert "kftrain_local.pytest_plugin" in sys.modules
"""


def _pytest(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: each for name, each in os.environ.items() if not name.startswith("AIRFLOW")}
    variables = {
        "AIRFLOW_HOME": str(project / ".airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
        "PYTHONPATH": str(project / "dags"),
        "TMPDIR": str(project),
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=project,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def _write(project: Path, **files: str) -> None:
    (project / "dags").mkdir()
    (project / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        folder = project if name.startswith("test_") else project / "dags"
        (folder / f"{name}.py").write_text(text)


def test_a_dag_runs_on_the_cluster_of_the_fixture(tmp_path: Path) -> None:
    _write(tmp_path, swept=_DAG, test_swept=_TEST)
    done = _pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert [*tmp_path.glob("kftrain-*")] == []


def test_the_example_of_the_documentation_passes(tmp_path: Path) -> None:
    """Here pytest does not capture the output."""
    page = _PAGE.read_text(encoding="utf-8")
    test = page.partition("```python\n")[2].partition("```")[0]
    _write(tmp_path, test_pytorch_job=test)
    (tmp_path / "dags").rmdir()
    (tmp_path / "dags").symlink_to(_ROOT / "example_dags")
    done = _pytest(tmp_path, "-s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_recipe_with_files_runs(tmp_path: Path) -> None:
    _write(tmp_path, test_recipe=_RECIPE)
    (tmp_path / "dags").rmdir()
    (tmp_path / "dags").symlink_to(_ROOT / "docs" / "recipes")
    done = _pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_without_the_fixture_nothing_is_imported(tmp_path: Path) -> None:
    _write(tmp_path, test_unused=_UNUSED)
    done = _pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
