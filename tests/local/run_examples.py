"""Runs examples as their readers would try them, one after the other, and prints as JSON how they
went. Their tasks and triggers run in this one process.

Nothing here knows of the embedded cluster: it is behind the connection in the environment.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

KEYS = (
    "return_value",
    "job",
    "log_links",
    *(f"_link_{link}Link" for link in ("TrainingJob", "LeaderLogs", "WorkerLogs", "Dashboard")),
)


def ran(name: str) -> list[dict[str, Any]]:
    """Its task instances."""
    dag = import_module(f"example_dags.{name}").dag
    print(f"----- {name}", flush=True)  # noqa: T201
    return [
        {
            "task": task.task_id,
            "index": task.map_index,
            "state": task.state,
            "tries": task.try_number,
            "xcoms": {
                key: task.xcom_pull(task.task_id, key=key, map_indexes=task.map_index)
                for key in KEYS
            },
        }
        for task in dag.test().get_task_instances()
    ]


if __name__ == "__main__":
    from airflow.utils.db import initdb

    initdb()
    ended = {name: ran(name) for name in sys.argv[1:]}
    print(f"\n{json.dumps(ended, default=str)}")  # noqa: T201
