"""What the documents say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec
from docs.generate import FOLDER, PAGES, page

ROOT = Path(__file__).resolve().parent.parent.parent


def python_blocks() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("module", PAGES)
def test_a_generated_page_is_what_the_code_says(module: str) -> None:
    assert (FOLDER / PAGES[module]).read_text(encoding="utf-8") == page(module), "run `make docs`"


def test_the_first_job_of_the_readme_builds() -> None:
    names: dict[str, Any] = {}
    exec(python_blocks()[0], names)
    assert names["manifest"]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4


def test_the_refusal_in_the_readme_is_the_real_one() -> None:
    shown, error = re.findall(r">>> (.*)\nInvalidSpec: (.*)\n", python_blocks()[1])[0]
    names: dict[str, Any] = {}
    exec("from airflow_kftrain import PyTorchJob, RunPolicy", names)
    with pytest.raises(InvalidSpec) as refused:
        eval(shown, names)
    assert str(refused.value) == error


@pytest.mark.parametrize(
    "file",
    [path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *FOLDER.glob("**/*.md")]],
    ids=str,
)
def test_links_between_the_documents_lead_somewhere(file: Path) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    targets = [
        target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target
    ]
    missing = [target for target in targets if not (ROOT / file.parent / target).exists()]
    assert missing == []
