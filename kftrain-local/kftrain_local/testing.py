"""A cluster for tests of DAGs; in pytest, the fixture `kftrain_cluster`.

    with running_cluster() as cluster:
        run = cluster.run_dag(dag)
        assert run.states == {"train": "success"}

Only `run_dag` needs Airflow.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import ProxyHandler, build_opener

from kftrain_local.agent.processes import PACKAGE_ROOT
from kftrain_local.api_client import Object, read_kubeconfig
from kftrain_local.cluster import airflow_variables
from kftrain_local.errors import LocalError
from kftrain_local.kinds import KINDS


class RunOfDag(NamedTuple):
    """How a DAG run ended. A mapped task has a list, in the order of its map indexes."""

    state: str
    states: dict[str, Any]
    """By task id: success, failed, skipped, ..."""
    values: dict[str, Any]
    """By task id: the return value, or None."""
    log: str
    """The logs of all tasks and of their pods."""


class ClusterForTests:
    """The embedded cluster, in a process of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.variables: Mapping[str, str] = airflow_variables(kubeconfig)
        """They connect Airflow to the cluster: its connection `kubernetes_default`, and links."""
        self._server = read_kubeconfig(kubeconfig).server

    def jobs(self) -> list[Object]:
        """The jobs on the cluster, oldest first. Operators delete those that succeed."""
        found = [
            {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, **each}
            for kind in KINDS
            if kind.runs
            for each in self._get(f"/apis/{kind.group}/{kind.version}/{kind.plural}")["items"]
            if not each["metadata"].get("ownerReferences")
        ]
        return sorted(found, key=lambda job: str(job["metadata"]["creationTimestamp"]))

    def _get(self, path: str) -> Object:
        with build_opener(ProxyHandler({})).open(self._server + path) as answer:
            found: Object = json.load(answer)
            return found

    def run_dag(self, dag: Any, conf: dict[str, Any] | None = None) -> RunOfDag:
        """Runs a DAG with `dag.test()`: tasks and triggers run in this process. The file of the DAG
        has to be in Airflow's DAG folder."""
        _set_up_database()
        with _output() as output:
            ended = dag.test(run_conf=conf)
            instances = sorted(ended.get_task_instances(), key=lambda each: each.map_index)
            states, values = dict[str, Any](), dict[str, Any]()
            for each in instances:
                value = each.xcom_pull(each.task_id, map_indexes=each.map_index)
                for found, what in ((states, _text(each.state)), (values, value)):
                    if each.map_index < 0:
                        found[each.task_id] = what
                    else:
                        found.setdefault(each.task_id, []).append(what)
        print(output[0], end="")  # noqa: T201  # pytest shows it where the test fails
        return RunOfDag(_text(ended.state) or "", states, values, output[0])


def _text(state: Any) -> str | None:
    return None if state is None else str(getattr(state, "value", state))


def _set_up_database() -> None:
    """Creates the tables if there are none. An existing database stays as it is."""
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session
    from sqlalchemy import inspect

    with create_session() as session:
        is_there = inspect(session.get_bind()).has_table("dag_run")
    if not is_there:
        initdb()


@contextlib.contextmanager
def _output() -> Iterator[list[str]]:
    """What is written meanwhile, also by loggers that have kept the streams of pytest: the files of
    all streams are redirected until the end."""
    output: list[str] = []
    with tempfile.TemporaryFile() as file, contextlib.ExitStack() as undo:
        for number in _numbers():
            kept = os.dup(number)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
        undo.callback(_flush)
        try:
            yield output
        finally:
            _flush()
            file.seek(0)
            output.append(file.read().decode(errors="replace"))


def _numbers() -> set[int]:
    _flush()
    numbers = {1, 2}
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a stream without a file
            numbers.add(stream.fileno())
    return numbers


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


@contextlib.contextmanager
def running_cluster(*options: str) -> Iterator[ClusterForTests]:
    """Starts a cluster with the options of `airflow-kftrain local up`. Raises LocalError."""
    name = f"test-{secrets.token_hex(4)}"
    _call("up", name, "--detach", *options)
    try:
        yield ClusterForTests(Path(_call("kubeconfig", name).strip()))
    finally:
        _call("down", name)


def _call(word: str, name: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kftrain_local.command", word, "--name", name, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
        check=False,
    )
    if done.returncode:
        raise LocalError(f"local {word}: {done.stderr.strip()}")
    return done.stdout
