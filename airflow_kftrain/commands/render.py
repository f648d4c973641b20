"""`airflow-kftrain render DAG TASK`: the manifest that a task would submit, without a cluster.

Templates are rendered as in a run that begins now. What only a real run has, such as the XCom of
another task, is named as the reason why there is no manifest.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from airflow_kftrain.errors import InvalidSpec, KfTrainError

if TYPE_CHECKING:
    from airflow_kftrain.operators.training_job import BaseTrainingJobOperator

_NO_ID = "00000000-0000-0000-0000-000000000000"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="airflow-kftrain render",
        description="Print the manifest that a task would submit, without a cluster.",
    )
    parser.add_argument("dag", help="a DAG in Airflow's DAG folder")
    parser.add_argument("task", help="one of its tasks that is a training job")
    parser.add_argument(
        "--map-index", type=int, default=-1, metavar="N", help="which one of a mapped task"
    )
    given = parser.parse_args(words)
    try:
        with redirect_stdout(sys.stderr):  # Airflow tells there what it does
            manifest = render(given.dag, given.task, given.map_index)
    except KfTrainError as error:
        sys.stderr.write(f"airflow-kftrain render: {error}\n")
        return 1
    sys.stdout.write(manifest)
    return 0


class _Instance(NamedTuple):
    """A task instance of a run that nobody has started."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    max_tries: int
    id: str = _NO_ID
    try_number: int = 1

    def xcom_pull(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidSpec("", "is the XCom of another task, which only a run has")


def render(dag_id: str, task_id: str, map_index: int) -> str:
    """Raises InvalidSpec."""
    from airflow_kftrain.airflow_compat import find_dag
    from airflow_kftrain.manifests import build_manifest
    from airflow_kftrain.operators.showing import manifest_text
    from airflow_kftrain.operators.submission import owner_of

    dag = find_dag(dag_id)
    if task_id not in dag.task_dict:
        tasks = ", ".join(sorted(dag.task_dict)) or "none"
        raise InvalidSpec("", f"{dag_id} has no task {task_id!r}", advice=f"It has {tasks}.")
    task = dag.task_dict[task_id]
    if task.is_mapped and map_index < 0:
        raise InvalidSpec("", f"{task_id} is mapped", advice="Say which one: --map-index 0.")
    context = _context(dag, task, map_index)
    operator = _rendered(task, context)
    operator.read_files(context)
    manifest = build_manifest(
        operator.spec(),
        owner=owner_of(context["ti"], operator.retries),
        namespace=operator.namespace,
    )
    return manifest_text(manifest)


def _rendered(task: Any, context: dict[str, Any]) -> BaseTrainingJobOperator:
    from airflow_kftrain.airflow_compat import unmapped
    from airflow_kftrain.operators.training_job import BaseTrainingJobOperator

    operator = unmapped(task, context)
    if not isinstance(operator, BaseTrainingJobOperator):
        raise InvalidSpec(
            "", f"{task.task_id} is a {type(operator).__name__}, which submits no training job"
        )
    environment = operator.get_template_env()
    for name in operator.template_fields:
        try:
            rendered = operator.render_template(getattr(operator, name), context, environment)
        except InvalidSpec as error:
            raise error.at(name) from None
        except Exception as error:  # of any kind: templates run what their authors wrote
            raise InvalidSpec(name, f"cannot be rendered without a run: {error}") from error
        setattr(operator, name, rendered)
    return operator


def _context(dag: Any, task: Any, map_index: int) -> dict[str, Any]:
    from airflow_kftrain.airflow_compat import accessors

    now = datetime.now(timezone.utc)
    run_id = f"manual__{now.isoformat()}"
    day, moment = now.strftime("%Y-%m-%d"), now.isoformat()
    instance = _Instance(dag.dag_id, task.task_id, run_id, map_index, task.retries or 0)
    return {
        **accessors(),
        "dag": dag,
        "task": task,
        "ti": instance,
        "task_instance": instance,
        "run_id": run_id,
        "logical_date": now,
        "data_interval_start": now,
        "data_interval_end": now,
        "ds": day,
        "ds_nodash": day.replace("-", ""),
        "ts": moment,
        "ts_nodash": now.strftime("%Y%m%dT%H%M%S"),
        "params": {**dag.params.dump(), **_own_params(task)},
        "map_index_template": None,
    }


def _own_params(task: Any) -> dict[str, Any]:
    params = getattr(task, "params", None)
    return dict(params.dump()) if params else {}
