"""A DAG of training jobs. Run as a program, it prints its result as JSON.

Nothing here knows about the embedded cluster: the connection in the environment leads to it.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_kftrain import Lifecycle, Links, PyTorchJobOperator, Replica, TrainingJobSensor

RESULT = "echo '{\"epochs\": '$((6 * 7))'}' > $KFTRAIN_RESULT_FILE"
LINKS = Links(
    training_job="https://x/{namespace}/{job}",
    leader_logs="https://x/{pod}",
    worker_logs="https://x/{pod}",
)


def train(task_id: str, script: str, **arguments: Any) -> PyTorchJobOperator:
    return PyTorchJobOperator(
        task_id=task_id,
        image="x",
        command=["sh", "-c", script],
        **{"workers": 0, "links": LINKS, **arguments},
    )


@task
def plan() -> list[str]:
    return ["first", "second"]


with DAG("training", params={"workers": 1}) as dag:
    # A shell computes these numbers, so they are not in the manifest that the log shows.
    for prefix, deferrable in (("", False), ("deferred_", True)):
        where: dict[str, Any] = {"deferrable": deferrable}
        train(
            f"{prefix}succeeds",
            f"echo epoch $((6 * 7)); sleep 1; {RESULT}",
            workers="{{ params.workers }}",
            **where,
        )
        train(f"{prefix}fails", "echo epoch $((2 * 7)); exit 3", **where)
        skips = Lifecycle(skip_on_exit_code=4)
        train(f"{prefix}skips", "exit 4", lifecycle=skips, **where)
        short = timedelta(seconds=8)
        train(
            f"{prefix}takes_too_long",
            "echo epoch $((3 * 7)); exec sleep 600",
            execution_timeout=short,
            **where,
        )
    PyTorchJobOperator.partial(
        task_id="mapped", image="x", links=LINKS, deferrable=True, master=Replica()
    ).expand(
        command=plan().map(lambda name: ["sh", "-c", f"echo '\"{name}\"' > $KFTRAIN_RESULT_FILE"])
    )
    kept = train("kept", "true", lifecycle=Lifecycle(on_finish="keep"))
    for prefix, deferrable in (("", False), ("deferred_", True)):
        kept >> TrainingJobSensor(
            task_id=f"{prefix}sensed",
            kind="PyTorchJob",
            name="{{ ti.xcom_pull('kept', key='job')['name'] }}",
            deferrable=deferrable,
            poke_interval=1,
        )
    train("is_killed", "while echo alive; do sleep 0.2; done")

if __name__ == "__main__":
    from airflow.utils.db import initdb

    initdb()
    keys = ("return_value", "job", "log_links", "_link_TrainingJobLink", "_link_LeaderLogsLink")
    ended = {}
    for instance in dag.test().get_task_instances():
        name = instance.task_id + (f"[{instance.map_index}]" if instance.map_index >= 0 else "")
        xcoms = {
            key: instance.xcom_pull(instance.task_id, key=key, map_indexes=instance.map_index)
            for key in keys
        }
        ended[name] = [instance.state, xcoms]
    json.dump(ended, sys.stdout)
