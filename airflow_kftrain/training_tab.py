"""The plugin with the tab "Training" of a task instance's page.

Airflow imports plugins in all of its processes, in each worker before its task. So this module
imports nothing until the API server asks for the tab.
"""

from __future__ import annotations

import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.plugins_manager import AirflowPlugin as Plugin
else:
    # Airflow accepts either class. The one that is loaded costs nothing: in a worker that is the
    # SDK's, which Airflow 3.1 does not have.
    _LOADED = sys.modules.get("airflow.sdk.plugins_manager")
    Plugin = (_LOADED or import_module("airflow.plugins_manager")).AirflowPlugin

STATIC = Path(__file__).parent / "static"
MODULE = "training_tab.js"
_PREFIX = "kftrain"

_ONLY_OURS = {"task.template_fields": ["lifecycle"]}
"""Which tasks have the tab: those whose operator has this field. Names of operators would leave out
the subclasses that others write. Airflow 3.3 ignores it."""


class TrainingTab(Plugin):
    """Properties, since Airflow reads most of a plugin only in its API server."""

    name = "kftrain"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # of a list
        """Serves the module and the icons."""
        if not self._is_shown:
            return []
        from starlette.staticfiles import StaticFiles

        files = StaticFiles(directory=STATIC)
        return [{"app": files, "url_prefix": f"/{_PREFIX}", "name": "airflow-kftrain"}]

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        if not self._is_shown:
            return []
        return [
            {
                "name": "Training",  # also under which the module registers its component
                "destination": "task_instance",
                "url_route": _PREFIX,
                # Relative, since Airflow may be served under a path. It differs for each content,
                # since browsers keep the module.
                "bundle_url": f"{_PREFIX}/{MODULE}?v={_digest()}",
                "icon": f"{_PREFIX}/icon.svg",
                "icon_dark_mode": f"{_PREFIX}/icon-dark.svg",
                "applies_to": _ONLY_OURS,
            }
        ]

    @cached_property
    def _is_shown(self) -> bool:
        from airflow_kftrain.airflow_compat import shows_task_tab

        return shows_task_tab()


def _digest() -> str:
    from hashlib import sha256

    return sha256((STATIC / MODULE).read_bytes()).hexdigest()[:12]
