"""The only module that distinguishes versions of Airflow."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.manifests.identity import Owner
from airflow_kftrain.ownership import TaskState

if TYPE_CHECKING:
    from typing import Protocol

    class InstanceKey(Protocol):
        """The fields that identify a task instance; a task instance has them itself."""

        @property
        def dag_id(self) -> str: ...
        @property
        def task_id(self) -> str: ...
        @property
        def run_id(self) -> str: ...
        @property
        def map_index(self) -> int | None: ...


T = TypeVar("T")

# Airflow's own default for the address of its API server.
_UNCONFIGURED = "localhost:8080"
# Names that mean a different machine everywhere, so they do not identify an Airflow.
_LOOPBACK = frozenset({"localhost", "0.0.0.0", "::", "::1"})


def airflow_instance() -> str:
    """The name of this Airflow, which distinguishes its jobs from those of others.

    It is `[kftrain] instance`, else host, port and path of `[api] base_url`, else `localhost:8080`:
    Airflows that set neither share this name.
    """
    return _option("kftrain", "instance") or _place(_option("api", "base_url")) or _UNCONFIGURED


def instance_is_configured() -> bool:
    """Whether the name is unique, as far as the configuration shows. If it is not, a task of
    another Airflow, which is unknown here, looks like one that was deleted."""
    if _option("kftrain", "instance"):
        return True
    host = urlsplit(f"//{_place(_option('api', 'base_url'))}").hostname or ""
    return bool(host) and host not in _LOOPBACK and not host.startswith("127.")


def link_option(name: str) -> str:
    """A URL template in the section [kftrain], or ""."""
    return _option("kftrain", name)


def shows_task_tab() -> bool:
    """Whether the pages of task instances have the tab Training, so that the XCom `kftrain` is
    written while jobs run. Airflow 3.4 can show it on those of training tasks only; in 3.3 it would
    stand on all, so there only if it is asked for."""
    from airflow import __version__

    version = tuple(map(int, __version__.split(".")[:2]))
    return version >= (3, 3) and _switch("kftrain", "task_tab", version >= (3, 4))


def _switch(section: str, name: str, default: bool) -> bool:
    """An option that may be unset. A wrong value must not keep Airflow from starting."""
    text = _option(section, name).lower()
    if text in ("true", "t", "1"):
        return True
    if text in ("false", "f", "0"):
        return False
    if text:
        log = logging.getLogger(__name__)
        log.warning("[%s] %s must be True or False, got %r: ignored", section, name, text)
    return default


def default_deferrable() -> bool:
    """Whether operators defer if their authors do not say."""
    return bool(_configuration().getboolean("operators", "default_deferrable", fallback=False))


def exceptions() -> ModuleType:
    """The module with the exceptions that end a task, such as AirflowFailException."""
    from airflow.sdk import exceptions

    if hasattr(exceptions, "AirflowFailException"):
        return exceptions
    import airflow.exceptions  # Airflow 3.1

    return airflow.exceptions


def stats() -> Any:
    """Airflow's Stats; None if Airflow sends no metrics. The first call imports what sends them."""
    names = ("statsd_on", "statsd_datadog_enabled", "otel_on")
    if not any(_switch("metrics", name, False) for name in names):
        return None
    try:
        # Triggerers only initialize Airflow's own copy of Stats. That of the SDK, which workers
        # use, is initialized by this import.
        import_module("airflow.sdk.serde")
        found = import_module("airflow.sdk.observability.stats").Stats
    except ImportError:  # Airflow 3.1
        found = import_module("airflow.stats").Stats
    found.timer("kftrain")  # sends nothing, but creates the client
    return found


def stats_keep_tags() -> bool:
    """Whether tags are sent. In plain statsd there are none. The order is that of Airflow."""
    if _switch("metrics", "statsd_datadog_enabled", False):
        return _switch("metrics", "statsd_datadog_metrics_tags", True)
    if _switch("metrics", "statsd_on", False):
        return _switch("metrics", "statsd_influxdb_enabled", False)
    return True


def hostname() -> str:
    """As in Airflow's own metrics."""
    return str(import_module("airflow.utils.net").get_hostname())


