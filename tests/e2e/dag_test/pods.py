"""A DAG with Airflow's own KubernetesPodOperator. Run as a program, it prints its result as JSON.

Nothing here knows about the embedded cluster: the connection in the environment leads to it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG


def pod(task_id: str, script: str, **arguments: Any) -> None:
    KubernetesPodOperator(
        task_id=task_id,
        image="x",
        cmds=["sh", "-c", script],
        startup_check_interval_seconds=1,
        poll_interval=0.5,
        **arguments,
    )


with DAG("pods") as dag:
    # A shell computes these numbers, so they are not in the manifest that the log shows.
    for prefix, deferrable in (("", False), ("deferred_", True)):
        pod(f"{prefix}succeeds", "sleep 0.5; echo epoch $((6 * 7))", deferrable=deferrable)
        pod(f"{prefix}fails", "echo epoch $((2 * 7)); exit 3", deferrable=deferrable)
        pod(f"{prefix}skips", "exit 4", deferrable=deferrable, skip_on_exit_code=4)
    # Kept at the end of the task, so that only the kill can have removed it.
    pod("is_killed", "while echo alive; do sleep 0.2; done", on_finish_action="keep_pod")

if __name__ == "__main__":
    from airflow.utils.db import initdb

    initdb()
    tasks = dag.test().get_task_instances()
    pods = {task.task_id: task.xcom_pull(task.task_id, key="pod_name") for task in tasks}
    json.dump({task.task_id: [task.state, pods[task.task_id]] for task in tasks}, sys.stdout)
