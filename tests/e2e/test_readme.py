"""The commands of the README, literally."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Airflow takes its time to start.
pytestmark = [pytest.mark.gate, pytest.mark.timeout(600)]

_ROOT = Path(__file__).resolve().parents[2]


def _commands() -> list[str]:
    """Of the example that is run by hand."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("To run one example by hand:\n\n```console\n")[2].partition("```")[0]
    return re.findall(r"^\$ (.*)", block, re.MULTILINE)


def test_the_commands_run_an_example_twice_in_a_row(tmp_path: Path) -> None:
    """In the second go the cluster and Airflow's database are there already."""
    make, *others = _commands()
    assert len(others) >= 3
    (tmp_path / "example_dags").symlink_to(_ROOT / "example_dags")
    away = f"cd {tmp_path}"  # what is written beside the examples is not to stay in the checkout
    script = [f"cd {_ROOT}", make, away, *others, f"cd {_ROOT}", make, away, *others]
    variables = {name: each for name, each in os.environ.items() if not name.startswith("AIRFLOW")}
    try:
        done = subprocess.run(
            ["sh", "-e", "-c", "\n".join(script)],
            env={**variables, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        down = [sys.executable, "-m", "airflow_kftrain", "local", "down"]
        subprocess.run(down, env={**variables, "TMPDIR": str(tmp_path)}, cwd=_ROOT, check=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("The PyTorchJob succeeded.") == 2
    assert "is already running" in done.stdout
    assert {each.name for each in tmp_path.iterdir()} == {"example_dags", ".airflow"}
