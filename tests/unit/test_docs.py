"""The documents agree with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec, errors, stats
from docs.generate import FOLDER

ROOT = Path(__file__).resolve().parent.parent.parent


def python_blocks() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_readme_shows_an_example_as_it_is() -> None:
    text = (ROOT / "example_dags" / "pytorch_job.py").read_text(encoding="utf-8")
    _, shown, _ = re.split(r".*# --8<-- .*\n", text)
    assert python_blocks()[0] == dedent(shown)


def test_the_refusal_in_the_readme_is_the_real_one() -> None:
    shown, error = re.findall(r">>> (.*)\nInvalidSpec: (.*)\n", python_blocks()[1])[0]
    names: dict[str, Any] = {}
    exec("from airflow_kftrain import PyTorchJob, RunPolicy", names)
    with pytest.raises(InvalidSpec) as refused:
        eval(shown, names)
    assert str(refused.value) == error


@pytest.mark.parametrize(
    "file",
    [
        path.relative_to(ROOT)
        for path in [
            *ROOT.glob("*.md"),
            *FOLDER.glob("*.md"),
            *FOLDER.glob("how-to/*.md"),
            *FOLDER.glob("recipes/*.md"),
        ]
    ],
    ids=str,
)
def test_links_between_the_documents_lead_somewhere(file: Path) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    targets = [
        next(filter(None, found)).split("#")[0]
        for found in re.findall(r'\]\(([^)]+)\)|src(?:set)?="([^"]+)"', text)
        if "://" not in "".join(found)
    ]
    missing = [target for target in targets if not (ROOT / file.parent / target).exists()]
    assert missing == []


TROUBLESHOOTING = FOLDER / "troubleshooting.md"


def reasons() -> Iterator[str]:
    """The words in the code that say how a job ended: they follow the verdict."""
    for file in (ROOT / "airflow_kftrain").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) > 1:
                after_verdict = ast.unparse(node.args[0]).startswith("Verdict.")
                short = ast.unparse(node.func) == "_timed_out"
                said = node.args[1] if after_verdict else node.args[0]
                if (after_verdict or short) and isinstance(said, ast.Constant):
                    yield said.value


def test_every_way_in_which_a_job_ends_is_explained() -> None:
    text = TROUBLESHOOTING.read_text(encoding="utf-8")
    found = set(reasons())
    assert {"Gone", "ExecutionTimeout", "StartupTimeout", "UnreadableEvent"} <= found
    assert {reason for reason in found if f"| `{reason}` |" not in text} == set()


def test_every_error_is_explained() -> None:
    text = TROUBLESHOOTING.read_text(encoding="utf-8")
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KfTrainError)
    }
    assert len(found) >= 12
    assert {name for name in found if f"| `{name}` |" not in text} == {"KfTrainError"}


def test_every_metric_is_listed() -> None:
    text = (FOLDER / "metrics.md").read_text(encoding="utf-8")
    names = {
        value
        for name, value in vars(stats).items()
        if name.isupper() and str(value).startswith("kftrain.")
    }
    assert set(re.findall(r"^\| `(kftrain[a-z_.]+)` \|", text, flags=re.MULTILINE)) == names
