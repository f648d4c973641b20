"""The plugin with the tab "Training"; tests/e2e/test_training_tab.py has it in a browser."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points

import airflow
import httpx
import pytest
from airflow.plugins_manager import get_plugin_info
from fastapi import FastAPI

from airflow_kftrain.operators.training_job import BaseTrainingJobOperator
from airflow_kftrain.provider_info import get_provider_info
from airflow_kftrain.training_tab import MODULE, STATIC, TrainingTab

_VERSION = tuple(map(int, airflow.__version__.split(".")[:2]))
has_tabs = pytest.mark.skipif(_VERSION < (3, 3), reason="this Airflow never has the tab")


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__TASK_TAB", "True")


def test_airflow_finds_the_plugin() -> None:
    (found,) = entry_points(group="airflow.plugins", name="kftrain")
    assert found.load() is TrainingTab
    assert "kftrain" in [each["name"] for each in get_plugin_info(["source"])]


@pytest.mark.parametrize(
    ("option", "in_33", "in_34"),
    [
        ("", False, True),
        ("True", True, True),
        ("False", False, False),
        ("perhaps", False, True),
    ],
)
def test_where_the_tab_is_shown(
    option: str, in_33: bool, in_34: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__TASK_TAB", option)
    shown = _VERSION >= (3, 3) and (in_34 if _VERSION >= (3, 4) else in_33)
    plugin = TrainingTab()
    assert (len(plugin.react_apps), len(plugin.fastapi_apps)) == (shown, shown)


@has_tabs
def test_a_wrong_option_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__TASK_TAB", "perhaps")
    assert TrainingTab().react_apps is not None
    said = "[kftrain] task_tab must be True or False, got 'perhaps': ignored"
    assert said in [record.getMessage() for record in caplog.records]


@has_tabs
@pytest.mark.usefixtures("asked_for")
def test_the_module_is_served_where_the_page_looks_for_it() -> None:
    """Under a path, too: the address is relative to that of Airflow."""
    plugin = TrainingTab()
    (served,), (shown,) = plugin.fastapi_apps, plugin.react_apps
    site = FastAPI(root_path="/team")
    site.mount(served["url_prefix"], served["app"])

    async def get() -> httpx.Response:
        base = "http://airflow.example.com/team/"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url=base) as client:
            return await client.get(shown["bundle_url"])

    answer = asyncio.run(get())
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0].endswith("/javascript")
    assert answer.content == (STATIC / MODULE).read_bytes()


def test_the_module_registers_itself_under_the_name_of_the_tab() -> None:
    assert '\nconst NAME = "Training";' in (STATIC / MODULE).read_text()


@has_tabs
@pytest.mark.usefixtures("asked_for")
def test_the_tab_applies_to_all_operators() -> None:
    (shown,) = TrainingTab().react_apps
    ((path, (field,)),) = shown["applies_to"].items()
    assert path == "task.template_fields"
    (group,) = get_provider_info()["operators"]
    operators = {
        found
        for name in group["python-modules"]
        for _, found in inspect.getmembers(import_module(name), inspect.isclass)
        if issubclass(found, BaseTrainingJobOperator) and hasattr(found, "spec_type")
    }
    assert len(operators) > 5
    assert {each.__name__ for each in operators if field not in each.template_fields} == set()


_COST = """
import sys
try:
    import airflow.sdk.plugins_manager  # what a worker has loaded
except ImportError:
    import airflow.plugins_manager
before = set(sys.modules)
from airflow_kftrain.training_tab import TrainingTab
TrainingTab.validate()
TrainingTab()
print(*sorted(sys.modules.keys() - before))
"""


def test_loading_the_plugin_imports_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", _COST], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} - {"airflow_kftrain"} == {"airflow_kftrain.training_tab"}
