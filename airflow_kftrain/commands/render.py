"""`airflow-kftrain render DAG TASK`: prints the manifest that a task would submit, without a
cluster.

Templates are rendered as in a run that starts now, or as in an existing run (`--run`). Without a
run, `<XCom of fetch>` stands for the XCom of another task.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec, KfTrainError

if TYPE_CHECKING:
    from airflow_kftrain.operators.training_job import BaseTrainingJobOperator

_NO_ID = "00000000-0000-0000-0000-000000000000"
_MARK = "<XCom-of:"
"""Begins a placeholder. There is no white space in it, since an image must not have any."""


def main(words: list[str]) -> int:
    given = _arguments(words)
    try:
        with redirect_stdout(sys.stderr):  # Airflow prints its own messages there
            manifest = render(
                given.dag, given.task, given.map_index, given.run, masked=given.masked
            )
    except KfTrainError as error:
        sys.stderr.write(f"airflow-kftrain render: {error}\n")
        return 1
    sys.stdout.write(manifest)
    return 0


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="airflow-kftrain render",
        description="Print the manifest that a task would submit, without a cluster.",
    )
    parser.add_argument("dag", help="a DAG in Airflow's DAG folder")
    parser.add_argument("task", help="a task of this DAG that is a training job")
    parser.add_argument(
        "--map-index", type=int, default=-1, metavar="N", help="which instance of a mapped task"
    )
    parser.add_argument(
        "--run", default="", metavar="ID", help="take dates, parameters and XComs of this DAG run"
    )
    parser.add_argument(
        "--masked", action="store_true", help="print *** in place of secrets instead of an error"
    )
    return parser.parse_args(words)


class _XCom(str):
    """Stands for a value that only a run has. Its items are such texts, too."""

    def __new__(cls, name: str) -> _XCom:
        text = super().__new__(cls, f"{_MARK}{name}>")
        text.name = name
        return text

    name: str

    def __getitem__(self, key: Any) -> _XCom:
        return _XCom(f"{self.name}[{key!r}]")

    def __iter__(self) -> Iterator[str]:
        return iter((_XCom(f"{self.name}[...]"),))

    def __len__(self) -> int:
        return sys.maxsize  # so that every map index exists


class _Instance(NamedTuple):
    """What templates and the owner of a job need of a task instance."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    max_tries: int
    task: Any
    pulls: bool
    """Whether the run exists, so that its XComs can be read."""
    id: str = _NO_ID
    try_number: int = 1

    def xcom_pull(
        self,
        task_ids: str | Iterable[str] | None = None,
        dag_id: str | None = None,
        key: str = "return_value",
        include_prior_dates: bool = False,
        *,
        map_indexes: Any = None,
        default: Any = None,
        **_: Any,
    ) -> Any:
        ids = [task_ids or self.task_id] if isinstance(task_ids, str | None) else [*task_ids]
        if not self.pulls:
            found: list[Any] = [
                _XCom(each if key == "return_value" else f"{each}.{key}") for each in ids
            ]
        else:
            from airflow_kftrain.airflow_compat import stored_xcoms

            index = map_indexes if isinstance(map_indexes, int) else None
            place = (dag_id or self.dag_id, self.run_id)
            found = [each for name in ids for each in stored_xcoms(*place, name, key, index)]
        if not found:
            return default
        return found[0] if isinstance(task_ids, str | None) and len(found) == 1 else found


def render(
    dag_id: str, task_id: str, map_index: int = -1, run_id: str = "", *, masked: bool = False
) -> str:
    """Returns the manifest in YAML. Raises InvalidSpec."""
    from airflow_kftrain.airflow_compat import find_dag
    from airflow_kftrain.operators.showing import manifest_text, masked_fields

    dag = find_dag(dag_id)
    if task_id not in dag.task_dict:
        tasks = ", ".join(sorted(dag.task_dict)) or "none"
        raise InvalidSpec("", f"{dag_id} has no task {task_id!r}", advice=f"It has {tasks}.")
    task = dag.task_dict[task_id]
    if task.is_mapped and map_index < 0:
        raise InvalidSpec("", f"{task_id} is mapped", advice="Select an instance: --map-index 0.")
    context = _context(dag, task, map_index, run_id)
    manifest = _manifest(_rendered(task, context), context)
    if not masked and (hidden := masked_fields(manifest)):
        raise InvalidSpec(
            "",
            f"the manifest contains secrets: {', '.join(hidden)}",
            advice="Take them from a Secret, with env=FromSecret(...), or print *** in their "
            "place: --masked.",
        )
    return manifest_text(manifest, whole=True)


