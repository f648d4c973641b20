"""Whole manifests, compared with files that people can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_kftrain import build_manifest
from airflow_kftrain.manifests.code import CODE_ANNOTATION
from tests.unit.manifests.golden_specs import FILES, OWNED, SPECS

GOLDEN = Path(__file__).parent / "golden"
HEADER = "# Made by tests/unit/manifests/test_golden.py; the spec stands in golden_specs.py.\n"


def golden_manifest(name: str) -> dict[str, Any]:
    """The manifest of that name, as it is built now."""
    if name in OWNED:
        spec, owner = OWNED[name]
        return build_manifest(spec, owner=owner, namespace="ml")
    made: dict[str, Any] = _without_code(build_manifest(SPECS[name], folder=str(FILES)))
    return made


def _without_code(value: Any) -> Any:
    """The payload changes with each change of the runner."""
    if isinstance(value, dict):
        return {
            key: "CARRIED" if key == CODE_ANNOTATION else _without_code(item)
            for key, item in value.items()
        }
    return [_without_code(item) for item in value] if isinstance(value, list) else value


class _PlainDumper(yaml.SafeDumper):
    """Without anchors: a list that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@pytest.mark.parametrize("name", [*SPECS, *OWNED])
def test_manifest_is_as_written(name: str, request: pytest.FixtureRequest) -> None:
    manifest = golden_manifest(name)
    file = GOLDEN / f"{name}.yaml"
    if request.config.getoption("--write-golden"):
        text = yaml.dump(manifest, Dumper=_PlainDumper, sort_keys=False, width=100)
        file.write_text(HEADER + text, encoding="utf-8")
    assert manifest == yaml.safe_load(file.read_text(encoding="utf-8"))


def test_every_file_has_its_spec() -> None:
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == {*SPECS, *OWNED}


def test_there_are_enough_of_them() -> None:
    assert len(SPECS) + len(OWNED) >= 40
