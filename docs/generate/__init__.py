"""The pages that are generated from the code. `make docs` writes them; `make check` fails if
one is outdated."""

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
"""The modules in this folder, and the pages that they generate."""


def page(module: str) -> str:
    """The whole page."""
    made: str = import_module(f"docs.generate.{module}").page()
    return made