def is_unmapping(operator: object) -> bool:
    """Whether the operator is being created for one task of `.partial().expand()`, when that runs.
    While a DAG file is parsed, no such operator is created."""
    return bool(getattr(operator, "_BaseOperator__from_mapped", False))


def unmapped(task: Any, context: dict[str, Any]) -> Any:
    """The operator of a task; for a mapped task, that of the task instance in the context. Its
    templates are not rendered."""
    if not hasattr(task, "_expand_mapped_kwargs"):
        return task
    arguments, _ = task._expand_mapped_kwargs(context)
    return task.unmap(arguments)


def find_dag(dag_id: str) -> Any:
    """A DAG of the DAG folder, parsed in this process. Raises InvalidSpec."""
    try:
        module = import_module("airflow.dag_processing.dagbag")
    except ImportError:  # Airflow 3.1
        module = import_module("airflow.models.dagbag")
    bag = module.DagBag()
    if dag_id in bag.dags:
        return bag.dags[dag_id]
    broken = "; ".join(
        f"{path}: {text.strip().splitlines()[-1]}" for path, text in bag.import_errors.items()
    )
    advice = f"Files that cannot be parsed: {broken}" if broken else "Look at `airflow dags list`."
    raise InvalidSpec("", f"{bag.dag_folder} has no DAG {dag_id!r}", advice=advice)


def accessors() -> dict[str, Any]:
    """The values of `var`, `conn` and `macros` in templates."""
    from airflow.sdk.execution_time.context import (
        ConnectionAccessor,
        MacrosAccessor,
        VariableAccessor,
    )

    return {
        "var": {
            "json": VariableAccessor(deserialize_json=True),
            "value": VariableAccessor(deserialize_json=False),
        },
        "conn": ConnectionAccessor(),
        "macros": MacrosAccessor(),
    }


def hides(name: str) -> bool:
    """Whether Airflow would mask a value of that name: TOKEN, DB_PASSWORD."""
    from airflow.sdk._shared.secrets_masker import should_hide_value_for_key

    hidden: Any = should_hide_value_for_key  # Airflow has no types for it
    return bool(hidden(name))


def redacted(value: Any) -> Any:
    """The value with secrets masked: those of connections and variables, and values with telling
    names."""
    from airflow.sdk._shared.secrets_masker import redact

    return redact(value)


def is_resumed(context: Mapping[str, Any]) -> bool:
    """Whether a worker continues a task that was deferred."""
    known = getattr(context.get("ti"), "_ti_context_from_server", None)
    return bool(known and known.next_method)


def store_rendered(fields: dict[str, Any]) -> None:
    """Replaces what the Rendered tab shows of the task instance, from its worker."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import SetRenderedFields

    if supervisor := getattr(task_runner, "SUPERVISOR_COMMS", None):
        supervisor.send(SetRenderedFields(rendered_fields=fields))


def longest_rendered() -> int:
    """How many characters of a field the Rendered tab shows."""
    return int(_option("core", "max_templated_field_length") or 4096)


def has_trigger_on_kill() -> bool:
    """Whether Airflow tells a trigger that its task was ended from outside (since 3.3). Older
    versions only call `cleanup`, at every end."""
    from airflow.triggers.base import BaseTrigger

    return hasattr(BaseTrigger, "on_kill")


def region_of(context: Mapping[str, Any]) -> tuple[str, int]:
    """The region and its index: the iteration of a task loop (Airflow 3.4), since everything else
    is the same in all iterations. ("", -1) outside of loops; a mapped task there has a region, too,
    but does not need it."""
    if context.get("loop") is None:
        return "", -1
    return str(context["ti"].region_id), context["ti"].region_index


async def state_when_killed(
    dag_id: str, run_id: str, task_id: str, map_index: int, looped: bool
) -> TaskState:
    """The state of the task of a trigger that is told of a kill.

    The state of an iteration of a task loop cannot be read. But an Airflow with loops tells a
    trigger of a kill only if the task is no longer deferred, and not if another triggerer takes
    over.
    """
    if looped:
        return TaskState(True, "no longer deferred")
    return await task_state(dag_id, run_id, task_id, map_index)


async def task_state(
    dag_id: str, run_id: str, task_id: str, map_index: int, looped: bool = False
) -> TaskState:
    """The state of any task instance, read in a trigger or a task. May raise any error: only a
    response without the task instance means that it does not exist.

    For a task in a loop (`looped`) Airflow returns only the state of the latest iteration. So the
    state of the run is used: when the run has ended, all iterations have. Until then each may be
    running.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = await _in_thread(
        RuntimeTaskInstance.get_task_states,
        dag_id=dag_id,
        run_ids=[run_id],
        task_ids=[task_id],
        map_index=map_index,
    )
    key = task_id if map_index < 0 else f"{task_id}_{map_index}"
    found = states.get(run_id, {})
    if key in found and looped:
        of_run = await _in_thread(RuntimeTaskInstance.get_dagrun_state, dag_id, run_id)
        return TaskState(True, of_run if of_run in ("success", "failed") else "running")
    return TaskState(True, found[key]) if key in found else TaskState(exists=False)


