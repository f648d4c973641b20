"""Documents that need Airflow to be checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import airflow_kftrain
from airflow_kftrain.__main__ import COMMANDS, main
from docs.generate import FOLDER

# The oldest supported cncf.kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")

WRITTEN = [
    FOLDER.parent / "README.md",
    *FOLDER.glob("*.md"),
    *FOLDER.glob("how-to/*.md"),
    *FOLDER.glob("recipes/*.md"),
]
NEWER = {"durable", "on_kill_action", "runtime_class_name", "schedule_timeout_seconds"}
"""Parameters that the oldest supported KubernetesPodOperator does not have yet."""


def cells(file: Path, number: int) -> Iterator[str]:
    """The cells of the tables of a page."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield re.split(r"(?<!\\)\|", line)[number]


def keywords(text: str) -> Iterator[tuple[str, str]]:
    """(Replica, count) if the text contains `Replica(count=4)`."""
    for call in re.finditer(r"\b(\w+)\(", text):
        depth, here, inside = 1, call.end(), ""
        while depth and here < len(text):
            depth += {"(": 1, ")": -1}.get(text[here], 0)
            inside += text[here] if depth == 1 else ""
            here += 1
        yield from ((call[1], name) for name in re.findall(r"(?<![\w.\"'])(\w+)=(?!=)", inside))


def fields(name: str) -> set[str]:
    """The parameters of a public noun or operator."""
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


def test_the_page_of_commands_names_them_all_and_only_options_that_they_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (FOLDER / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `airflow-kftrain (\w+)", text, re.MULTILINE)) == set(COMMANDS)
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
    known = re.findall(r"--[\w-]+", capsys.readouterr().out)
    assert set(re.findall(r"`(--[\w-]+)", text)) - set(known) == set()


def test_every_parameter_of_the_pod_operator_that_is_compared_is_one() -> None:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    known = set(inspect.signature(KubernetesPodOperator.__init__).parameters) | NEWER
    told = " ".join(cells(FOLDER / "from-kubernetes-pod-operator.md", 1))
    named = set(re.findall(r"`(\w+)(?:=[^`]*)?`", told)) - {"KubernetesPodOperator"}
    assert len(named) > 40
    assert named - known == set()