def _manifest(operator: BaseTrainingJobOperator, context: dict[str, Any]) -> dict[str, Any]:
    """A value is left open where the placeholder of an XCom is not valid, such as a number."""
    from airflow_kftrain.manifests import build_manifest
    from airflow_kftrain.operators.submission import owner_of
    from airflow_kftrain.specs.later import LATER

    operator.read_files(context)
    open_texts: list[str] = []
    while True:
        try:
            manifest = build_manifest(
                operator.spec(),
                owner=owner_of(context, operator.retries),
                namespace=operator.namespace,
                folder=operator.files_folder(),
            )
        except InvalidSpec as error:
            name = re.split(r"[.\[]", error.field)[0]
            texts = (
                _texts(getattr(operator, name, None)) if name in operator.template_fields else []
            )
            if not texts:
                raise
            setattr(
                operator,
                name,
                _replaced(getattr(operator, name), lambda text: LATER if _MARK in text else text),
            )
            open_texts += texts
        else:
            shown = _readable(" or ".join(dict.fromkeys(open_texts)))
            whole: dict[str, Any] = _replaced(manifest, _readable, later=shown)
            return whole


def _readable(text: str) -> str:
    return text.replace(_MARK, "<XCom of ")


def _texts(value: Any) -> list[str]:
    """The placeholders in a value."""
    found: list[str] = []

    def note(text: str) -> str:
        found.extend(re.findall(rf"{_MARK}[^>]*>", text))
        return text

    _replaced(value, note)
    return found


def _replaced(value: Any, how: Callable[[str], Any], later: Any = None) -> Any:
    """A copy with `how(text)` in place of each text that is no key, and with `later`, if given, in
    place of each value that is left open."""
    from airflow_kftrain.specs.later import LATER

    if value is LATER:
        return LATER if later is None else later
    if isinstance(value, str):
        return how(value)
    if isinstance(value, dict):
        return {key: _replaced(item, how, later) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_replaced(item, how, later) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _rendered(task: Any, context: dict[str, Any]) -> BaseTrainingJobOperator:
    from airflow_kftrain.airflow_compat import unmapped
    from airflow_kftrain.operators.training_job import BaseTrainingJobOperator

    try:
        operator = unmapped(task, context)
    except KfTrainError:
        raise
    except Exception as error:  # of any kind: its author wrote what it is mapped over
        advice = "" if context["ti"].pulls else "Use the values of a run: --run ID."
        problem = f"{task.task_id} cannot be expanded: {error}"
        raise InvalidSpec("", problem, advice=advice) from error
    if not isinstance(operator, BaseTrainingJobOperator):
        raise InvalidSpec(
            "", f"{task.task_id} is a {type(operator).__name__}, which submits no training job"
        )
    environment = operator.get_template_env()
    for name in operator.template_fields:
        try:
            value = _pulled(getattr(operator, name), context)
            rendered = operator.render_template(value, context, environment)
        except InvalidSpec as error:
            raise error.at(name) from None
        except Exception as error:  # of any kind: templates run code of their authors
            raise InvalidSpec(name, f"cannot be rendered: {error}") from error
        setattr(operator, name, _replaced(rendered, str))
    return operator


def _pulled(value: Any, context: dict[str, Any]) -> Any:
    """With the XComs of mapped tasks: Airflow would ask its supervisor for them."""
    source = getattr(value, "operator", None)
    if source is not None and hasattr(value, "iter_references") and source.is_mapped:
        found = context["ti"].xcom_pull([source.task_id], key=value.key)
        return found if context["ti"].pulls else found[0]
    if isinstance(value, dict):
        return {key: _pulled(item, context) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_pulled(item, context) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _context(dag: Any, task: Any, map_index: int, run_id: str) -> dict[str, Any]:
    from airflow_kftrain.airflow_compat import accessors, stored_run

    now = datetime.now(timezone.utc)
    run = stored_run(dag.dag_id, run_id) if run_id else None
    if run_id and run is None:
        raise InvalidSpec("", f"{dag.dag_id} has no run {run_id!r}")
    date: datetime | None = run.logical_date if run else now
    interval = (run.data_interval_start, run.data_interval_end) if run else (now, now)
    given: Mapping[str, Any] = (run.conf if run else None) or {}
    run_id = run_id or f"manual__{now.isoformat()}"
    instance = _Instance(
        dag.dag_id, task.task_id, run_id, map_index, task.retries or 0, task, run is not None
    )
    return {
        **accessors(),
        "dag": dag,
        "task": task,
        "ti": instance,
        "task_instance": instance,
        "dag_run": run,
        "run_id": run_id,
        "data_interval_start": interval[0],
        "data_interval_end": interval[1],
        **(_dates(date) if date else {}),
        "params": {**dag.params.dump(), **_own_params(task), **given},
        "map_index_template": None,
    }


def _dates(date: datetime) -> dict[str, Any]:
    """The names that a run without a logical date does not have."""
    day, moment = date.strftime("%Y-%m-%d"), date.isoformat()
    return {
        "logical_date": date,
        "ds": day,
        "ds_nodash": day.replace("-", ""),
        "ts": moment,
        "ts_nodash": date.strftime("%Y%m%dT%H%M%S"),
    }


def _own_params(task: Any) -> dict[str, Any]:
    params = getattr(task, "params", None)
    return dict(params.dump()) if params else {}
