"""configuration.md, from what Airflow itself reads of this provider."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.provider_info import get_provider_info

HEAD = """# Configuration

Made by `make docs` from `airflow_kftrain/provider_info.py`; do not edit by hand.

These options stand in Airflow's configuration file, `airflow.cfg`, or in variables of the
environment. They are read where they are needed: the API server needs none of them, scheduler,
workers and triggerer should have the same.

Everything else is said where a task is written ([reference](reference.md)), and how to reach the
cluster in the [Kubernetes connection](permissions.md#the-connection).
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for section, about in get_provider_info()["config"].items():
        lines += [f"## [{section}]", "", about["description"], ""]
        for name, option in about["options"].items():
            lines += _option(section, name, option)
    return "\n".join(lines)


def _option(section: str, name: str, option: dict[str, Any]) -> list[str]:
    # Airflow's own documentation is reStructuredText, where code has two backticks.
    text = option["description"].replace("``", "`").replace("\n", "\n\n")
    facts = {
        "type": option["type"],
        "default": f"`{option['default']}`" if option["default"] not in ("", None) else "empty",
        "example": f"`{option['example']}`" if option.get("example") else "",
        "in the environment": f"`AIRFLOW__{section.upper()}__{name.upper()}`",
    }
    return [
        f"### {name}",
        "",
        text,
        "",
        *(f"* {word}: {said}" for word, said in facts.items() if said),
        "",
    ]
