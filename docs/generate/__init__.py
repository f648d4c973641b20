"""The pages that are made of the code. `make docs` writes them; tests tell when that is due."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent.parent

PAGES = {
    "configuration": "configuration.md",
    "kinds": "kinds.md",
    "permissions": "permissions.md",
    "reference": "reference.md",
    "troubleshooting": "troubleshooting.md",
}
"""Modules in this folder, and the pages that they make."""

NEEDS_AIRFLOW = frozenset({"reference"})


def page(module: str) -> str:
    """The whole page."""
    made: str = import_module(f"docs.generate.{module}").page()
    return made