def stored_task_state(owner: Owner) -> TaskState:
    """The same for command lines on a machine of Airflow, and exact for every iteration.

    It reads the metadata database, as `airflow tasks state` does. This works with every auth
    manager, and while the API server is down. The REST API would need a user and a token of the
    auth manager; and only the code of tasks and DAGs must not read the database.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    of_task = select(TaskInstance.state).where(
        TaskInstance.dag_id == owner.dag_id,
        TaskInstance.run_id == owner.run_id,
        TaskInstance.task_id == owner.task_id,
        *_coordinates(TaskInstance, owner),
    )
    with create_session() as session:
        row = session.execute(of_task).one_or_none()
    return TaskState(exists=False) if row is None else TaskState(True, row.state)


def stored_run(dag_id: str, run_id: str) -> Any:
    """A DAG run in the metadata database, for command lines; None if it does not exist. Raises
    InvalidSpec."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with create_session() as session:
            found = session.scalar(
                select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
            )
            if found is not None:
                session.expunge(found)
            return found
    except SQLAlchemyError as error:
        problem = str(error).partition("\n")[0]
        raise InvalidSpec(
            "",
            f"Airflow's database cannot be read: {problem}",
            advice="Use the configuration of the scheduler, and run `airflow db migrate` once.",
        ) from error


def stored_xcoms(
    dag_id: str, run_id: str, task_id: str, key: str, map_index: int | None
) -> list[Any]:
    """The XComs of a task in the metadata database, for command lines, ordered by map index."""
    from airflow.models.xcom import XComModel
    from airflow.sdk.execution_time.xcom import XCom
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(XComModel).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id == run_id,
        XComModel.task_id == task_id,
        XComModel.key == key,
    )
    if map_index is not None:
        query = query.where(XComModel.map_index == map_index)
    with create_session() as session:
        rows = session.scalars(query.order_by(XComModel.map_index))
        return [XCom.deserialize_value(row) for row in rows]


def _coordinates(model: Any, owner: Owner) -> list[Any]:
    """The columns that select one instance of a task."""
    if not hasattr(model, "region_id"):
        return [model.map_index == owner.map_index]
    from airflow.models import task_coordinates

    place: dict[str, Any] = {"map_index": owner.map_index}
    if owner.region_id:
        place |= {"region_id": UUID(owner.region_id), "region_index": owner.region_index}
    found: list[Any] = task_coordinates.build_coordinate_filters(model, **place)
    return found


async def push_xcom(instance: InstanceKey, key: str, value: Any, *, link: bool) -> None:
    """Stores an XCom of a deferred task, from its trigger."""
    from airflow.sdk.bases.xcom import BaseXCom
    from airflow.sdk.execution_time.xcom import XCom

    place = _place_of(instance)
    if link:
        # No asynchronous method bypasses the XCom backend.
        await _in_thread(BaseXCom._set_xcom_in_db, key, value, **place)
    elif hasattr(XCom, "aset"):
        await XCom.aset(key, value, **place)
    else:  # Airflow 3.1, 3.2
        await _in_thread(XCom.set, key, value, **place)


def push_link(instance: InstanceKey, key: str, value: Any) -> None:
    """Stores the URL of a button, or what the tab Training shows, from the worker. It bypasses the
    XCom backend, since pages read it that way."""
    from airflow.sdk.bases.xcom import BaseXCom

    BaseXCom._set_xcom_in_db(key, value, **_place_of(instance))


