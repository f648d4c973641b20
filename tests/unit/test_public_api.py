"""The public names are a list, with their types and the cost of their import."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

import airflow_kftrain

SOURCE = Path(airflow_kftrain.__file__)
MOST_PARAMETERS = 12
HEAVY = {"airflow", "kubernetes", "kubernetes_asyncio", "yaml", "aiohttp", "pendulum"}

AT_WORK = [name for name in airflow_kftrain.__all__ if name.endswith(("Operator", "Sensor"))]
"""Names that need Airflow; tests/airflow tests them."""

PURE = [name for name in airflow_kftrain.__all__ if name not in AT_WORK]
CLASSES = {name: value for name in PURE if inspect.isclass(value := getattr(airflow_kftrain, name))}
NOUNS = {name: value for name, value in CLASSES.items() if issubclass(value, tuple)}
SPECS = {name: value for name, value in CLASSES.items() if dataclasses.is_dataclass(value)}
ERRORS = {name: value for name, value in CLASSES.items() if issubclass(value, Exception)}
FUNCTIONS = {
    name: value for name in PURE if inspect.isfunction(value := getattr(airflow_kftrain, name))
}


def loaded_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter loads because of a statement."""
    code = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "airflow_kftrain"}


def for_type_checkers() -> dict[str, str]:
    """The names that a type checker sees, with their modules."""
    (block,) = (
        node
        for node in ast.parse(SOURCE.read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    found = {}
    for statement in block.body:
        if not isinstance(statement, ast.ImportFrom):
            assert ast.unparse(statement) == "__version__: str"
            continue
        for alias in statement.names:
            # For a type checker, `import x as x` makes a name public.
            assert alias.asname == alias.name
            found[alias.name] = str(statement.module)
    return found


def test_every_name_can_be_imported_from_where_it_is_said_to_be() -> None:
    modules = for_type_checkers()
    for name in PURE:
        assert getattr(airflow_kftrain, name) is getattr(import_module(modules[name]), name)


def test_a_type_checker_and_the_interpreter_see_the_same_names() -> None:
    table = {name: f"airflow_kftrain.{module}" for name, module in airflow_kftrain._MODULES.items()}
    assert for_type_checkers() == table


def test_the_list_of_names_is_complete_sorted_and_without_private_ones() -> None:
    assert airflow_kftrain.__all__ == sorted(airflow_kftrain._MODULES)
    assert [name for name in airflow_kftrain.__all__ if name.startswith("_")] == []


def test_dir_lists_them_with_the_version() -> None:
    assert dir(airflow_kftrain) == sorted([*airflow_kftrain.__all__, "__version__"])


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'PytorchJob'"):
        airflow_kftrain.PytorchJob  # noqa: B018
    with pytest.raises(ImportError):
        exec("from airflow_kftrain import PytorchJob", {})


def test_the_version_is_that_of_the_distribution() -> None:
    try:
        installed = metadata.version("airflow-kftrain")
    except metadata.PackageNotFoundError:
        pytest.skip("airflow-kftrain is on the path here, but not installed")
    assert airflow_kftrain.__version__ == installed


# The cost of an import


def test_importing_the_package_loads_nothing_of_it() -> None:
    loaded = loaded_after("import airflow_kftrain")
    assert ours(loaded) == {"airflow_kftrain"}
    assert HEAVY & loaded == set()


def test_nouns_specs_and_builders_load_nothing_heavy() -> None:
    assert HEAVY & loaded_after(f"from airflow_kftrain import {', '.join(PURE)}") == set()


def test_a_spec_does_not_load_the_builders_nor_the_other_specs() -> None:
    loaded = ours(loaded_after("from airflow_kftrain import PyTorchJob"))
    assert {name for name in loaded if "manifests" in name} == set()
    assert "airflow_kftrain.specs.mpi_job" not in loaded


def test_building_a_manifest_loads_yaml_only_for_text_and_files() -> None:
    names = "PyTorchJob, build_manifest"
    built = f"from airflow_kftrain import {names}; build_manifest(PyTorchJob(image='i', workers=1))"
    assert "yaml" not in loaded_after(built)


# The kinds of public things


def test_everything_public_is_a_noun_a_spec_an_error_a_function_or_runs_in_airflow() -> None:
    assert sorted([*NOUNS, *SPECS, *ERRORS, *FUNCTIONS, *AT_WORK]) == airflow_kftrain.__all__


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_is_a_named_tuple_since_airflow_renders_those(name: str) -> None:
    noun = NOUNS[name]
    assert noun.__bases__ == (tuple,)
    assert set(noun._fields) == set(noun.__annotations__)


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_frozen_and_takes_its_fields_by_name(name: str) -> None:
    spec = SPECS[name]
    assert spec.__dataclass_params__.frozen
    if name != "RawManifest":
        assert all(field.kw_only for field in dataclasses.fields(spec))


def own_parameters(value: Any) -> list[str]:
    """The parameters that something does not inherit."""
    if dataclasses.is_dataclass(value):
        inherited = {
            field.name
            for base in value.__mro__[1:]  # type: ignore[union-attr]
            if dataclasses.is_dataclass(base)
            for field in dataclasses.fields(base)
        }
        return [field.name for field in dataclasses.fields(value) if field.name not in inherited]
    if hasattr(value, "_fields"):
        return list(value._fields)
    return [name for name in inspect.signature(value).parameters if name != "self"]


@pytest.mark.parametrize("name", [*NOUNS, *SPECS, *FUNCTIONS, "InvalidSpec"])
def test_nothing_has_more_parameters_than_one_can_keep_in_mind(name: str) -> None:
    assert len(own_parameters(getattr(airflow_kftrain, name))) <= MOST_PARAMETERS


@pytest.mark.parametrize("name", [*NOUNS, *SPECS])
def test_no_field_is_called_as_a_method_that_airflow_would_call(name: str) -> None:
    fields = set(own_parameters(CLASSES[name]))
    assert fields & {"resolve", "serialize", "iter_references", "template_fields"} == set()
    methods = {attribute for attribute in dir(CLASSES[name]) if not attribute.startswith("_")}
    assert methods & {"resolve", "serialize", "iter_references", "template_fields"} == set()
