"""Airflow knows this package as a provider."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import distribution, entry_points
from importlib.resources import files

import jsonschema

import airflow_kftrain
from airflow_kftrain.links import LINKS
from airflow_kftrain.provider_info import get_provider_info
from tests.airflow.command_line import CommandLine

VERSION = distribution("airflow-kftrain").version


def airflow(command_line: CommandLine, *words: str, **settings: str) -> str:
    """The output of a command of a real Airflow."""
    ran = command_line.run("airflow", *words, **settings)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_airflow_lists_the_provider(command_line: CommandLine) -> None:
    listed = json.loads(airflow(command_line, "providers", "list", "--output", "json"))
    ours = [row for row in listed if row["package_name"] == "airflow-kftrain"]
    assert [row["version"] for row in ours] == [VERSION]
    assert "Kubeflow Trainer" in ours[0]["description"]


def test_airflow_gets_the_provider(command_line: CommandLine) -> None:
    command = ("providers", "get", "airflow-kftrain", "--output", "json")
    assert json.loads(airflow(command_line, *command)) == [
        {"Provider": "airflow-kftrain", "Version": VERSION}
    ]
    (full,) = json.loads(airflow(command_line, *command, "--full"))
    assert full["name"] == "Kubeflow training"


def test_airflow_knows_the_option(command_line: CommandLine) -> None:
    command = ("config", "get-value", "kftrain", "instance")
    assert airflow(command_line, *command).strip() == ""
    named = airflow(command_line, *command, AIRFLOW__KFTRAIN__INSTANCE="ml-production")
    assert named.strip() == "ml-production"


def test_provider_info_is_what_airflow_asks_for() -> None:
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_provider_info_names_what_there_is() -> None:
    info = get_provider_info()
    listed = [
        module
        for part in ("operators", "sensors", "hooks", "triggers")
        for entry in info[part]
        for module in entry["python-modules"]
    ]
    for module in listed:
        import_module(module)
    known = {
        getattr(airflow_kftrain, name).__module__
        for name in airflow_kftrain.__all__
        if name.endswith(("Operator", "Sensor"))
    }
    assert known <= set(listed)
    assert info["extra-links"] == [f"airflow_kftrain.links.{type(link).__name__}" for link in LINKS]


def test_provider_info_has_the_name_of_the_distribution() -> None:
    """Airflow refuses to start with a provider whose two names differ."""
    providers = entry_points(group="apache_airflow_provider")
    (entry_point,) = providers.select(module="airflow_kftrain.provider_info")
    assert entry_point.load() is get_provider_info
    assert entry_point.dist is not None
    assert entry_point.dist.name == get_provider_info()["package-name"]


def test_provider_info_loads_nothing_of_airflow() -> None:
    """It is read in every process that Airflow starts."""
    program = """
import sys
import airflow_kftrain.provider_info
print([name for name in sys.modules if name.partition(".")[0] == "airflow"])
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"