def stored_link(instance: InstanceKey, key: str) -> str:
    """The stored URL of a button, or ""."""
    stored = stored_value(instance, key)
    return stored if isinstance(stored, str) else ""


def stored_value(instance: InstanceKey, key: str) -> Any:
    """What was stored past the XCom backend."""
    from airflow.sdk.bases.xcom import BaseXCom

    return BaseXCom._get_xcom_db_ref(key=key, **_place_of(instance)).value


def bundle_of(instance: Any) -> tuple[str, str]:
    """(name, version) of the bundle that the DAG file comes from, as far as it has them."""
    bundle = getattr(instance, "bundle_instance", None)
    return str(getattr(bundle, "name", None) or ""), str(getattr(bundle, "version", None) or "")


def has_queues() -> bool:
    """Whether an executor may look at the queue of a task; the LocalExecutor does not."""
    return not _executors() <= {"LocalExecutor", "SequentialExecutor"}


def workers_are_processes() -> bool:
    """Whether all workers are processes that their executor watches. If they are pods, or tasks of
    a cloud, their exit is noticed seconds later."""
    return _executors() <= {"LocalExecutor", "SequentialExecutor", "CeleryExecutor"}


def _executors() -> set[str]:
    """The names of their classes."""
    executors = _option("core", "executor").replace(";", ",").split(",")
    return {each.rpartition(":")[2].rpartition(".")[2].strip() for each in executors}


def show_end_at_once() -> None:
    """Lets the supervisor of this worker notice the worker's exit at once.

    The supervisor waits until the worker's sockets close, and then checks whether the process has
    exited. A busy kernel closes them a moment before that. Then the supervisor checks again only
    after `[workers] min_heartbeat_interval`, 5 seconds, and the executor notices the exit as late.
    A shell that outlives the worker by a moment keeps one of the sockets open.
    """
    with suppress(OSError):  # without a shell or stdout it just takes longer
        if stat.S_ISSOCK(os.fstat(1).st_mode):  # under `dags test` nobody waits
            _leave_a_shell_behind()


@functools.cache
def _leave_a_shell_behind() -> None:
    """Only once per process. The shell exits 0.2 seconds after the pipe closes, which closes with
    the process."""
    ends, _kept_open = os.pipe()
    try:
        os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", "read -r _; sleep 0.2"],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, ends, 0)],
        )
    finally:
        os.close(ends)


async def link_is_stored(instance: InstanceKey, key: str) -> bool:
    """Whether a worker has stored that link of its task, even an empty one. Called in a trigger."""
    from airflow.sdk.bases.xcom import BaseXCom

    stored = await _in_thread(BaseXCom._get_xcom_db_ref, key=key, **_place_of(instance))
    return stored.value is not None


async def _in_thread(call: Callable[..., T], *args: Any, **named: Any) -> T:
    """Runs a blocking call to Airflow in a thread, from a trigger.

    It uses asgiref, since in Airflow 3.1 only then a call finds its way back to the triggerer's
    event loop. It is shielded, since a cancelled call would leave its response to be read by the
    next one, of any trigger.
    """
    from asgiref.sync import sync_to_async

    threaded: Any = sync_to_async(call, thread_sensitive=False)
    done: T = await asyncio.shield(threaded(*args, **named))
    return done


def map_index_of(instance: InstanceKey) -> int:
    """-1 if the task is not mapped."""
    return -1 if instance.map_index is None else instance.map_index


def _place_of(instance: InstanceKey) -> dict[str, Any]:
    return {
        "dag_id": instance.dag_id,
        "task_id": instance.task_id,
        "run_id": instance.run_id,
        "map_index": map_index_of(instance),
    }


def _option(section: str, name: str) -> str:
    return (_configuration().get(section, name, fallback="") or "").strip()


def _configuration() -> Any:
    try:
        from airflow.sdk import conf
    except ImportError:  # Airflow 3.1
        from airflow.configuration import conf as core_conf

        return core_conf
    return conf


def _place(url: str) -> str:
    """Host, port and path: the same for http and https, and without a user's password."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    host = parts.netloc.rpartition("@")[2].lower()
    return (host + parts.path).strip("/")
