"""DAG files for tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def imported(file: Path, text: str) -> ModuleType:
    """Imports it as Airflow does, under a name of its own."""
    file.write_text(text, encoding="utf-8", newline="")
    spec = importlib.util.spec_from_file_location(f"unusual_prefix_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
