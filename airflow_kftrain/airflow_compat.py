"""The only module that knows one version of Airflow from another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.ownership import TaskState

if TYPE_CHECKING:
    from typing import Protocol

    class InstanceKey(Protocol):
        """What tells one task instance from another; a task instance has all of it itself."""

        @property
        def dag_id(self) -> str: ...
        @property
        def task_id(self) -> str: ...
        @property
        def run_id(self) -> str: ...
        @property
        def map_index(self) -> int | None: ...


T = TypeVar("T")

# What Airflow itself takes for the address of its API server when none is configured.
_UNCONFIGURED = "localhost:8080"
# Names that every machine has for itself: as a base URL they tell no Airflow from another.
_LOOPBACK = frozenset({"localhost", "0.0.0.0", "::", "::1"})


def airflow_instance() -> str:
    """The name of this Airflow, by which it tells its own jobs from those of others.

    It is `[kftrain] instance`, else host, port and path of `[api] base_url`, else
    `localhost:8080`: Airflows that leave both unset share one name.
    """
    return _option("kftrain", "instance") or _place(_option("api", "base_url")) or _UNCONFIGURED


def instance_is_configured() -> bool:
    """Whether that name is this Airflow's alone, as far as its configuration can tell. Without,
    another Airflow's task that nobody knows here looks like one that is gone."""
    if _option("kftrain", "instance"):
        return True
    host = urlsplit(f"//{_place(_option('api', 'base_url'))}").hostname or ""
    return bool(host) and host not in _LOOPBACK and not host.startswith("127.")


def link_option(name: str) -> str:
    """A URL template of the section [kftrain], "" where none is configured."""
    return _option("kftrain", name)


def default_deferrable() -> bool:
    """Whether operators defer where their authors say nothing."""
    return bool(_configuration().getboolean("operators", "default_deferrable", fallback=False))


def earliest_event(deferred: datetime) -> datetime:
    """An event that comes before Airflow has seen the end of the worker fails the task. Workers end
    within a heartbeat where nothing keeps them; on a busy machine it takes a few of them."""
    seconds = _configuration().getint("workers", "min_heartbeat_interval", fallback=5)
    return deferred + timedelta(seconds=3 * seconds)


def exceptions() -> ModuleType:
    """The module with the exceptions that say what becomes of a task: AirflowFailException etc."""
    from airflow.sdk import exceptions

    if hasattr(exceptions, "AirflowFailException"):
        return exceptions
    import airflow.exceptions  # Airflow 3.1

    return airflow.exceptions


def is_unmapping(operator: object) -> bool:
    """Whether the operator is being made for one task of `.partial().expand()`, when that runs; at
    parse no such operator is made at all."""
    return bool(getattr(operator, "_BaseOperator__from_mapped", False))


def unmapped(task: Any, context: dict[str, Any]) -> Any:
    """The operator of a task; of a mapped one, that of the task instance in the context. Its
    templates are not rendered."""
    if not hasattr(task, "_expand_mapped_kwargs"):
        return task
    arguments, _ = task._expand_mapped_kwargs(context)
    return task.unmap(arguments)


def find_dag(dag_id: str) -> Any:
    """A DAG of the DAG folder, parsed here. Raises InvalidSpec."""
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
    """What templates find under `var`, `conn` and `macros`."""
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
    """Whether Airflow would hide a value of that name: TOKEN, DB_PASSWORD."""
    from airflow.sdk._shared.secrets_masker import should_hide_value_for_key

    hidden: Any = should_hide_value_for_key  # Airflow has no types for it
    return bool(hidden(name))


def redacted(value: Any) -> Any:
    """The value without secrets that Airflow knows: connections, variables, names that tell."""
    from airflow.sdk._shared.secrets_masker import redact

    return redact(value)


def has_trigger_on_kill() -> bool:
    """Whether a trigger is told that its task was ended from outside (since Airflow 3.3). Where it
    is not, all it has is `cleanup`, which is called at every end."""
    from airflow.triggers.base import BaseTrigger

    return hasattr(BaseTrigger, "on_kill")


async def task_state(dag_id: str, run_id: str, task_id: str, map_index: int) -> TaskState:
    """The state of any task instance, asked from a trigger. Raises whatever goes wrong: only an
    answer without the task instance means that there is none."""
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
    return TaskState(True, found[key]) if key in found else TaskState(exists=False)


def stored_task_state(dag_id: str, run_id: str, task_id: str, map_index: int) -> TaskState:
    """The same on a machine of Airflow's own, for command lines.

    They read the metadata database, as `airflow tasks state` does: it works with every auth
    manager and while the API server is down. The REST API would need a user and a token of
    whichever auth manager there is; only code of tasks and DAGs is kept from the database.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    of_task = select(TaskInstance.state).where(
        TaskInstance.dag_id == dag_id,
        TaskInstance.run_id == run_id,
        TaskInstance.task_id == task_id,
        TaskInstance.map_index == map_index,
    )
    with create_session() as session:
        row = session.execute(of_task).one_or_none()
    return TaskState(exists=False) if row is None else TaskState(True, row.state)


async def push_xcom(instance: InstanceKey, key: str, value: Any, *, link: bool) -> None:
    """Stores an XCom of a task that is deferred, from its trigger."""
    from airflow.sdk.bases.xcom import BaseXCom
    from airflow.sdk.execution_time.xcom import XCom

    place = _place_of(instance)
    if link:
        # There is no asynchronous one that goes past the XCom backend.
        await _in_thread(BaseXCom._set_xcom_in_db, key, value, **place)
    elif hasattr(XCom, "aset"):
        await XCom.aset(key, value, **place)
    else:  # Airflow 3.1, 3.2
        await _in_thread(XCom.set, key, value, **place)


def push_link(instance: InstanceKey, key: str, url: str) -> None:
    """Stores the URL of a button, from the worker: past the XCom backend, since the API server
    reads it so."""
    from airflow.sdk.bases.xcom import BaseXCom

    BaseXCom._set_xcom_in_db(key, url, **_place_of(instance))


def stored_link(instance: InstanceKey, key: str) -> str:
    """The URL of a button as it is stored; "" where there is none."""
    from airflow.sdk.bases.xcom import BaseXCom

    stored = BaseXCom._get_xcom_db_ref(key=key, **_place_of(instance)).value
    return stored if isinstance(stored, str) else ""


async def _in_thread(call: Callable[..., T], *args: Any, **named: Any) -> T:
    """A call that talks to Airflow and blocks, from a trigger.

    By asgiref, since a call in Airflow 3.1 finds the way back to the triggerer's event loop by it
    alone. Shielded, since a call that is given up half-way leaves its answer there for the next
    one to read, of whichever trigger that is.
    """
    from asgiref.sync import sync_to_async

    threaded: Any = sync_to_async(call, thread_sensitive=False)
    done: T = await asyncio.shield(threaded(*args, **named))
    return done


def map_index_of(instance: InstanceKey) -> int:
    """-1 for a task that is not mapped."""
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
    """Host, port and path: the same over http and https, and without a user's password."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    host = parts.netloc.rpartition("@")[2].lower()
    return (host + parts.path).strip("/")
