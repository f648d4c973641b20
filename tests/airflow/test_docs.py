"""Documents that only Airflow can make or check."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import airflow_kftrain
from docs.generate import FOLDER, NEEDS_AIRFLOW, PAGES, page

# The oldest cncf.kubernetes that is supported imports from where Airflow 3.1 has moved away.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")

WRITTEN = [FOLDER.parent / "README.md", *FOLDER.glob("*.md"), *FOLDER.glob("how-to/*.md")]
NEWER = {"durable", "on_kill_action", "schedule_timeout_seconds"}
"""Parameters that the oldest KubernetesPodOperator that is supported does not have yet."""


@pytest.mark.parametrize("module", sorted(NEEDS_AIRFLOW))
def test_a_generated_page_is_what_the_code_says(module: str) -> None:
    assert (FOLDER / PAGES[module]).read_text(encoding="utf-8") == page(module), "run `make docs`"


def cells(file: Path, number: int) -> Iterator[str]:
    """Of the tables of a page."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield re.split(r"(?<!\\)\|", line)[number]


def keywords(text: str) -> Iterator[tuple[str, str]]:
    """(Replica, count) where the text has `Replica(count=4)`."""
    for call in re.finditer(r"\b(\w+)\(", text):
        depth, here, inside = 1, call.end(), ""
        while depth and here < len(text):
            depth += {"(": 1, ")": -1}.get(text[here], 0)
            inside += text[here] if depth == 1 else ""
            here += 1
        yield from ((call[1], name) for name in re.findall(r"(?<![\w.\"'])(\w+)=(?!=)", inside))


def fields(name: str) -> set[str]:
    """What a public noun or operator takes."""
    thing: Any = getattr(airflow_kftrain, name)
    if hasattr(thing, "_fields"):
        return set(thing._fields)
    constructors = [vars(part).get("__init__") for part in thing.__mro__[:-1]]
    return {
        field
        for constructor in constructors
        if constructor
        for field in inspect.signature(constructor).parameters
    }


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.stem)
def test_every_field_that_a_document_names_is_there(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if file.stem == "from-flyte":  # Flyte has nouns of the same names
        text = "\n".join(cells(file, 2))
    named = {pair for pair in keywords(text) if pair[0] in airflow_kftrain.__all__}
    assert {pair for pair in named if pair[1] not in fields(pair[0])} == set()


def test_every_parameter_of_the_pod_operator_that_is_compared_is_one() -> None:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    known = set(inspect.signature(KubernetesPodOperator.__init__).parameters) | NEWER
    told = " ".join(cells(FOLDER / "from-kubernetes-pod-operator.md", 1))
    named = set(re.findall(r"`(\w+)(?:=[^`]*)?`", told)) - {"KubernetesPodOperator"}
    assert len(named) > 40
    assert named - known == set()
