"""The example DAGs parse, and do what they show as far as no cluster is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from airflow.sdk import DAG

# The oldest cncf.kubernetes that is supported imports from where Airflow 3.1 has moved away.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")

FOLDER = Path(__file__).resolve().parent.parent.parent / "example_dags"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_has_a_dag_named_like_its_file(example: str) -> None:
    module = import_module(f"example_dags.{example}")
    dags = [value.dag_id for value in vars(module).values() if isinstance(value, DAG)]
    assert dags == [example]


@pytest.mark.timeout(180)  # Airflow starts twice, beside other tests
def test_the_first_job_makes_its_manifest_in_a_real_run(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(FOLDER),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    for command in (
        ["db", "migrate"],
        # Without a cluster there is nothing to create it in.
        ["dags", "test", "first_job", "--mark-success-pattern", "train"],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "airflow", *command],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    # Up to the next line of the log, which starts with its time, its logger or a colour.
    next_line = r"(?:\x1b|\[|\d{4}-| +\[)"
    returned = re.search(rf"Returned value was: (.*?\n){next_line}", ran.stdout, re.DOTALL)
    assert returned, ran.stdout
    manifest = yaml.safe_load(returned[1])
    assert manifest["kind"] == "PyTorchJob"
    assert manifest["metadata"]["name"].startswith("first-job-manifest-")
    assert manifest["metadata"]["labels"]["dag_id"] == "first_job"
